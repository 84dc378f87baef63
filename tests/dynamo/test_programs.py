"""Random programs with forced graph breaks give the same results, exceptions and mutated state as eager."""
from __future__ import annotations

import warnings

import pytest

from minipt2 import trace

from programs import compare


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_programs(first):
    trace.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # programs may run into the recompile limit
        for seed in range(first, first + 10):
            assert compare(seed) is None, f"seed {seed}"
    assert trace.counters()["skipped_frames"] == 0
