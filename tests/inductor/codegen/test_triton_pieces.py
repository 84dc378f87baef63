"""Products of float32 numbers in pieces of bfloat16, without a GPU: against float64 under Triton's interpreter, as machine code, and as text.

The interpreter rounds to bfloat16 by cutting off, so that products left out are up to 2**-21 of the whole there; on a GPU they are below 2**-24.
"""
import importlib
from dataclasses import asdict

import pytest
import torch

from minipt2 import models
from minipt2 import prims as P
from minipt2.config import config
from minipt2.inductor import triton_pool
from minipt2.inductor.autotune.template_space import cuts
from minipt2.inductor.codegen.triton_template import Tile
from minipt2.inductor.codegen.triton_wrapper import GpuWriter
from minipt2.inductor.hardware import REFERENCE
from tests.compare import check_module
from tests.inductor.codegen.test_triton_template import CONVOLUTIONS, VIEWS, layer, linear, shapes
from tests.inductor.codegen.written import check_golden, check_machine_code
from tests.inductor.templates import check, run, templated

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
CUTS = ["registers", "rhs", "lhs"]
MOST = 2.0 ** -20
"""Of the sum of the products' absolute values, by which a result may be off."""


@pytest.fixture(autouse=True)
def interpreted():
    torch.manual_seed(0)
    with config.patch(triton_interpret=True):
        yield


def product(a, b, tile=Tile(16, 16, 16, cut="rhs")):
    """``a @ b`` by a template."""
    return run(*templated(P.mm, a, b, tile=tile), [a, b])[0]


def off(a, b, found):
    """Distance from float64, over the sum of absolute products."""
    a, b = a.double(), b.double()
    return ((found.double() - a @ b).abs() / (a.abs() @ b.abs())).max().item()


# ------------------------------------------------------------------ values
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("sizes", [(70, 90, 50), (1, 33, 7), (65, 1, 16), (32, 32, 32), (20, 24, 200)], ids=str)
def test_as_exact_as_float32(cut, sizes):
    x, w, _ = linear(*sizes)
    for split in (1, 3):
        assert off(x, w, product(x, w, Tile(32, 16, 16, split=split, cut=cut))) < MOST


@pytest.mark.parametrize("cut", CUTS)
def test_loops_after_and_bands_of_tiles(cut):
    for tile in (Tile(16, 16, 32, group=2, cut=cut), Tile(16, 32, 16, group=2, split=4, cut=cut)):
        check(layer, *linear(70, 90, 50), tile=tile)
    check(lambda v, a, b: P.relu(P.addmm(v, a, b, 0.5, -2.0)), torch.randn(20, 1), torch.randn(20, 30), torch.randn(30, 24), tile=Tile(16, 16, 16, cut=cut))
    check(lambda x, w, v: [c := P.mm(x, w), P.relu(c)], *linear(20, 24, 30), tile=Tile(16, 16, 16, cut=cut))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("a", VIEWS)
def test_operands_in_any_order(a, cut):
    x, w, v = linear(37, 45, 29)
    for b in VIEWS:
        check(layer, VIEWS[a](x), VIEWS[b](w), v, tile=Tile(32, 32, 16, cut=cut))


@pytest.mark.parametrize("cut", CUTS)
def test_batches(cut):
    tile = Tile(16, 32, 16, cut=cut)
    check(P.bmm, torch.randn(3, 17, 20), torch.randn(3, 20, 33), tile=tile)
    check(P.bmm, torch.randn(1, 20).expand(4, 5, 20), torch.randn(4, 33, 20).transpose(1, 2), tile=tile)
    check(lambda a, b: P.mul(P.bmm(a, b), 2.0), torch.randn(3, 1, 20), torch.randn(20, 33).expand(3, 20, 33), tile=tile)


