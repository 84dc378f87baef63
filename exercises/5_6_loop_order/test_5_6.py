import torch

import minipt2
from minipt2.course.checks import same
from minipt2.inductor.scheduler.affine import Index
from minipt2.inductor.scheduler.nodes import Access
from minipt2.inductor.scheduler.order import loop_order


def access(buffer, mode="load", **strides):
    return Access(buffer, Index(0, strides), mode, 4)


def test_rows():
    """A row-major matrix: columns inside."""
    same(loop_order({"p0": 8, "p1": 16}, [access("a", p0=16, p1=1), access("o", "store", p0=16, p1=1)]), ["p0", "p1"])


def test_columns():
    """Its transpose: the other way round."""
    same(loop_order({"p0": 8, "p1": 16}, [access("a", p0=1, p1=8), access("o", "store", p0=1, p1=8)]), ["p1", "p0"])


def test_bytes_decide():
    """Two of three operands agree."""
    sizes = {"p0": 32, "p1": 32}
    same(loop_order(sizes, [access("a", p0=32, p1=1), access("b", p0=1, p1=32), access("o", "store", p0=32, p1=1)]), ["p0", "p1"])
    same(loop_order(sizes, [access("a", p0=1, p1=32), access("b", p0=1, p1=32), access("o", "store", p0=32, p1=1)]), ["p1", "p0"])


def test_stores_weigh_more():
    """One load against one store of as many bytes."""
    sizes = {"p0": 32, "p1": 32}
    same(loop_order(sizes, [access("a", p0=1, p1=32), access("o", "store", p0=32, p1=1)]), ["p0", "p1"])
    same(loop_order(sizes, [access("a", p0=32, p1=1), access("o", "store", p0=1, p1=32)]), ["p1", "p0"])


def test_long_loops_inside():
    """If memory has no opinion."""
    same(loop_order({"p0": 64, "p1": 4}, [access("o", "store")]), ["p1", "p0"])
    same(loop_order({"p0": 4, "p1": 64}, [access("o", "store")]), ["p0", "p1"])


def test_the_same_access_counts_once():
    """x * x reads memory once."""
    sizes = {"p0": 32, "p1": 32}
    many = [access("a", p0=1, p1=32)] * 5
    same(loop_order(sizes, [*many, access("b", p0=32, p1=1), access("o", "store", p0=32, p1=1)]), ["p0", "p1"])


def test_compiled_transposes():
    """The whole compiler on your order."""
    def fn(x, y):
        return x.t() + y, (x * 2).t().contiguous(), (x.t() * y).sum(0)
    x, y = torch.randn(24, 40), torch.randn(40, 24)
    same(list(minipt2.compile(fn)(x, y)), list(fn(x, y)), rtol=1e-4, atol=1e-5)
