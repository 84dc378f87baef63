"""Templates for contractions without a GPU: against float64 under Triton's interpreter, as machine code, and as text."""
import importlib
from dataclasses import asdict

import pytest
import torch

from minipt2 import models
from minipt2 import prims as P
from minipt2.config import config
from minipt2.inductor import triton_pool
from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.codegen.triton_template import Tile
from minipt2.inductor.hardware import REFERENCE, TINY
from minipt2.inductor.ir import Extern
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from minipt2.inductor.scheduler.templates import Template
from tests.compare import check_module
from tests.inductor.codegen.written import check_golden, check_machine_code
from tests.inductor.programs import graph_of
from tests.inductor.templates import check, run, templated

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
BANDS = Tile(16, 16, 32, group=2)


@pytest.fixture(autouse=True)
def interpreted():
    torch.manual_seed(0)
    with config.patch(triton_interpret=True):
        yield


def gelu(x):
    return P.mul(P.mul(x, 0.5), P.add(P.erf(P.mul(x, 0.7071067811865476)), 1.0))


def row(v, like):
    return P.broadcast_in_dim(v, tuple(like.shape), (len(like.shape) - 1,))


def layer(x, w, v):
    c = P.mm(x, w)
    return gelu(P.add(c, row(v, c)))


def linear(m, n, k, dtype=torch.float32):
    return torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.randn(n).to(dtype)


# ------------------------------------------------------------------ products
@pytest.mark.parametrize("tile", [Tile(16, 16, 16), Tile(64, 32, 64), BANDS], ids=str)
@pytest.mark.parametrize("sizes", [(70, 90, 50), (1, 33, 7), (65, 1, 16), (64, 64, 64), (100, 16, 1), (1, 1, 1)], ids=str)
def test_products_of_odd_sizes(sizes, tile):
    check(layer, *linear(*sizes), tile=tile)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_added_up_in_float32(dtype):
    plan, source = check(layer, *linear(33, 40, 300, dtype))
    assert "acc = tl.zeros([MBLOCK, NBLOCK], tl.float32)" in source.text
    ones = torch.full((1, 6000), 1.0, dtype=dtype)
    found, = run(*templated(P.mm, ones, ones.t().contiguous()), [ones, ones.t().contiguous()])
    assert abs(found.item() - 6000) <= 6000 * torch.finfo(dtype).eps  # added up in a half type it would stand still at 2048


VIEWS = {
    "transposed": lambda t: t.t().contiguous().t(),
    "every other row": lambda t: torch.randn(2 * t.shape[0], t.shape[1])[::2],
    "every other column": lambda t: torch.randn(t.shape[0], 2 * t.shape[1])[:, 1::2],
    "one row for all": lambda t: t[:1].expand(t.shape),
    "one number for all": lambda t: t[:1, :1].expand(t.shape),
}


@pytest.mark.parametrize("a", VIEWS)
@pytest.mark.parametrize("b", VIEWS)
def test_operands_in_any_order(a, b):
    x, w, v = linear(37, 45, 29)
    check(layer, VIEWS[a](x), VIEWS[b](w), v)


def test_views_taken_inside_the_graph():
    def parts(x, w):
        return P.mm(P.slice(x, [3, 2], [36, 27], [1, 1]), P.permute(w, [1, 0]))
    check(parts, torch.randn(40, 30), torch.randn(18, 25))


def test_batches():
    check(P.bmm, torch.randn(3, 17, 20), torch.randn(3, 20, 33))
    check(P.bmm, torch.randn(1, 20).expand(4, 5, 20), torch.randn(4, 33, 20).transpose(1, 2))
    check(lambda a, b: P.mul(P.bmm(a, b), 2.0), torch.randn(3, 1, 20), torch.randn(20, 33).expand(3, 20, 33))
    check(lambda c, a, b: P.baddbmm(c, a, b, 0.5, 3.0), torch.randn(3, 17, 33), torch.randn(3, 17, 20), torch.randn(3, 20, 33))


@pytest.mark.parametrize("bias", [(24,), (20, 24), (1, 24), (20, 1), (1,), ()], ids=str)
def test_addmm(bias):
    v = torch.randn(bias)
    check(lambda v, a, b: P.addmm(v, a, b, 1, 1), v, torch.randn(20, 30), torch.randn(30, 24))
    check(lambda v, a, b: P.relu(P.addmm(v, a, b, 0.5, -2.0)), v, torch.randn(20, 30), torch.randn(30, 24))


def test_a_bias_that_counts_for_nothing_is_not_read():
    nan = torch.full((24,), float("nan"))
    plan, source = templated(lambda v, a, b: P.addmm(v, a, b, 0, 1), nan, torch.randn(20, 30), torch.randn(30, 24))
    assert run(plan, source, [nan, torch.randn(20, 30), torch.randn(30, 24)])[0].isfinite().all()


