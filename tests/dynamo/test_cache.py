"""The entries of one code object: order, limit, reasons of a miss, entries that die."""
import torch

from minipt2.dynamo.cache import CodeCache, Entry, why_missed
from minipt2.dynamo.guards import Guard, compile_guards
from minipt2.dynamo.source import LocalSource

N = LocalSource("n")


def entry(n):
    code = (lambda: None).__code__.replace(co_name=f"for_{n}")
    return Entry(compile_guards([Guard(N, "CONST", n)]), code)


def test_hits_move_to_the_front():
    cache = CodeCache()
    for n in range(3):
        assert cache.add(entry(n))
    assert [e.code.co_name for e in cache] == ["for_2", "for_1", "for_0"]
    assert cache.lookup({"n": 0}).co_name == "for_0"
    assert [e.code.co_name for e in cache] == ["for_0", "for_2", "for_1"]
    assert cache.lookup({"n": 7}) is None and cache.lookup({}) is None


def test_eager_after_the_limit():
    cache = CodeCache(limit=8)
    assert [cache.add(entry(n)) for n in range(9)] == [True] * 8 + [False]
    assert cache.full and cache.lookup({"n": 7}) is not None and cache.lookup({"n": 8}) is None


def test_reasons_name_the_first_failing_guard_of_every_entry():
    cache = CodeCache()
    for n in (1, 2):
        cache.add(Entry(compile_guards([Guard(N, "TYPE", int), Guard(N, "CONST", n)]), entry(n).code))
    assert why_missed(cache, {"n": 3}) == {1: "L['n']: value 2, found 3", 0: "L['n']: value 1, found 3"}
    assert why_missed(cache, {"n": "a"}) == dict.fromkeys((1, 0), "L['n']: type builtins.int, found builtins.str")


def test_the_guard_that_keeps_failing_is_named():
    cache = CodeCache()
    cache.add(entry(1))
    for n in range(2, 6):
        cache.record_miss({"n": n})
    cache.record_miss({})
    assert cache.often() == "L['n']: value 1"


def test_dead_entries_make_room():
    cache = CodeCache(limit=1)
    x = torch.zeros(1)
    cache.add(Entry(compile_guards([Guard(N, "ID", x)]), entry(0).code))
    assert cache.full
    del x
    assert not cache.full and cache.add(entry(1))
