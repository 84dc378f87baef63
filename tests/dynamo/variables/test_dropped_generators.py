"""When the ``finally`` of a generator that is dropped half-way runs: at the same place of the program as in eager."""
from __future__ import annotations

import collections.abc
import itertools

import pytest
import torch

import minipt2

from tests.compare import assert_same

log: list[str] = []


def doubled(values):
    try:
        for value in values:
            yield value * 2
    finally:
        log.append("closed")


def until_the_end_of_the_function(x):
    made = doubled([x, x + 1])
    first = next(made)
    log.append("last line")
    return first


def until_another_value(x):
    made = doubled([x, x + 1])
    first = next(made)
    made = None
    log.append("after")
    return first


def never_named(x):
    first = next(doubled([x, x]))
    log.append("after")
    return first


def in_a_list(x):
    held = [doubled([x, x])]
    first = next(held[0])
    held.clear()
    log.append("after")
    return first


def a_loop_left(x):
    for value in doubled([x, x + 1]):
        x = x + value
        break
    log.append("after")
    return x


def in_zip(x):
    for value, _ in zip(doubled([x, x, x]), [1]):
        x = x + value
    log.append("after")
    return x


def in_islice_with_a_break(x):
    for value in itertools.islice(doubled([x, x, x]), 2):
        x = x + value
        print(end="")
    log.append("after")
    return x


def in_enumerate_with_a_break(x):
    for k, value in enumerate(doubled([x, x, x])):
        print(end="")
        x = x + value
        if k == 1:
            break
    log.append("after")
    return x


def started_after_a_break(x):
    made = doubled([x, x])
    print(end="")
    first = next(made)
    del made
    log.append("after")
    return first


def in_a_dict_over_a_break(x):
    held = {"made": doubled([x, x])}
    print(end="")
    first = next(held["made"])
    held.clear()
    log.append("after")
    return first


def consumed(x):
    total = sum(doubled([x, x]))
    log.append("after")
    return total


PROGRAMS = [until_the_end_of_the_function, until_another_value, never_named, in_a_list, a_loop_left, in_zip, in_islice_with_a_break,
            in_enumerate_with_a_break, started_after_a_break, in_a_dict_over_a_break, consumed]


def run(fn, x):
    log.clear()
    return fn(x), list(log)


@pytest.mark.parametrize("program", PROGRAMS)
def test_cleans_up_when_eager_does(program):
    fn = minipt2.compile(program, backend="eager")
    for x in (torch.ones(3), torch.zeros(3)):
        assert_same(run(program, x), run(fn, x))


def test_one_that_is_consumed_is_in_the_graph():
    assert_same(run(consumed, torch.ones(3)), run(minipt2.compile(consumed, backend="eager", fullgraph=True), torch.ones(3)))


class Table(collections.abc.Sequence):
    """Its ``__iter__`` is a generator with ``except IndexError`` around the ``yield``."""

    def __len__(self):
        return 3

    def __getitem__(self, k):
        if k > 2:
            raise IndexError(k)
        return k + 1


def with_several_clauses(values):
    try:
        for value in values:
            yield value * 2
    except (ValueError, KeyError):
        log.append("never")
    except ArithmeticError:
        log.append("never either")


def first_of_a_sequence(x):
    return x * next(iter(TABLE)) + any(k > 1 for k in TABLE)


def left_between_clauses(x):
    for value in with_several_clauses([x, x + 1]):
        break
    return value


def catching_everything(values):
    try:
        yield from values
    except BaseException:
        log.append("caught")
        raise


def left_where_everything_is_caught(x):
    for value in catching_everything([x, x + 1]):
        break
    log.append("after")
    return value


TABLE = Table()


@pytest.mark.parametrize("program", [first_of_a_sequence, left_between_clauses])
def test_handlers_of_other_exceptions_are_no_code_to_run(program):
    assert_same(run(program, torch.ones(3)), run(minipt2.compile(program, backend="eager", fullgraph=True), torch.ones(3)))


def test_a_handler_of_everything_is():
    fn = minipt2.compile(left_where_everything_is_caught, backend="eager")
    assert_same(run(left_where_everything_is_caught, torch.ones(3)), run(fn, torch.ones(3)))