def test_nothing_to_add_up_is_left_to_the_library():
    check(P.mm, torch.randn(5, 0), torch.randn(0, 7), templates=0)
    check(P.mm, torch.randn(0, 5), torch.randn(5, 7), templates=0)


def test_infinite_operands_beyond_the_edges_do_no_harm():
    """Blocks stick out over k: what lies in memory behind the operands is not multiplied."""
    a, b = torch.full((40, 64), float("inf")), torch.full((64, 40), float("nan"))
    a[:20, :30], b[:30, :24] = torch.randn(20, 30), torch.randn(30, 24)
    check(lambda a, b: P.mm(P.slice(a, [0, 0], [20, 30], [1, 1]), P.slice(b, [0, 0], [30, 24], [1, 1])), a, b)


# ------------------------------------------------------------------ summands shared by programs
@pytest.mark.parametrize("tile", [Tile(16, 16, 16, split=2), Tile(16, 32, 32, split=3), Tile(32, 16, 16, split=16),
                                  Tile(16, 16, 16, group=2, split=4)], ids=str)
@pytest.mark.parametrize("sizes", [(20, 40, 300), (1, 33, 70), (16, 32, 256), (65, 50, 17)], ids=str)
def test_products_in_parts(sizes, tile):
    """Also where the last parts are short, or empty."""
    plan, source = check(layer, *linear(*sizes), tile=tile)
    launch, = source.launches
    assert [c.grid[1] for c in launch.calls] == [tile.split, 1] and sum(launch.work.values()) == 4 * tile.split * sizes[0] * sizes[1]
    assert "relu" not in source.programs[0].text.split("KBLOCK")[1] and len(plan.steps) == 1


def test_parts_are_kept_in_float32():
    plan, source = check(layer, *linear(20, 40, 300, torch.bfloat16), tile=Tile(16, 32, 32, split=4))
    assert source.programs[0].signature[-1] == "*fp32" and "bfloat16" not in source.programs[0].text


def test_convolution_in_parts():
    for split in (2, 4, 16):
        for channels in (24, 3):
            x, w = torch.randn(2, channels, 9, 11).contiguous(memory_format=torch.channels_last), torch.randn(40, channels, 3, 3)
            check(lambda x, w: P.relu(P.convolution(x, w, None, (2, 1), (1, 1), (1, 1), False, (0, 0), 1)), x, w, tile=Tile(16, 32, 16, split=split))


def test_two_results_of_parts():
    check(lambda x, w, v: [c := P.mm(x, w), P.relu(P.add(c, row(v, c)))], *linear(20, 24, 300), tile=Tile(16, 16, 32, split=4))


# ------------------------------------------------------------------ convolutions
CONVOLUTIONS = {
    "3x3": ((2, 24, 9, 11), (40, 24, 3, 3), (1, 1), (1, 1), (1, 1)),
    "strided, dilated": ((2, 24, 9, 11), (40, 24, 3, 3), (2, 1), (1, 2), (1, 2)),
    "few channels": ((1, 3, 12, 13), (5, 3, 7, 7), (2, 2), (3, 3), (1, 1)),
    "few channels, dilated": ((2, 5, 9, 11), (40, 5, 3, 2), (2, 1), (1, 2), (1, 2)),
    "few channels, full blocks": ((2, 8, 6, 7), (16, 8, 2, 2), (2, 2), (0, 1), (1, 1)),
    "few channels, 1x1": ((2, 4, 6, 7), (16, 4, 1, 1), (2, 2), (0, 0), (1, 1)),
    "1x1": ((3, 17, 5, 6), (33, 17, 1, 1), (1, 1), (0, 0), (1, 1)),
    "1x1 strided": ((3, 17, 5, 6), (33, 17, 1, 1), (2, 2), (0, 0), (1, 1)),
    "as large as the image": ((4, 16, 3, 3), (8, 16, 3, 3), (1, 1), (0, 0), (1, 1)),
}