@pytest.mark.parametrize("cut, split, last", [("registers", 1, True), ("rhs", 2, True), ("rhs", 1, False)])
@pytest.mark.parametrize("name", ["strided, dilated", "few channels", "1x1"])
def test_convolution(name, cut, split, last):
    x_shape, w_shape, stride, padding, dilation = CONVOLUTIONS[name]
    x, w, v = torch.randn(x_shape).contiguous(memory_format=torch.channels_last), torch.randn(w_shape), torch.randn(w_shape[0])
    w = w.contiguous(memory_format=torch.channels_last) if last else w

    def fn(x, w, v):
        return P.relu(P.convolution(x, w, v, stride, padding, dilation, False, (0, 0), 1))
    check(fn, x, w, v, tile=Tile(64, 32, 32, split=split, cut=cut))


@pytest.mark.parametrize("cut", CUTS)
def test_an_operand_that_the_program_makes_is_cut_in_registers(cut):
    """Its loops run where it is loaded; there is nothing of it in memory."""
    def of_bytes(x, w, scale):
        return P.mm(x, P.mul(P.convert(w, torch.float32), P.broadcast_in_dim(scale, tuple(w.shape), (1,))))
    tensors = torch.randn(20, 40), torch.randint(-9, 9, (40, 24), dtype=torch.int8), torch.rand(24)
    _, source = check(of_bytes, *tensors, tile=Tile(16, 16, 16, cut=cut))
    assert "rhs_pieces" not in source.text and ("lhs_pieces" in source.text) == (cut == "lhs")
    check(lambda x, w: P.mm(P.relu(x), w), torch.randn(20, 40), torch.randn(40, 24), tile=Tile(16, 16, 16, cut=cut))


# ------------------------------------------------------------------ numbers of every kind
def test_long_sums_of_one_sign_do_not_drift():
    a, b = torch.rand(4, 6000), torch.rand(6000, 4)
    assert off(a, b, product(a, b, Tile(16, 16, 64, cut="rhs"))) < MOST


@pytest.mark.parametrize("cut", CUTS)
def test_magnitudes_far_apart(cut):
    a, b = (torch.randn(s) * torch.exp2(torch.randint(-30, 31, s).float()) for s in ((20, 40), (40, 24)))
    assert off(a, b, product(a, b, Tile(16, 16, 16, cut=cut))) < MOST


def test_the_smallest_numbers_keep_their_bits():
    """Third pieces, as they are, would be below the smallest bfloat16. (Of numbers that become subnormal bfloat16 the interpreter makes wrong ones.)"""
    a, b = (torch.rand(20, 40) + 1) * 2.0 ** -116, torch.randn(40, 24) * 2.0 ** 110
    for cut in CUTS:
        assert off(a, b, product(a, b, Tile(16, 16, 16, cut=cut))) < MOST
        assert off(b.t(), a.t(), product(b.t(), a.t(), Tile(16, 16, 16, cut=cut))) < MOST


@pytest.mark.parametrize("cut", CUTS)
def test_infinity_and_nan_are_where_eager_has_them(cut):
    a, b = torch.randn(40, 50), torch.randn(50, 33)
    a[3, 7], a[20, 1], b[8, 30], b[11] = float("inf"), float("nan"), float("-inf"), 0.0
    a[30, 11] = float("inf")  # meets zeros
    a[35] = a[35].abs() * 1e30
    b[:, 5] = b[:, 5].abs() * 1e30  # beyond the largest number where they meet
    wanted = a @ b
    assert 0 < wanted.isfinite().sum() < wanted.numel() and wanted.isposinf().any() and wanted.isnan().any()
    for split in (1, 3):
        found = product(a, b, Tile(16, 16, 16, split=split, cut=cut))
        assert all(torch.equal(where(found), where(wanted)) for where in (torch.isnan, torch.isposinf, torch.isneginf))
        finite = torch.where(wanted.isfinite(), found, 0.0), torch.where(wanted.isfinite(), wanted, 0.0)
        assert (finite[0] - finite[1]).abs().max() <= MOST * finite[1].abs().max()


