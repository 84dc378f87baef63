import pytest
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.opcodes.control import jump_if_or_pop  # noqa: F401  CPython 3.12 has no such instruction any more


def agree(fn, *args):
    """Captured in one graph, and as in Python."""
    same(minipt2.compile(fn, backend="eager", fullgraph=True)(*args), fn(*args))
    same(minipt2.counters().get("graphs", 0) > 0, True, where="whether a graph was captured")


@pytest.mark.parametrize("n", range(-1, 4))
def test_python_values_decide(n):
    """if, elif, else, not, conditional expressions; both ways."""
    def fn(x, n):
        if n < 0:
            x = x - 1
        elif not n:
            x = x * 5
        elif n == 2 or n == 3:
            x = x / n
        y = x + 1 if n > 1 else x - 1
        while n > 0:
            n -= 1
            y = y * 2
        return y, not n
    agree(fn, torch.ones(2), n)


def test_and_or_give_values():
    """``a or b`` is a value, not a bool."""
    def fn(x, a, b):
        picked = [a or b, a and b, (a or 7) and (b or 9), not (a and b)]
        return [x * (p if isinstance(p, (int, float)) else 100) for p in picked]
    for a in (0, 2, "", None):
        for b in (0, 3):
            agree(fn, torch.ones(1), a, b)


def test_loops_unroll():
    """Over lists, ranges, zips; with else and break."""
    def fn(x, items):
        for k in range(3):
            for a, b in zip(items, items[1:]):
                if a == 99:
                    break
                x = x * a + b + k
            else:
                x = x + 0.5
        return x
    agree(fn, torch.ones(1), [1, 2, 3])
    agree(fn, torch.ones(1), [1, 99, 3])
    agree(fn, torch.ones(1), [])


def test_tensors_decide_nothing():
    """A graph break, with the right result either way; with fullgraph an error."""
    def fn(x):
        if x.sum() > 0:
            return x * 2
        return x - 1
    compiled = minipt2.compile(fn, backend="eager")
    for x in (torch.ones(2), -torch.ones(2)):
        same(compiled(x), fn(x))
    assert minipt2.counters()["breaks"] >= 1
    with pytest.raises(minipt2.Unsupported, match="MP101"):
        minipt2.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))


def test_an_exception_is_no_end():
    """Only StopIteration ends a loop."""
    def items():
        yield 1
        raise ValueError("in the iterator")

    def fn(x):
        total = x
        try:
            for k in items():
                total = total + k
        except ValueError:
            total = total * 100
        return total
    agree(fn, torch.ones(1))
