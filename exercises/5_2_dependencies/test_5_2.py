import sympy
import torch

from minipt2.course.checks import same
from minipt2.inductor.ir.body import MemDep, reads
from minipt2.inductor.ops import ops

F32 = torch.float32


def found(fn, *sizes):
    return {(d.name, str(d.index)) for d in reads(fn, sizes)}


def test_two_buffers():
    """Each with the index that it is read at."""
    same(found(lambda i: ops.add(ops.load("a", i[0] * 4 + i[1]), ops.load("b", i[1])), 3, 4), {("a", "4*p0 + p1"), ("b", "p1")})


def test_one_buffer_two_indices():
    """A stencil reads three places."""
    def stencil(i):
        return ops.add(ops.load("a", i[0]), ops.add(ops.load("a", i[0] + 1), ops.load("a", i[0] + 2)))
    same(found(stencil, 8), {("a", "p0"), ("a", "p0 + 1"), ("a", "p0 + 2")})


def test_the_same_load_twice_is_one():
    """It is a set."""
    same(found(lambda i: ops.mul(ops.load("a", i[0]), ops.load("a", i[0])), 8), {("a", "p0")})


def test_loads_under_a_mask():
    """They may happen."""
    def padded(i):
        inside = ops.lt(ops.index_expr(i[0], torch.int64), ops.constant(5, torch.int64))
        return ops.masked(inside, lambda: ops.load("a", i[0]), 0.0)
    same(found(padded, 8), {("a", "p0")})


def test_sizes():
    """The loops that an index is over are part of the dependency."""
    (dep,) = reads(lambda i: ops.load("a", i[0]), (6, 2))
    assert isinstance(dep, MemDep)
    same(dep.sizes, (sympy.Integer(6), sympy.Integer(2)))


def test_nothing_read():
    """A constant depends on nothing."""
    same(reads(lambda i: ops.constant(1.0, F32), (3,)), set())
    same(found(lambda i: ops.load("a", i[0]), 3), {("a", "p0")})


def test_dtypes_are_asked_for():
    """``dtype_of`` says what lies in a buffer."""
    def fn(i):
        return ops.to_dtype(ops.load("k", i[0]), F32)
    same({d.name for d in reads(fn, (4,), lambda name: torch.int64)}, {"k"})
