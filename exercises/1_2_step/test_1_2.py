import pytest
import torch

import minipt2
from minipt2 import trace
from minipt2.course.checks import same


def agree(fn, *args):
    """Captured in one graph, and as in Python."""
    same(minipt2.compile(fn, backend="eager", fullgraph=True)(*args), fn(*args))
    same(minipt2.counters().get("graphs", 0) > 0, True, where="whether a graph was captured")


def test_operands_in_order():
    """Arguments of calls, items of containers, both sides of a minus."""
    def fn(x):
        a, b, c = x - 1, x * 2, x.sum()
        return [torch.sub(a, b, alpha=2), (a - b) - c, torch.cat([a, b]), {"a": a, "b": b}["b"]]
    agree(fn, torch.randn(3))


def test_constants_fold():
    """What is known needs no node."""
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def fn(x):
        scale = (3 - 1) * 2 ** 3 % 5
        return x * scale
    x = torch.randn(2)
    same(minipt2.compile(fn, backend=backend)(x), fn(x))
    same(sum(n.op == "call_function" for n in graphs[0].graph.nodes), 1, where="nodes of the graph")


def test_exceptions_cut_the_stack():
    """A handler finds the stack as deep as the compiler of Python meant it to be."""
    def fn(x, table):
        total = x * 0
        for key in ("a", "b", "c"):
            total = total + (x + (1, 2, table.get(key, 5))[-1])
            try:
                total = total + [10, 20, table[key]][-1]
            except KeyError:
                total = total - 1
        return total
    agree(fn, torch.randn(2), {"a": 1, "c": 3})


def test_handlers_nest():
    """finally, re-raise, else, as in Python."""
    def fn(x, k):
        out = [x]
        try:
            try:
                out.append(x * [1, 2][k])
            except IndexError:
                out.append(x - 1)
                raise ValueError from None
            else:
                out.append(x + 1)
            finally:
                out.append(x * 3)
        except ValueError:
            out.append(x * 4)
        return out
    for k in (0, 5):
        agree(fn, torch.randn(2), k)


def test_an_uncaught_exception_leaves():
    """What Python raises is raised."""
    class Odd(Exception):
        pass

    def inner(values, k):
        if k > 1:
            raise Odd
        return values[k]

    def fn(x, k):
        try:
            return x * inner([1, 2], k)
        except KeyError:
            return x
    with pytest.raises(Odd):
        minipt2.compile(fn, backend="eager")(torch.ones(1), 7)


def test_every_instruction_is_announced():
    """The figures of chapter 1 listen: one artifact an instruction, with the instruction current."""
    seen = []
    stop = trace.subscribe(lambda stage, name, tx: seen.append(tx.current.op), "instruction")
    try:
        minipt2.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(1))
    finally:
        stop()
    same([op for op in seen if op in ("BINARY_OP", "RETURN_VALUE")], ["BINARY_OP", "BINARY_OP", "RETURN_VALUE"])


def test_loops():
    """Jumps backwards: ten rounds are unrolled."""
    def fn(x):
        k = 0
        while k < 10:
            k += 1
            if k % 2:
                continue
            x = x * k
        return x
    agree(fn, torch.ones(2))
