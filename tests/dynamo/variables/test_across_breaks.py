"""State of every kind carried over a graph break, in the frame itself and in an inlined callee: nothing lost, nothing twice."""
from __future__ import annotations

import collections
import contextlib
import itertools

import pytest
import torch

from minipt2.dynamo import disable

from .checking import check

X = torch.arange(6.0).reshape(2, 3)


@disable
def outside(*values):
    """Real code between two graphs."""
    return len(values)


class Box:
    def __init__(self, value):
        self.value = value
        self.log = []

    def note(self, what):
        self.log.append(what)
        outside(self)
        self.log.append(what + 1)
        return self


def callee(items, x):
    items.append(1)
    outside(items)
    items.append(2)
    return x + len(items)


def nested_list(x, items):
    items.append(0)
    y = callee(items, x)
    items.append(3)
    return y * len(items), items


def containers(x):
    items, table, group = [x], {"a": x}, {1, 2}
    alias = items
    items.append(x + 1)
    queue = collections.deque([1], maxlen=2)
    outside(items)
    alias.append(x + 2)
    table["b"] = items
    group.add(3)
    queue.append(2)
    outside(table)
    return items, alias is items, table["b"] is items, sorted(group), list(queue), len(table)


def loop_with_breaks(x):
    total = x
    for i, (a, b) in enumerate(zip([1, 2, 3], itertools.count(10))):
        total = total + a * b + i
        outside(total)
    return total, [v for v in map(lambda k: k * 2, range(3))]


def partly_consumed(x):
    it = iter([x, x + 1, x + 2])
    numbers = iter(range(5))
    pairs = zip("abc", numbers)
    first = next(it)
    next(pairs)
    outside(first)
    return first + next(it), next(numbers), list(pairs), list(it)


def objects(x):
    box = Box(x)
    other = Box(box)
    box.value = box.value * 2
    box.note(1)
    other.extra = box
    outside(other)
    return box.value + 1, other.extra is other.value, box.log, [type(other).__name__]


def closures(x):
    count = 0
    seen = []

    def bump(by=1):
        nonlocal count
        count += by
        seen.append(count)
        return count

    bump()
    outside(bump)
    bump(by=2)
    k = (lambda v: v + count)(1)
    outside(k)
    return x * bump(), count, seen, k


def in_no_grad(x):
    w = x.clone().requires_grad_()
    with torch.no_grad():
        a = w * 2
        outside(a)
        b = w * 3
    c = w * 4
    return a.requires_grad, b.requires_grad, c.requires_grad, a + b


@contextlib.contextmanager
def recording(log):
    log.append("enter")
    yield log
    log.append("exit")


def user_manager(x):
    log = []
    with recording(log) as inner:
        y = x + len(inner)
        outside(y)
        z = y * 2
    return z, log


def try_finally(x, items):
    try:
        y = x + items["missing"]
    except KeyError:
        outside(items)
        y = x - 1
    finally:
        items["done"] = True
    return y, items


def generator_use(x):
    def produce(n):
        for i in range(n):
            yield x * i

    values = list(produce(3))
    outside(values)
    return sum(produce(2)), values


def text_and_numbers(x):
    name = f"{x.shape[0]}-rows"
    size = x.shape
    sl = slice(0, 1)
    outside(name)
    return x[sl], name.upper(), size[1:], (size, name), range(2)[1], x.dtype


@pytest.mark.parametrize("fn", [containers, loop_with_breaks, partly_consumed, objects, closures, in_no_grad, user_manager, generator_use, text_and_numbers],
                         ids=lambda f: f.__name__)
def test_made_inside(fn):
    check(fn, X, full=False, graphs=None)


@pytest.mark.parametrize("fn,argument", [(nested_list, [5]), (try_finally, {"a": 1})], ids=["nested_list", "try_finally"])
def test_arguments(fn, argument):
    check(fn, X, argument, full=False, graphs=None)


def numbered_pairs(x):
    seen = []
    for i, (a, b) in enumerate(zip([1, 2, 3, 4, 5], (x, x + 1, x + 2, x + 3))):
        outside(a)
        seen.append((i, a, b))
    return seen


def numbered_twice(x):
    inner = enumerate([x, x + 1, x + 2, x + 3], start=5)
    outer = enumerate(inner)
    seen = [next(outer), next(inner)]
    outside(seen)
    seen += [next(outer), next(inner)]
    outside(seen)
    return seen, list(outer), list(inner)


def numbered_calls(x):
    calls = []
    seen = []
    for i, y in enumerate(map(lambda v: calls.append(v) or x * v, (1, 2, 3))):
        outside(y)
        seen.append((i, y))
    return seen, calls


@pytest.mark.parametrize("fn", [numbered_pairs, numbered_twice, numbered_calls], ids=lambda f: f.__name__)
def test_iterators_within_iterators_advance_once(fn):
    check(fn, X, graphs=None, full=False)
