"""The attention template without a GPU: against float64 and eager's kernel under Triton's interpreter, as machine code, and as text."""
import importlib
import math
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2 import models, trace
from minipt2.config import config
from minipt2.inductor import triton_pool
from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.codegen.triton_attention import AttentionTile
from minipt2.inductor.hardware import REFERENCE
from minipt2.inductor.ir import Extern
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from minipt2.inductor.scheduler.attention import Attention, attention_of
from minipt2.inductor.scheduler.templates import Template
from tests.inductor.attention import graph_of, heads
from tests.inductor.codegen.written import check_golden

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
aten = torch.ops.aten
EPS = {torch.bfloat16: 2 ** -7, torch.float16: 2 ** -10}
"""The interpreter cuts numbers off where it should round them to bfloat16."""
SMALL = AttentionTile(16, 16)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def compiled(monkeypatch):
    """``compiled(fn, tensors, tile)``: results of ``fn`` compiled with each attention in the template, the attentions, the last schedule."""
    compiler = importlib.import_module("minipt2.inductor.compile")

    def run(fn, tensors, tile=SMALL):
        found, plans = [], []

        def chosen(candidates, draft):
            found.extend(c.step.contraction for c in candidates if isinstance(c.step.contraction, Attention))
            return [tile if isinstance(c.step.contraction, Attention) else None for c in candidates]
        monkeypatch.setattr(compiler, "_chooser", lambda device: chosen)
        minipt2.reset()
        stop = trace.subscribe(lambda stage, name, plan: plans.append(plan), "schedule")
        try:
            with config.patch(triton_interpret=True, disk_cache=False), torch.no_grad():
                return minipt2.compile(fn)(*tensors), found, plans[-1]
        finally:
            stop()
    return run


@pytest.fixture
def check(compiled):
    """Results against float64, as near as the dtype allows; strides as eager's."""
    def run(fn, *tensors, tile=SMALL, templates=1):
        result, found, plan = compiled(fn, tensors, tile)
        assert len(found) == templates
        with torch.no_grad():
            exact = fn(*[t.double() if t.is_floating_point() else t for t in tensors])
            assert result.stride() == fn(*tensors).stride()
        torch.testing.assert_close(result.double(), exact, rtol=0, atol=EPS[tensors[0].dtype] * max(exact.abs().max().item(), 1e-3))
        return plan
    return run


def qkv(b, h, queries, keys, depth, dtype=torch.bfloat16):
    return heads(b, h, queries, depth, dtype), heads(b, h, keys, depth, dtype), heads(b, h, keys, depth, dtype)


def attend(q, k, v, mask=None, **settings):
    return F.scaled_dot_product_attention(q, k, v, mask, **settings)


def causal(q, k, v):
    return attend(q, k, v, is_causal=True)


# ------------------------------------------------------------------ sizes
@pytest.mark.parametrize("tile", [SMALL, AttentionTile(32, 16), AttentionTile(16, 32), AttentionTile(64, 64)], ids=str)
@pytest.mark.parametrize("lengths", [(37, 21), (16, 32), (1, 50), (33, 1), (50, 64)], ids=str)
def test_lengths(check, lengths, tile):
    check(attend, *qkv(2, 3, *lengths, 16), tile=tile)


@pytest.mark.parametrize("tile", [SMALL, AttentionTile(32, 16), AttentionTile(16, 64), AttentionTile(64, 64)], ids=str)
@pytest.mark.parametrize("lengths", [(37, 37), (64, 64), (50, 20), (20, 50), (1, 9), (70, 16)], ids=str)
def test_causal(check, lengths, tile):
    """Query m sees the keys up to m, whichever of the two is longer."""
    check(causal, *qkv(1, 2, *lengths, 16), tile=tile)


@pytest.mark.parametrize("depth", [8, 16, 24, 40, 64, 80, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_depths(check, depth, dtype):
    check(causal, *qkv(1, 2, 19, 19, depth, dtype), tile=AttentionTile(32, 16))


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, -0.5, 0.0])
def test_scales(check, scale):
    check(lambda q, k, v: attend(q, k, v, scale=scale), *qkv(1, 2, 20, 20, 16))


