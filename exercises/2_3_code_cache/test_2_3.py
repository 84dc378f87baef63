import random

import pytest

from minipt2.course.checks import same
from minipt2.dynamo.cache import CodeCache, Entry
from minipt2.dynamo.guard_kinds import Guard
from minipt2.dynamo.guards import compile_guards
from minipt2.dynamo.source import LocalSource


def codes(n):
    return [compile(str(k), f"<code {k}>", "eval") for k in range(n)]


def cache_of(n, limit=8):
    """A cache with entries for n = 0, 1, ...; the last one added is tried first."""
    cache = CodeCache(limit)
    for k, code in enumerate(codes(n)):
        cache.add(Entry(compile_guards([Guard(LocalSource("n"), "CONST", k)]), code, payload=k))
    return cache


def order(cache):
    return [entry.payload for entry in cache]


def test_a_hit_moves_to_the_front():
    """What was used last is tried first."""
    cache = cache_of(3)
    found = cache.lookup({"n": 0})
    same(getattr(found, "co_filename", None), "<code 0>")
    same(order(cache), [0, 2, 1], where="order after a hit of entry 0")


def test_the_rest_keeps_its_order():
    """Only the entry that was hit moves."""
    cache = cache_of(5)
    cache.lookup({"n": 1})
    same(order(cache), [1, 4, 3, 2, 0])
    cache.lookup({"n": 1})
    same(order(cache), [1, 4, 3, 2, 0])


def test_a_miss_changes_nothing():
    """No entry for the call: None, and the order stays."""
    cache = cache_of(3)
    assert cache.lookup({"n": 7}) is None
    same(order(cache), [2, 1, 0])


@pytest.mark.parametrize("k", range(8))
def test_every_entry_can_be_hit(k):
    """A full cache finds all of its entries."""
    cache = cache_of(8)
    found = cache.lookup({"n": k})
    assert found is not None, f"the entry for n = {k} was not found"
    same(found.co_filename, f"<code {k}>")


def test_beyond_the_limit_nothing_is_kept():
    """After eight entries a ninth call misses, and goes on missing: the frame runs eagerly."""
    cache = cache_of(9)
    assert cache.lookup({"n": 8}) is None
    same(len(cache.entries), 8)


def test_agrees_with_a_model():
    """Against a plain list for five hundred random calls."""
    rng, cache, model = random.Random(0), cache_of(6), [5, 4, 3, 2, 1, 0]
    for _ in range(500):
        n = rng.randrange(8)
        found = cache.lookup({"n": n})
        assert (found is not None) == (n in model)
        if n in model:
            model.remove(n)
            model.insert(0, n)
        same(order(cache), model)
