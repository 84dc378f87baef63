import torch

import minipt2
from minipt2 import trace
from minipt2.course.checks import same
from minipt2.dynamo.cache import CodeCache, Entry, why_missed
from minipt2.dynamo.guard_kinds import Guard
from minipt2.dynamo.guards import compile_guards
from minipt2.dynamo.source import LocalSource


def cache_for(*values):
    """Entries for n and m; the last is tried first."""
    cache = CodeCache(8)
    for n, m in values:
        guards = [Guard(LocalSource("n"), "CONST", n), Guard(LocalSource("m"), "CONST", m)]
        cache.add(Entry(compile_guards(guards), compile("0", "<c>", "eval")))
    return cache


def test_says_source_expected_and_found():
    """All three of them, for the guard that failed first."""
    reason = why_missed(cache_for((1, 2)), {"n": 5, "m": 6})[0]
    for part in ("n", "1", "found", "5"):
        assert part in reason, f"{part!r} is missing in {reason!r}"
    assert "6" not in reason, "m failed too, but n failed first"


def test_in_the_order_tried():
    """A reason for each entry, the one tried first in front."""
    reasons = why_missed(cache_for((1, 0), (2, 0), (3, 0)), {"n": 9, "m": 0})
    same(list(reasons), [2, 1, 0], where="versions that have a reason")
    for version, reason in reasons.items():
        assert str(version + 1) in reason, f"version {version} was made for n = {version + 1}: {reasons}"


def test_an_entry_that_holds_gives_no_reason():
    """Only failing entries have one."""
    reasons = why_missed(cache_for((1, 0), (2, 0)), {"n": 2, "m": 0})
    same(list(reasons), [0])


def test_an_empty_cache():
    """Nothing was tried, so there is nothing to say."""
    same(why_missed(CodeCache(8), {}), {})


def test_the_compiler_reports_it():
    """A recompilation of a real function names the argument that changed."""
    seen = []
    fn = minipt2.compile(lambda x, n: x * n, backend="eager")
    fn(torch.ones(2), 2)
    stop = trace.subscribe(lambda stage, name, payload: seen.append((name, payload)), "recompiles")
    try:
        fn(torch.ones(2), 3)
    finally:
        stop()
    assert any("n" in str(payload) and "3" in str(payload) for _, payload in seen), seen
