"""Templates raced against the library, with planted times, on a CPU: Triton's interpreter stands in for the GPU."""
from __future__ import annotations

import pytest
import torch

from minipt2 import prims as P
from minipt2 import trace
from minipt2.config import config
from minipt2.inductor import triton_pool
from minipt2.inductor.autotune import choose, templates
from minipt2.inductor.autotune.template_space import MOST, MOST_CUT, PER_SHAPE, around, cuts, expected, launchable, tiles
from minipt2.inductor.codegen.triton_template import Tile
from minipt2.inductor.hardware import REFERENCE, Hw
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from minipt2.inductor.scheduler.templates import Template
from tests.inductor.programs import graph_of
from tests.inductor.templates import check, run, templated

from .interpreter import Compiled, Interpreter, interpreter

__all__ = ["interpreter"]
pytest.importorskip("triton")
LIBRARY = templates.LIBRARY


@pytest.fixture
def raced(monkeypatch, tmp_path, interpreter):
    """``raced(fn, tensors, times)``: the tiles chosen where ways take the planted ``times`` (library or tile -> seconds)."""
    told = []

    def race(fn, tensors, times, ts, **settings):
        seen = []
        monkeypatch.setattr(templates, "tiles", lambda c, hw: ts)
        monkeypatch.setattr(templates._Race, "time", lambda self, c: times[c])

        def chosen(candidates, draft):
            seen.extend(choose(candidates, draft, REFERENCE, torch.device("cpu")))
            return seen
        with config.patch(cache_dir=str(tmp_path), triton_interpret=True, **settings):
            stop = trace.subscribe(lambda stage, name, payload: told.append(payload), "autotune")
            try:
                plan = schedule(lower(graph_of(fn, *tensors)), GPU, chosen)
            finally:
                stop()
        return plan, seen, told
    return race


def layer(x, w, v):
    return P.relu(P.add(P.mm(x, w), P.broadcast_in_dim(v, (x.shape[0], w.shape[1]), (1,))))


SMALL, LARGE = Tile(16, 16, 16), Tile(32, 32, 16)
TENSORS = torch.randn(20, 40), torch.randn(40, 24), torch.randn(24)


def test_the_faster_way_is_taken(raced):
    plan, chosen, told = raced(layer, TENSORS, {LIBRARY: 3.0, SMALL: 2.0, LARGE: 1.0}, [SMALL, LARGE])
    assert chosen == [LARGE] and [type(s) for s in plan.steps] == [Template]
    tried, = told
    assert tried.best == LARGE and tried.microseconds == {LIBRARY: 3e6, SMALL: 2e6, LARGE: 1e6}
    assert str(tried).startswith("mm_relu_add_kernel: 3 tried, 32×32×16, 4 warps, 3 stages 1000000.0 µs (chosen)") and LIBRARY in str(tried)


def test_loops_before_are_part_of_the_race(raced):
    """Bytes that are dequantised are random numbers in the race, and the library's side runs the loops that make its operand."""
    wanted = []

    def fn(x, w, scale):
        return P.mm(x, P.mul(P.convert(w, torch.float32), P.broadcast_in_dim(scale, tuple(w.shape), (1,))))
    watched = Interpreter.agrees
    Interpreter.agrees = lambda self, results: wanted.append(results) or watched(self, results)
    try:
        tensors = torch.randn(20, 40), torch.randint(-9, 9, (40, 24), dtype=torch.int8), torch.rand(24)
        plan, chosen, _ = raced(fn, tensors, {LIBRARY: 3.0, LARGE: 1.0}, [LARGE])
    finally:
        Interpreter.agrees = watched
    assert chosen == [LARGE] and [type(s) for s in plan.steps] == [Template]
    assert all(v.abs().max() > 1 for results in wanted for v in results.values()) and wanted


def test_the_library_stays_where_no_template_is_clearly_faster(raced):
    plan, chosen, told = raced(layer, TENSORS, {LIBRARY: 1.0, LARGE: 0.95}, [LARGE])
    assert chosen == [None] and len(plan.steps) == 2 and told[0].best == LIBRARY


def test_a_wrong_template_never_wins(raced, monkeypatch):
    monkeypatch.setattr(Interpreter, "agrees", lambda self, wanted: False)
    assert raced(layer, TENSORS, {LIBRARY: 1.0, LARGE: 0.1}, [LARGE])[1] == [None]