@pytest.mark.parametrize("last", [True, False], ids=["weight channels-last", "weight row-major"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, last):
    x_shape, w_shape, stride, padding, dilation = CONVOLUTIONS[name]
    x, w, v = torch.randn(x_shape).contiguous(memory_format=torch.channels_last), torch.randn(w_shape), torch.randn(w_shape[0])
    w = w.contiguous(memory_format=torch.channels_last) if last else w

    def fn(x, w, v):
        return P.relu(P.convolution(x, w, v, stride, padding, dilation, False, (0, 0), 1))
    check(fn, x, w, v)


def test_taps_of_few_channels_fill_a_block():
    """A network's first layer: 147 products for each result are walked in 5 blocks of 32, and not in 49 of which 13 channels of 16 are zeros."""
    x_shape, w_shape, stride, padding, dilation = CONVOLUTIONS["few channels"]
    x, w = torch.randn(x_shape).contiguous(memory_format=torch.channels_last), torch.randn(w_shape).contiguous(memory_format=torch.channels_last)
    _, source = check(lambda x, w: P.convolution(x, w, None, stride, padding, dilation, False, (0, 0), 1), x, w, tile=Tile(32, 16, 32))
    assert "for start in range(0, 147, KBLOCK)" in source.text and "place = k\n" in source.text
    _, source = check(lambda x, w: P.convolution(x, w, None, stride, padding, dilation, False, (0, 0), 1), x, w.contiguous(), tile=Tile(32, 16, 32))
    assert "place = ty * 7 + tx + channel * 49\n" in source.text


def test_residual_and_batch_norm_after_a_convolution():
    def block(x, w, scale, shift, r):
        c = P.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
        spread = lambda v: P.broadcast_in_dim(v, tuple(c.shape), (1,))
        return P.relu(P.add(P.add(P.mul(c, spread(scale)), spread(shift)), r))
    image = lambda: torch.randn(2, 16, 6, 7).contiguous(memory_format=torch.channels_last)
    check(block, image(), torch.randn(16, 16, 3, 3), torch.randn(16), torch.randn(16), image())


def test_groups_and_row_major_images_are_left_to_the_library():
    x, w = torch.randn(2, 8, 6, 6), torch.randn(8, 4, 3, 3)
    convolution = lambda groups: lambda x, w: P.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), groups)
    check(convolution(2), x.contiguous(memory_format=torch.channels_last), w, templates=0)
    check(convolution(1), x, torch.randn(8, 8, 3, 3), templates=0)
    check(convolution(1), torch.randn(2, 1, 8, 8), torch.randn(4, 1, 3, 3), templates=0)


# ------------------------------------------------------------------ what follows
def extern_names(plan):
    return [s.target for s in plan.steps if isinstance(s, Extern)]


def test_a_product_that_only_loops_read_is_not_stored():
    plan, source = check(layer, *linear(20, 24, 30))
    product, = plan.kernels
    assert product.contraction.extern.name in plan.removed and not extern_names(plan) and source.text.count("tl.store") == 1


def test_a_product_that_others_read_is_stored_too():
    plan, source = check(lambda x, w, v: [c := P.mm(x, w), P.relu(P.add(c, row(v, c)))], *linear(20, 24, 30))
    assert len(plan.steps) == 1 and source.text.count("tl.store") == 2
    plan, _ = check(lambda x, w, v: [P.relu(c := P.mm(x, w)), P.mm(c, P.permute(w, [1, 0]))], *linear(20, 24, 30), templates=2)
    assert len(plan.steps) == 2


def test_reductions_and_other_walks_stay_outside():
    """A row's sum, a transposed copy, a part of the columns: none of them is made where the product's elements are."""
    for after in (lambda c: P.sum(c, [1]), lambda c: P.sum(c, [0]), lambda c: P.relu(P.slice(c, [0, 0], [20, 12], [1, 1]))):
        plan, _ = check(lambda x, w: after(P.mm(x, w)), *linear(20, 24, 30)[:2])
        assert isinstance(plan.steps[0], Template) and len(plan.steps) == 2 and not plan.removed & plan.steps[0].writes()


def test_results_in_another_order_are_stored_from_the_tile():
    plan, _ = check(lambda x, w: P.relu(P.permute(P.reshape(P.mm(x, w), [4, 5, 3, 8]), [0, 2, 1, 3])), *linear(20, 24, 30)[:2])
    assert len(plan.steps) == 1


def test_gate_of_two_products():
    """One of the two takes the loops; the other's result lies in memory by then."""
    def gated(x, u, v):
        a, b = P.mm(x, u), P.mm(x, v)
        return P.mul(P.mul(a, P.sigmoid(a)), b)
    plan, _ = check(gated, torch.randn(20, 30), torch.randn(30, 24), torch.randn(30, 24), templates=2)
    assert len(plan.steps) == 2


def test_operands_are_never_overwritten():
    """The residual is an operand too: other programs still read it."""
    def block(x, w):
        x = P.add(x, 1.0)
        return P.add(x, P.mm(x, w))
    plan, source = check(block, torch.randn(70, 32), torch.randn(32, 32))
    assert len(plan.steps) == 2 and not plan.inplace.keys() & plan.steps[1].writes()


def test_residual_that_dies_is_overwritten():
    def block(x, w, r):
        return P.mul(P.sum(P.add(P.add(r, 1.0), P.mm(x, w)), [1]), 2.0)
    check(block, torch.randn(40, 30), torch.randn(30, 40), torch.randn(40, 40))


