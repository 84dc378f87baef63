"""The attention template in the race, and its space, on a CPU: Triton's interpreter stands in for the GPU."""
from __future__ import annotations

import pytest
import torch

from minipt2 import trace
from minipt2.config import config
from minipt2.inductor.autotune import choose, templates
from minipt2.inductor.autotune.attention import MOST, PER_SHAPE, around, expected, launchable, tiles
from minipt2.inductor.codegen.triton_attention import AttentionTile
from minipt2.inductor.hardware import REFERENCE, Hw
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from minipt2.inductor.scheduler.templates import Template
from tests.inductor.attention import graph_of, heads

from .interpreter import Interpreter, interpreter

__all__ = ["interpreter"]
pytest.importorskip("triton")
LIBRARY = templates.LIBRARY
CALL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
SMALL, LARGE = AttentionTile(16, 16), AttentionTile(32, 16)


@pytest.fixture
def raced(monkeypatch, tmp_path, interpreter):
    """``raced(graph, times)``: the plan, the tiles chosen where ways take the planted ``times``, and what was told."""
    def race(graph, times):
        seen, told = [], []
        monkeypatch.setattr(templates, "tiles", lambda c, hw: [t for t in times if t != LIBRARY] or [LARGE])
        monkeypatch.setattr(templates._Race, "time", lambda self, c: times[c])

        def chosen(candidates, draft):
            seen.extend(choose(candidates, draft, REFERENCE, torch.device("cpu")))
            return seen
        with config.patch(cache_dir=str(tmp_path), triton_interpret=True):
            stop = trace.subscribe(lambda stage, name, payload: told.append(payload), "autotune")
            try:
                plan = schedule(lower(graph), GPU, chosen)
            finally:
                stop()
        return plan, seen, told
    return race


def masked():
    q, k, v = heads(2, 2, 20, 16), heads(2, 2, 24, 16), heads(2, 2, 24, 16)
    return graph_of(CALL, q, k, v, 0.0, False, attn_mask=torch.zeros(2, 1, 1, 24).bfloat16())


def test_the_faster_way_is_taken_and_kept_on_disk(raced):
    plan, first, told = raced(masked(), {LIBRARY: 3.0, SMALL: 2.0, LARGE: 1.0})
    assert first == [LARGE] and [type(s) for s in plan.steps] == [Template] and told[0].microseconds[LIBRARY] == 3e6
    templates._chosen.clear()
    _, second, told = raced(masked(), {SMALL: 2.0, LARGE: 1.0})
    assert second == [LARGE] and not told


def test_the_library_stays_where_the_template_is_not_clearly_faster(raced):
    plan, chosen, _ = raced(masked(), {LIBRARY: 1.0, LARGE: 0.95})
    assert chosen == [None] and not plan.kernels


def test_the_check_sees_what_the_template_stores(raced, monkeypatch):
    """The library's call, mask and all, and the template run on the same memory."""
    checked = []
    agrees = Interpreter.agrees

    def watched(self, wanted):
        checked.append((agrees(self, wanted), all(v.abs().max() > 0 for v in wanted.values()) and len(wanted) == 1))
        return True
    monkeypatch.setattr(Interpreter, "agrees", watched)
    raced(masked(), {LIBRARY: 2.0, LARGE: 1.0})
    raced(graph_of(CALL, *[heads(1, 2, 20, 16)] * 3, 0.0, True), {LIBRARY: 2.0, SMALL: 1.0})
    assert checked == [(True, True)] * 2


# ------------------------------------------------------------------ the space
def attention(b, h, queries, keys, depth, causal=False):
    q, k = (torch.empty(b, n, h, depth, dtype=torch.bfloat16, device="meta").transpose(1, 2) for n in (queries, keys))
    found = []
    schedule(lower(graph_of(torch.ops.aten._scaled_dot_product_flash_attention.default, q, k, k, 0.0, causal)), GPU,
             lambda cs, _: found.extend(cs) or [None] * len(cs))
    return found[0].step.contraction


SIZES = [(8, 12, 1024, 1024, 64, True), (16, 12, 512, 512, 64, False), (32, 12, 197, 197, 64, False), (4, 16, 4096, 4096, 128, True),
         (32, 32, 1, 1000, 128, False), (2, 4, 100, 7, 16, False), (1, 8, 3000, 3000, 256, False)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_tiles_launch_and_are_few(sizes):
    a = attention(*sizes)
    ts = tiles(a, REFERENCE)
    assert 0 < len(ts) <= MOST and len(set(ts)) == len(ts) and all(launchable(t, a, REFERENCE) for t in ts)
    shapes = [(t.m, t.r) for t in ts]
    assert max(shapes.count(s) for s in shapes) <= PER_SHAPE
    times = [expected(t, a, REFERENCE) for t in ts]
    assert times == sorted(times)


def test_blocks_are_no_larger_than_what_there_is():
    assert {t.m for t in tiles(attention(32, 32, 1, 1000, 128), REFERENCE)} == {16}
    assert {t.r for t in tiles(attention(2, 4, 100, 7, 16), REFERENCE)} == {16}


def test_shared_memory_and_registers_bound_the_space():
    a, small = attention(4, 16, 4096, 4096, 128), Hw(shared=48 << 10, capability=75)
    bytes_of = lambda t: (t.m + 2 * t.stages * t.r) * 128 * 2
    assert all(bytes_of(t) < 48 << 10 for t in tiles(a, small)) and any(bytes_of(t) > 48 << 10 for t in tiles(a, REFERENCE))
    assert all(t.m * 128 / (32 * t.warps) < 255 for t in tiles(a, REFERENCE))


def test_neighbours_differ_in_one_coordinate():
    a, t = attention(8, 12, 1024, 1024, 64), AttentionTile(128, 64, 8, 3)
    near = around(t, a, REFERENCE)
    assert near and t not in near and all(launchable(n, a, REFERENCE) for n in near)
    assert all(sum(vars(n)[f] != vars(t)[f] for f in vars(t)) == 1 for n in near)