# ------------------------------------------------------------------ memory
def test_operands_lie_as_they_lie(check):
    """Row-major heads, one projection for all three, every other key, one key head for all."""
    check(attend, *[t.contiguous() for t in qkv(2, 3, 20, 20, 16)])
    check(lambda x: attend(*x.unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)), torch.randn(2, 21, 96).bfloat16())
    check(lambda q, k, v: attend(q, k[:, :, ::2], v[:, :, 1::2]), *qkv(2, 3, 20, 40, 16))
    q, k, v = qkv(2, 3, 20, 20, 16)
    check(lambda q, k, v: attend(q, k.expand(2, 3, 20, 16), v.expand(2, 3, 20, 16)), q, k[:, :1], v[:1])


def test_grouped_queries(check):
    q, k, v = heads(2, 6, 20, 16), heads(2, 2, 24, 16), heads(2, 2, 24, 16)
    check(lambda q, k, v: attend(q, k, v, enable_gqa=True), q, k, v)


# ------------------------------------------------------------------ masks
MASKS = {
    "of keys": (2, 1, 1, 21), "for all": (37, 21), "of heads": (1, 3, 37, 21), "whole": (2, 3, 37, 21), "of queries": (2, 1, 37, 1), "one row": (1, 21),
}


@pytest.mark.parametrize("kind", ["bool", "bias"])
@pytest.mark.parametrize("name", MASKS)
def test_masks(check, name, kind):
    mask = torch.randn(MASKS[name])
    check(attend, *qkv(2, 3, 37, 21, 16), (mask > -0.5).index_fill(-1, torch.tensor([0]), True) if kind == "bool" else mask.bfloat16())


def test_a_mask_is_read_where_it_lies(check):
    plan = check(lambda q, k, v, m: attend(q, k, v, m), *qkv(2, 3, 20, 24, 16), torch.randn(2, 3, 24, 20).bfloat16().transpose(2, 3))
    assert not any("copy" in str(s) or "clone" in str(s) for s in plan.steps)


def test_queries_that_see_no_key(compiled):
    """What eager's kernel gives them, and never what lies in memory."""
    q, k, v = qkv(1, 2, 20, 24, 16)
    mask = torch.zeros(20, 24).bfloat16()
    mask[3], mask[7, :20], mask[9] = -math.inf, -math.inf, torch.finfo(torch.bfloat16).min
    for tile in (SMALL, AttentionTile(32, 32)):
        result, found, _ = compiled(attend, (q, k, v, mask), tile)
        torch.testing.assert_close(result, attend(q, k, v, mask), rtol=0, atol=0.05, equal_nan=True)
        assert len(found) == 1 and (result[:, :, 3] == 0).all() and not (result[:, :, 9] == 0).all()
    result, _, _ = compiled(attend, (q, k, v, torch.zeros(20, 24, dtype=torch.bool)))
    assert (result == 0).all()


def test_what_is_not_a_number_stays_in_its_row(compiled):
    q, k, v = qkv(1, 1, 20, 24, 16)
    q[0, 0, 3, 5], q[0, 0, 11, 0] = math.nan, math.inf
    result, _, _ = compiled(attend, (q, k, v))
    wrong = result.isnan().any(-1)[0, 0]
    assert wrong[3] and wrong[11] and wrong.sum() == 2
    exact = torch.softmax(q.double() @ k.double().mT / 4, -1) @ v.double()
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=0.05, equal_nan=True)


def test_numbers_beyond_the_keys_do_no_harm(check):
    k, v = torch.full((1, 2, 40, 16), math.inf).bfloat16(), torch.full((1, 2, 40, 16), math.nan).bfloat16()
    q, k[:, :, :21], v[:, :, :21] = qkv(1, 2, 20, 21, 16)
    check(lambda q, k, v: attend(q, k[:, :, :21], v[:, :, :21]), q, k, v)
    check(lambda q, k, v: causal(q, k[:, :, :21], v[:, :, :21]), q, k, v)


# ------------------------------------------------------------------ what follows
def test_the_result_is_stored_as_its_reader_wants_it(check):
    """Heads beside each other again, for the projection that follows: no copy."""
    plan = check(lambda q, k, v: attend(q, k, v).transpose(1, 2).reshape(2, 20, 48), *qkv(2, 3, 20, 20, 16))
    assert [type(s) for s in plan.steps] == [Template]