def test_updates_between_product_and_reader_keep_their_order():
    def step(p, x, w):
        return [P.add(p, P.mm(x, w)), P.relu(p)]
    tensors = torch.randn(20, 24), torch.randn(20, 30), torch.randn(30, 24)
    gm = graph_of(step, *tensors)
    gm.meta["mutated_inputs"] = {0: 0}
    plan = schedule(lower(gm), GPU, lambda cs, _: [BANDS] * len(cs))
    expected, before = step(*tensors), tensors[0].clone()
    found = run(plan, codegen.generate(plan, TINY), tensors)
    torch.testing.assert_close(tensors[0], expected[0], rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found[1], P.relu(before))


def test_an_operand_is_updated_after_all_have_read_it():
    def step(p, x):
        return [P.add(p, P.mm(p, x)), P.sum(p, [1])]
    tensors = torch.randn(40, 40), torch.randn(40, 40)
    gm = graph_of(step, *tensors)
    gm.meta["mutated_inputs"] = {0: 0}
    plan = schedule(lower(gm), GPU, lambda cs, _: [BANDS] * len(cs))
    assert all(k.operands().isdisjoint(k.writes()) for k in plan.kernels if isinstance(k, Template))
    expected = step(*tensors)
    run(plan, codegen.generate(plan, TINY), tensors)
    torch.testing.assert_close(tensors[0], expected[0], rtol=1e-5, atol=1e-4)


# ------------------------------------------------------------------ text and machine code
def shapes(fn, *sizes, dtype=torch.bfloat16):
    return fn, *[torch.empty(s, dtype=dtype, device="meta") for s in sizes]


SHOWN = {
    "mm_bias_gelu": (shapes(layer, (2048, 768), (768, 3072), (3072,)), Tile(128, 128, 64, 8, 3)),
    "mm_edges": (shapes(layer, (1000, 100), (100, 90), (90,), dtype=torch.float32), Tile(64, 64, 32, 4, 3)),
    "mm_in_parts": (shapes(layer, (16, 3072), (3072, 760), (760,)), Tile(16, 64, 64, 4, 4, split=8)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name):
    (fn, *tensors), tile = SHOWN[name]
    check_golden(name, templated(fn, *tensors, tile=tile, hw=REFERENCE)[1].text)


def test_offsets_beyond_32_bits():
    near, far = (templated(*shapes(P.mm, (n, 1 << 12), (1 << 12, 64)))[1].text for n in (1 << 10, 1 << 19))
    assert "int64" not in near and "pm.to(tl.int64)" in far


@pytest.mark.slow
def test_machine_code_for_two_generations():
    image = torch.empty(2, 64, 56, 56, dtype=torch.bfloat16, device="meta").contiguous(memory_format=torch.channels_last)
    weight = torch.empty(64, 64, 3, 3, dtype=torch.bfloat16, device="meta").contiguous(memory_format=torch.channels_last)
    convolution = lambda x, w: P.relu(P.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1))
    sources = [templated(fn, *tensors, tile=tile)[1] for (fn, *tensors), tile in SHOWN.values()]
    first = [torch.empty(s, dtype=torch.bfloat16, device="meta").contiguous(memory_format=torch.channels_last) for s in ((2, 3, 56, 56), (64, 3, 7, 7))]
    sources += [templated(convolution, *first, tile=Tile(128, 64, 32, 4, 3))[1]]
    sources += [templated(convolution, image, weight, tile=Tile(128, 64, 64, 4, 3))[1], templated(*shapes(P.bmm, (8, 100, 64), (8, 64, 80)), tile=Tile(32, 32, 32))[1]]
    futures = [f for s in sources for capability in (80, 90) for f in triton_pool.submit([asdict(p) for p in s.programs], capability)]
    check_machine_code(futures)


# ------------------------------------------------------------------ models
@pytest.mark.parametrize("name, phase", [("gpt2", "infer"), ("gpt2", "train"), ("bert", "infer"), ("vit", "infer"), ("resnet18", "infer"),
                                         ("recommender", "train")])
def test_model_of_templates_matches_eager(name, phase, fresh, monkeypatch):
    """Every product and convolution that may be a template is one."""
    compiler = importlib.import_module("minipt2.inductor.compile")
    counted = []

    def all_of_them(candidates, draft):
        counted.extend(candidates)
        return [Tile(64, 64, 32)] * len(candidates)
    monkeypatch.setattr(compiler, "_chooser", lambda device: all_of_them)
    module = models.build(name, "small").train(phase == "train")
    with config.patch(disk_cache=False):  # another test may have left the code of this model, without templates
        check_module(module, *models.inputs(name, "small"), grad=phase == "train", tolerance=2e-4)
    assert len(counted) > 3