def test_the_check_sees_what_the_template_stores(raced):
    """The library, the loops after it and the template run on the same memory, and agree."""
    checked = []
    agrees = Interpreter.agrees

    def watched(self, wanted):
        checked.append(agrees(self, wanted))
        assert all(v.abs().max() > 0 for v in wanted.values())
        for name in wanted:  # and a wrong one is seen
            self.buffers[name][-1] += 100
        assert not agrees(self, wanted)
        return checked[-1]
    Interpreter.agrees = watched
    try:
        raced(lambda x, w, v: [layer(x, w, v), P.addmm(v, x, w, 0.5, 2.0)], TENSORS, {LIBRARY: 2.0, LARGE: 1.0}, [LARGE])
        image, weight = torch.randn(2, 8, 6, 5).contiguous(memory_format=torch.channels_last), torch.randn(4, 8, 3, 3)
        raced(lambda x, w: P.relu(P.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)), (image, weight), {LIBRARY: 2.0, LARGE: 1.0}, [LARGE])
    finally:
        Interpreter.agrees = agrees
    assert checked == [True] * 3


def test_results_are_kept(raced, monkeypatch):
    _, first, told = raced(layer, TENSORS, {LIBRARY: 3.0, LARGE: 1.0}, [LARGE])
    templates._chosen.clear()
    _, second, _ = raced(layer, TENSORS, {}, [LARGE])
    assert first == second == [LARGE] and len(told) == 1


def test_layers_of_one_kind_are_raced_once(raced):
    def layers(x, w, v):
        for _ in range(3):
            x = layer(x, w, v)
        return x
    plan, chosen, told = raced(layers, (torch.randn(16, 16), torch.randn(16, 16), torch.randn(16)), {LIBRARY: 3.0, LARGE: 1.0}, [LARGE])
    assert chosen == [LARGE] * 3 and len(told) == 1 and len(plan.steps) == 3


def test_what_is_not_compiled_in_time_is_out(raced, monkeypatch):
    monkeypatch.setattr(triton_pool, "submit", lambda programs, capability: [Compiled(late="MBLOCK: tl.constexpr = 32" in p["text"]) for p in programs])
    _, chosen, told = raced(layer, TENSORS, {LIBRARY: 3.0, SMALL: 2.0}, [SMALL, LARGE])
    assert chosen == [SMALL] and "32×32×16, 4 warps, 3 stages is out, not compiled in time" in told[0]
    templates._chosen.clear()  # and what won without it is not kept: another process may have more time
    monkeypatch.setattr(triton_pool, "submit", lambda programs, capability: [Compiled() for _ in programs])
    assert raced(layer, TENSORS, {LIBRARY: 3.0, SMALL: 2.0, LARGE: 1.0}, [SMALL, LARGE])[1] == [LARGE]


def test_time_runs_out(raced, monkeypatch):
    monkeypatch.setattr(templates, "RACING", -1.0)
    assert raced(layer, TENSORS, {}, [LARGE])[1] == [None]


def test_what_took_long_to_compile_is_raced_all_the_same(raced, monkeypatch):
    monkeypatch.setattr(templates, "COMPILING", -1.0)
    assert raced(layer, TENSORS, {LIBRARY: 3.0, LARGE: 1.0}, [LARGE])[1] == [LARGE]


def test_the_likely_tiles_of_all_products_are_compiled_first(raced, monkeypatch):
    order = []

    def submit(programs, capability):
        order.extend("MBLOCK: tl.constexpr = 32" in p["text"] for p in programs if "MBLOCK" in p["text"])
        return [Compiled() for _ in programs]
    monkeypatch.setattr(triton_pool, "submit", submit)
    raced(lambda x, w, v: P.exp(P.mm(layer(x, w, v), P.permute(w, [1, 0]))), TENSORS, {LIBRARY: 1.0, SMALL: 2.0, LARGE: 2.0}, [LARGE, SMALL])
    assert order == [True, True, False, False]


def test_descent_goes_on_from_the_winner(raced, monkeypatch):
    monkeypatch.setattr(templates, "BUDGET", 60.0)
    times = {LIBRARY: 9.0}

    class Distance(dict):
        def __missing__(self, t):
            return 1.0 + abs(t.m - 32) / 16 + abs(t.n - 32) / 16 + abs(t.warps - 2) + abs(t.stages - 2)
    _, chosen, _ = raced(layer, TENSORS, Distance(times), [SMALL], coordinate_descent=True)
    assert chosen[0].m == 32 and chosen[0].n == 32 and chosen[0].stages == 2


# ------------------------------------------------------------------ the space
def contraction(m, n, k, dtype=torch.bfloat16, batch=1):
    """The contraction of a product of these sizes."""
    a, b = torch.empty(batch, m, k, dtype=dtype, device="meta"), torch.empty(batch, k, n, dtype=dtype, device="meta")
    found = []
    schedule(lower(graph_of(P.bmm, a, b)), GPU, lambda cs, _: found.extend(cs) or [None] * len(cs))
    return found[0].step.contraction