@pytest.mark.parametrize("cut", CUTS)
def test_the_largest_numbers_stay_finite(cut):
    """Rounded to bfloat16 they would not."""
    most = torch.finfo(torch.float32).max
    a, b = torch.full((20, 1), most), torch.cat([torch.full((1, 12), 0.5), torch.full((1, 12), -1.0)], 1)
    assert torch.equal(product(a, b, Tile(16, 16, 16, cut=cut)), a @ b)


# ------------------------------------------------------------------ text and machine code
SHOWN = {"mm_in_pieces": (shapes(layer, (2048, 768), (768, 3072), (3072,), dtype=torch.float32), Tile(128, 128, 32, 8, 3, cut="rhs"))}


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name):
    (fn, *tensors), tile = SHOWN[name]
    check_golden(name, templated(fn, *tensors, tile=tile, hw=REFERENCE)[1].text)


def test_pieces_lie_in_memory_of_the_launch():
    _, source = templated(*shapes(layer, (40, 50), (50, 33), (33,), dtype=torch.float32), tile=Tile(16, 16, 16, cut="rhs"))
    launch, = source.launches
    assert 6 * 50 * 33 <= launch.work["rhs_pieces"] < 6 * (50 * 33 + 16) and launch.work["rhs_pieces"] % 32 == 0 and len(launch.calls) == 2


@pytest.mark.slow
def test_machine_code_for_two_generations():
    image = torch.empty(2, 64, 56, 56, device="meta").contiguous(memory_format=torch.channels_last)
    weight = torch.empty(64, 64, 3, 3, device="meta").contiguous(memory_format=torch.channels_last)
    convolution = lambda x, w: P.relu(P.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1))
    transposed = lambda a, b: P.mm(P.permute(a, [1, 0]), b)
    sources = [templated(*shapes(layer, (2048, 768), (768, 3072), (3072,), dtype=torch.float32), tile=Tile(128, 64, 32, 8, 2, cut=cut))[1] for cut in CUTS]
    sources += [templated(*shapes(transposed, (2048, 768), (2048, 770), dtype=torch.float32), tile=Tile(64, 64, 32, 4, 2, split=2, cut=cut))[1] for cut in CUTS]
    sources += [templated(convolution, image, weight, tile=Tile(64, 64, 32, 4, 2, cut="rhs"))[1]]
    futures = [f for s in sources for capability in (80, 90) for f in triton_pool.submit([asdict(p) for p in s.programs], capability)]
    check_machine_code(futures)


# ------------------------------------------------------------------ a model
def test_a_training_step_of_products_in_pieces_matches_eager(fresh, monkeypatch):
    """Every product forward and backward, those of smaller left operands turned."""
    compiler = importlib.import_module("minipt2.inductor.compile")
    counted = []

    def all_of_them(candidates, draft):
        counted.extend(candidates)
        return [Tile(64, 64, 32, cut=(cuts(c.step.contraction, REFERENCE) or [""])[-1]) for c in candidates]
    monkeypatch.setattr(compiler, "_chooser", lambda device: all_of_them)
    module = models.build("gpt2", "small").train()
    with config.patch(disk_cache=False):  # another test may have left the code of this model, without templates
        check_module(module, *models.inputs("gpt2", "small"), grad=True, tolerance=2e-4)
    assert len(counted) > 3


def test_pieces_lie_where_the_arena_is_free_meanwhile():
    """Many pieces while little else is alive take no more than few of them beside much."""
    def fn(x, w, v):
        h = P.mm(x, w)
        return P.mm(P.mm(P.permute(h, [1, 0]), h), v)
    tensors = torch.randn(16, 64), torch.randn(64, 64) / 8, torch.randn(64, 1)
    plan, source = check(fn, *tensors, tile=Tile(32, 32, 16, cut="rhs"), templates=3)
    work = [sum(launch.work.values()) for launch in source.launches]
    assert work[0] == max(work) == 6 * 64 * 64
    assert plan.arena_bytes < GpuWriter(plan, source, "test", "cpu").arena_bytes < plan.arena_bytes + work[0] // 2
