"""The functions of ``itertools`` on variables: a table from the real function to a handler.

Upstream: ``torch/_dynamo/variables/iter.py`` and ``torch/_dynamo/polyfills/itertools.py``.
"""
from __future__ import annotations

import itertools
from typing import Any, Callable

from .base import Variable
from .containers import const, constants, is_none, new, none
from .iterators import FilterIterator, ItemsIterator, items_of, iter_of, next_or_none
from .itertools_iterators import ChainIterator, CountIterator, CycleIterator, IsliceIterator, RepeatIterator
from .lists import TupleVariable

HANDLERS: dict[Any, Callable] = {}


def handles(*functions: Any):
    def register(handler: Callable) -> Callable:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


def over(tx, items: list[Variable]) -> Variable:
    return new(tx, ItemsIterator(items))


def tuples(tx, groups) -> Variable:
    return over(tx, [new(tx, TupleVariable(group)) for group in groups])


@handles(itertools.chain)
def chain(tx, *iterables):
    return new(tx, ChainIterator(over(tx, list(iterables))))


def chain_from_iterable(tx, iterables):
    return new(tx, ChainIterator(iter_of(tx, iterables)))


@handles(itertools.count)
def count(tx, start=None, step=None):
    return new(tx, CountIterator(start or const(0), step or const(1)))


@handles(itertools.repeat)
def repeat(tx, object, times=None):
    return new(tx, RepeatIterator(object, None if times is None else times.as_python_constant()))


@handles(itertools.cycle)
def cycle(tx, iterable):
    return new(tx, CycleIterator(items_of(tx, iterable)))


@handles(itertools.islice)
def islice(tx, iterable, *bounds):
    span = slice(*constants(*bounds))
    start, step = span.start or 0, span.step or 1
    return new(tx, IsliceIterator(iter_of(tx, iterable), (start, span.stop, step)))


@handles(itertools.filterfalse)
def filterfalse(tx, fn, iterable):
    return new(tx, FilterIterator(fn, iter_of(tx, iterable), keep_false=True))


@handles(itertools.starmap)
def starmap(tx, fn, iterable):
    return over(tx, [fn.call(tx, items_of(tx, args), {}) for args in items_of(tx, iterable)])


@handles(itertools.product)
def product(tx, *iterables, repeat=None):
    pools = [items_of(tx, it) for it in iterables]
    return tuples(tx, itertools.product(*pools, repeat=1 if repeat is None else repeat.as_python_constant()))


@handles(itertools.permutations)
def permutations(tx, iterable, r=None):
    return tuples(tx, itertools.permutations(items_of(tx, iterable), None if r is None else r.as_python_constant()))


@handles(itertools.combinations)
def combinations(tx, iterable, r):
    return tuples(tx, itertools.combinations(items_of(tx, iterable), r.as_python_constant()))


@handles(itertools.combinations_with_replacement)
def combinations_with_replacement(tx, iterable, r):
    return tuples(tx, itertools.combinations_with_replacement(items_of(tx, iterable), r.as_python_constant()))


@handles(itertools.pairwise)
def pairwise(tx, iterable):
    return tuples(tx, itertools.pairwise(items_of(tx, iterable)))


if hasattr(itertools, "batched"):  # CPython 3.12

    @handles(itertools.batched)
    def batched(tx, iterable, n):
        items, size = items_of(tx, iterable), n.as_python_constant()
        return tuples(tx, [items[i:i + size] for i in range(0, len(items), size)])


@handles(itertools.zip_longest)
def zip_longest(tx, *iterables, fillvalue=None):
    return tuples(tx, itertools.zip_longest(*(items_of(tx, it) for it in iterables), fillvalue=fillvalue or none()))


@handles(itertools.accumulate)
def accumulate(tx, iterable, func=None, *, initial=None):
    from .builtin import binary_op

    combine = (lambda a, b: binary_op(tx, "add", a, b)) if is_none(func) else (
        lambda a, b: func.call(tx, [a, b], {}))
    start = {} if is_none(initial) else {"initial": initial}
    return over(tx, list(itertools.accumulate(items_of(tx, iterable), combine, **start)))


@handles(itertools.compress)
def compress(tx, data, selectors):
    keep = [s.truth(tx) for s in items_of(tx, selectors)]
    return over(tx, list(itertools.compress(items_of(tx, data), keep)))


@handles(itertools.takewhile)
def takewhile(tx, predicate, iterable):
    iterator, items = iter_of(tx, iterable), []
    while (item := next_or_none(tx, iterator)) is not None and predicate.call(tx, [item], {}).truth(tx):
        items.append(item)
    return over(tx, items)


@handles(itertools.dropwhile)
def dropwhile(tx, predicate, iterable):
    items = items_of(tx, iterable)
    first = next((i for i, item in enumerate(items) if not predicate.call(tx, [item], {}).truth(tx)), len(items))
    return over(tx, items[first:])


@handles(itertools.groupby)
def groupby(tx, iterable, key=None):
    from .builtin import binary_op

    groups: list[tuple[Variable, list[Variable]]] = []
    for item in items_of(tx, iterable):
        k = item if is_none(key) else key.call(tx, [item], {})
        if groups and binary_op(tx, "eq", groups[-1][0], k).truth(tx):
            groups[-1][1].append(item)
        else:
            groups.append((k, [item]))
    return tuples(tx, [(k, over(tx, items)) for k, items in groups])


@handles(itertools.tee)
def tee(tx, iterable, n=None):
    items = items_of(tx, iterable)
    copies = [over(tx, items) for _ in range(2 if n is None else n.as_python_constant())]
    return new(tx, TupleVariable(copies))