@pytest.mark.parametrize("sizes", [(2048, 768, 3072), (1, 1000, 512), (8192, 50257, 768), (37, 5, 9), (128, 64, 64)])
def test_tiles_launch_and_are_few(sizes):
    c = contraction(*sizes)
    ts = tiles(c, REFERENCE)
    assert 0 < len(ts) <= MOST and len(set(ts)) == len(ts) and all(launchable(t, c, REFERENCE) for t in ts)
    shapes = [(t.m, t.n, t.split > 1) for t in ts]
    assert max(shapes.count(s) for s in shapes) <= PER_SHAPE and sum(t.split > 1 for t in ts) <= MOST // 2
    times = [expected(t, c, REFERENCE) for t in ts]
    assert times == sorted(times)


def test_shared_memory_bounds_the_space():
    c, small = contraction(4096, 4096, 4096), Hw(shared=48 << 10, capability=75)
    assert all(t.stages * (t.m + t.n) * t.k * 2 < 48 << 10 for t in tiles(c, small))
    assert any(t.stages * (t.m + t.n) * t.k * 2 > 48 << 10 for t in tiles(c, REFERENCE))


def test_few_tiles_share_their_summands():
    parts = lambda *sizes, **more: {t.split for t in tiles(contraction(*sizes, **more), REFERENCE)}
    assert max(parts(16, 768, 3072)) > 1 and 1 in parts(16, 768, 3072)
    assert parts(8192, 3072, 768) == {1}  # every SM has a tile of its own
    assert parts(16, 768, 128) == {1}  # nothing to share
    assert parts(16, 64, 3072, batch=4) == {1}
    assert all(t.split * 4 * 3072 * 3072 <= REFERENCE.cache // 2 for t in tiles(contraction(3072, 3072, 1 << 15), REFERENCE) if t.split > 1)


def test_parts_are_raced(raced):
    shared = Tile(16, 16, 16, split=2)
    plan, chosen, told = raced(layer, TENSORS, {LIBRARY: 3.0, SMALL: 2.0, shared: 1.0}, [SMALL, shared])
    assert chosen == [shared] and "16×16×16, 4 warps, 3 stages, in 2 parts 1000000.0 µs (chosen)" in str(told[0])
    templates._chosen.clear()
    assert raced(layer, TENSORS, {}, [SMALL, shared])[1] == [shared]


def test_where_float32_is_cut_is_kept(raced):
    before, cut = Tile(16, 16, 16, cut="registers"), Tile(16, 16, 16, cut="rhs")
    _, chosen, told = raced(layer, TENSORS, {LIBRARY: 3.0, before: 2.0, cut: 1.0}, [before, cut])
    assert chosen == [cut] and "cut: rhs 1000000.0 µs (chosen)" in str(told[0])
    templates._chosen.clear()
    assert raced(layer, TENSORS, {}, [before, cut])[1] == [cut]


def test_what_beat_the_library_without_tf32_is_raced_again_where_that_is_allowed(raced):
    before = torch.get_float32_matmul_precision()
    cut = Tile(16, 16, 16, cut="rhs")
    try:
        torch.set_float32_matmul_precision("highest")
        assert raced(layer, TENSORS, {LIBRARY: 3.0, cut: 1.0}, [cut])[1] == [cut]
        torch.set_float32_matmul_precision("high")
        assert raced(layer, TENSORS, {LIBRARY: 0.5, cut: 1.0}, [cut])[1] == [None]
    finally:
        torch.set_float32_matmul_precision(before)


def test_float32_is_multiplied_in_pieces_or_left_to_the_library():
    """The library follows torch's setting at every call: where that allows TF32, there is no faster template of such accuracy."""
    c, before = contraction(2048, 768, 3072, torch.float32), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        ts = tiles(c, REFERENCE)
        assert cuts(c, REFERENCE) == ["registers", "rhs"] and cuts(contraction(2048, 50257, 768, torch.float32), REFERENCE) == ["registers", "lhs"]
        assert 0 < len(ts) <= MOST_CUT and all(t.cut in cuts(c, REFERENCE) and launchable(t, c, REFERENCE) for t in ts)
        assert not tiles(c, Hw(capability=75))
        assert all(not t.cut for t in tiles(contraction(2048, 768, 3072), REFERENCE))
        torch.set_float32_matmul_precision("high")
        assert not tiles(c, REFERENCE)
    finally:
        torch.set_float32_matmul_precision(before)


def test_neighbours_differ_in_one_coordinate():
    c, t = contraction(2048, 768, 768), Tile(128, 128, 64, 8, 3)
    near = around(t, c, REFERENCE)
    assert near and t not in near and all(launchable(n, c, REFERENCE) for n in near)
    assert all(sum(vars(n)[f] != vars(t)[f] for f in vars(t)) == 1 for n in near)


def test_templates_of_a_schedule_run():
    plan, source = check(layer, *TENSORS)
    assert run(plan, source, TENSORS)[0].shape == (20, 24) and templated(layer, *TENSORS)[1].text == source.text