def test_loops_after_it_run_in_the_template(check):
    def block(q, k, v, x):
        return x + attend(q, k, v).transpose(1, 2).reshape(2, 20, 48).float() * 0.5
    plan = check(block, *qkv(2, 3, 20, 20, 16), torch.randn(2, 20, 48))
    step, = plan.steps
    assert isinstance(step, Template) and step.contraction.made in plan.removed


def test_a_transposed_copy_is_stored_from_the_template(check):
    plan = check(lambda q, k, v: (attend(q, k, v) * 2).transpose(2, 3).contiguous(), *qkv(2, 3, 20, 20, 16))
    assert sum(isinstance(s, Template) for s in plan.steps) == 1


def test_what_it_does_not_compute_is_left_to_the_library(compiled):
    q, k, v = qkv(1, 2, 20, 20, 16)
    for tensors in ([t.float() for t in (q, k, v)], [t[:, :, :0] for t in (q, k, v)]):
        result, found, _ = compiled(attend, tensors)
        assert not found
        torch.testing.assert_close(result, attend(*tensors))


def test_training_keeps_the_library():
    """Its backward reads more than the result."""
    graph = graph_of(aten._scaled_dot_product_flash_attention_for_cpu.default, *qkv(1, 2, 20, 20, 16), outputs=(0, 1))
    program = lower(graph)
    call, = [b for b in program.buffers if isinstance(b, Extern)]
    assert attention_of(call, program.by_name()) is None


# ------------------------------------------------------------------ the GPU's calls, text and machine code
def meta(b, h, length, depth):
    return torch.empty(b, length, h, depth, dtype=torch.bfloat16, device="meta").transpose(1, 2)


def written(graph, tile):
    plan = schedule(lower(graph), GPU, lambda candidates, _: [tile] * len(candidates))
    assert [type(s) for s in plan.steps] == [Template]
    return codegen.generate(plan, REFERENCE)


def shown():
    """Text of a causal attention, of one with a bias for keys, and of one whose depth is no power of two."""
    bias = torch.empty(16, 1, 1, 500, dtype=torch.bfloat16, device="meta").expand(16, 12, 500, 500)
    flash, efficient = aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default
    cudnn = aten._scaled_dot_product_cudnn_attention.default
    return {
        "attention_causal": written(graph_of(flash, *[meta(8, 12, 1024, 64)] * 3, 0.0, True), AttentionTile(128, 64, 4, 3)),
        "attention_bias": written(graph_of(efficient, *[meta(16, 12, 500, 64)] * 3, bias, False), AttentionTile(64, 64, 4, 2)),
        "attention_grouped": written(graph_of(cudnn, meta(2, 8, 300, 80), *[meta(2, 2, 300, 80)] * 2, None, False, 0.0, True), AttentionTile(64, 32, 4, 1)),
    }


@pytest.mark.parametrize("name", ["attention_causal", "attention_bias"])
def test_golden(name):
    check_golden(name, shown()[name].text)


def test_offsets_beyond_32_bits():
    near, far = (written(graph_of(aten._scaled_dot_product_flash_attention.default, *[meta(n, 16, 1024, 64)] * 3), SMALL).text for n in (4, 4096))
    assert "int64" not in near and "tl.program_id(1).to(tl.int64)" in far


@pytest.mark.slow
def test_machine_code_for_two_generations():
    programs = [p for source in shown().values() for p in source.programs]
    for capability in (80, 90):
        for future in triton_pool.submit([asdict(p) for p in programs], capability):
            binary, launch = future.result()
            assert binary[:4] == b"\x7fELF" and launch["threads"] % 32 == 0


# ------------------------------------------------------------------ models
@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_model_matches_eager(name, compiled):
    """Attention of whole models in bfloat16."""
    module = models.build(name, "small").eval().bfloat16()
    inputs = [t.bfloat16() if t.is_floating_point() else t for t in models.inputs(name, "small")]
    result, found, _ = compiled(lambda *args: module(*args), inputs, AttentionTile(32, 32))
    with torch.no_grad():
        wanted, exact = module(*inputs), module.double()(*[t.double() if t.is_floating_point() else t for t in inputs])
    most = exact.abs().max()
    assert found and (result - exact).abs().max() <= max(3 * (wanted - exact).abs().max(), 0.05 * most)
