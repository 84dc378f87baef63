"""Triton kernels without a GPU: what they mean (Triton's interpreter against eager), that they compile for sm_80 and sm_90, and their text.

``MINIPT2_GOLDEN=1 pytest tests/inductor/codegen/test_triton.py`` writes the golden files anew.
"""
import ctypes
import importlib
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2 import models
from minipt2 import prims as P
from minipt2.config import config
from minipt2.inductor import cache, ops, triton_library, triton_pool, triton_sizes
from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.codegen import triton_sized_wrapper, triton_wrapper
from minipt2.inductor.codegen.runs import in_runs
from minipt2.inductor.hardware import REFERENCE, TINY, Hw
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, plan_memory, schedule
from minipt2.inductor.triton_library import library
from minipt2.trace import subscribe
from tests.compare import assert_same, check_module
from tests.inductor.codegen.written import check_golden, check_machine_code
from tests.inductor.programs import graph_of
from tests.inductor.scheduler.test_fusion import layer_norm, softmax

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")


def generated(fn, *tensors, hw: Hw = REFERENCE):
    """The schedule of ``fn`` (of prims) for a GPU, and its programs."""
    plan = schedule(lower(graph_of(fn, *tensors)), GPU)
    return plan, codegen.generate(plan, hw)


def run(fn, *tensors, hw: Hw = TINY):
    """``fn`` (of prims) through its wrapper module and the interpreter."""
    plan, source = generated(fn, *tensors, hw=hw)
    written, table = triton_wrapper.generate(plan, source, "test", "cpu")
    namespace = {"library": library(table), "constants": written.objects}
    exec(written.python, namespace)
    return namespace["call"](list(tensors))


def check(fn, *tensors, hw: Hw = TINY, tolerance: float = 2e-6):
    expected = fn(*tensors)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for e, f in zip(expected, run(fn, *tensors, hw=hw), strict=True):
        assert e.dtype == f.dtype and e.shape == f.shape
        torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance, equal_nan=True)


# ------------------------------------------------------------------ ops
FLOATS = torch.tensor([0.0, -0.0, 0.3, -0.7, 1.0, -1.0, 2.5, -2.5, 3.5, 17.0, -40.0, 1e-3, float("inf"), float("-inf"), float("nan"), 0.99])
INTEGERS = torch.tensor([0, 1, -1, 2, -2, 3, 5, -7, 31, 32, 100, -100, 64, 2, 9, -128])
UNTYPICAL = {"lgamma", "digamma", "erfinv", "tan", "acosh", "atanh"}
"""Compared where they are well-behaved."""


def unary_floats(v, w):
    return [getattr(P, n)(w if n in UNTYPICAL else v) for n in ops.UNARY if n != "bitwise_not"]


def binary_floats(v, w):
    return [getattr(P, n)(v, w) for n in ops.BINARY if n[:7] not in ("bitwise", "shift_l", "shift_r") and n != "nextafter"]


def integers(v, w):
    binary = [n for n in ops.BINARY if n not in "div atan2 copysign nextafter hypot pow fmax fmin logical_and logical_or".split()]
    return [getattr(P, n)(v, w) for n in binary] + [getattr(P, n)(v) for n in "abs neg sign bitwise_not logical_not floor relu".split()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unary_ops_of_floats(dtype):
    check(unary_floats, FLOATS.to(dtype), torch.linspace(0.1, 0.9, 16, dtype=dtype), tolerance=2e-6)


def test_binary_ops_of_floats():
    a, b = torch.cartesian_prod(FLOATS, FLOATS).unbind(1)
    check(binary_floats, a.contiguous(), b.contiguous(), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
def test_ops_of_integers(dtype):
    a, b = (t.contiguous().to(dtype) for t in torch.cartesian_prod(INTEGERS, INTEGERS[INTEGERS != 0]).unbind(1))
    check(integers, a, b)


def test_conversions():
    x = torch.tensor([0.0, -1.5, 2.5, 1e4, -3.99, 127.0, 0.1, 200.7])
    targets = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float64)
    check(lambda v: [P.convert(v, t) for t in targets], x.clamp(-100, 100))
    check(lambda v: [P.convert(v, t) for t in (*targets, torch.float32)], torch.tensor([0, 1, 2, 200], dtype=torch.uint8))
    check(lambda v: P.add(P.convert(v, torch.int64), 1), torch.tensor([True, False]))


# ------------------------------------------------------------------ kernels
A, V, B = torch.randn(70, 130), torch.randn(130), torch.randn(130, 70)


def three_ways(u, v, w):
    """Operands that are contiguous along three different loops."""
    return P.add(P.add(u, P.permute(v, (2, 0, 1))), P.permute(w, (1, 2, 0)))


def sliced(u, v, w):
    """Of 64 elements that lie side by side 50 are read, along the middle loop."""
    return P.add(P.add(v, w), P.convert(P.permute(P.slice(u, [0, 0, 0], [3, 33, 50], [1, 1, 1]), (0, 2, 1)), torch.float32))


PROGRAMS = {
    "bias_relu": (lambda u, v: P.relu(P.add(u, P.broadcast_in_dim(v, u.shape, [1]))), A, V),
    "softmax": (softmax, A),
    "layer_norm": (layer_norm, A, V),
    "column_sum": (lambda u: P.sum(u, [0]), A),
    "row_sum_shared": (lambda u: P.sum(P.mul(u, u), [0, 1]), torch.randn(300, 1000)),
    "columns_shared": (lambda u: P.sum(u, [0]), torch.randn(3000, 50)),
    "statistics_shared": (lambda u: P.var_mean(u, [0, 2], 0.0, False), torch.randn(4, 6, 5000)),
    "long_softmax": (softmax, torch.randn(140, 33000)),
    "held_softmax": (lambda u: P.convert(softmax(P.convert(u, torch.float32)), torch.bfloat16), torch.randn(140, 50000).bfloat16()),
    "interleaved": (lambda u, v: P.mul(u, P.reshape(P.broadcast_in_dim(v, [35, 2], [0]), [70])), torch.randn(4, 70)[0].contiguous(), torch.randn(35)),
    "transpose": (lambda u, v: P.add(P.permute(u, [1, 0]), v), A, B),
    "three_ways": (three_ways, torch.randn(20, 33, 48), torch.randn(33, 48, 20), torch.randn(48, 20, 33)),
    "sliced_transpose": (sliced, torch.randn(3, 33, 64).bfloat16(), torch.randn(3, 50, 33), torch.randn(3, 50, 33)),
    "channels_last": (lambda u, v: P.add(P.permute(u, (0, 2, 1)), v), torch.randn(3, 5, 200), torch.randn(3, 200, 5)),
    "argmax": (lambda u: P.argmax(u, 1, False), A),
    "cat": (lambda u, v: P.cat([P.relu(u), v], 0), A, torch.randn(3, 130)),
    "gather": (lambda u, i: P.index_select(u, 0, i), A, torch.tensor([3, 0, -1 + 70, 5])),
    "scatter_add": (lambda u, i, s: P.scatter_add(u, 0, i, s), torch.randn(6, 4), torch.randint(0, 6, (9, 4)), torch.randn(9, 4)),
    "pad": (lambda u: P.pad(u, [1, 2], [0, 3], 7.0), A),
    "half": (lambda u: P.convert(P.exp(P.convert(u, torch.float32)), torch.float16), A.half()),
    "truth": (lambda u: [P.any(P.gt(u, 2.0), [1]), P.all(P.gt(u, -9.0), [0])], A),
    "double": (lambda u: P.sum(P.mul(u, 0.1), [1]), A.double()),
    "constants": (lambda u: [P.all(P.eq(P.full([70, 130], 2.0, torch.float32, u.device), 2.0), [1]),
                             P.sum(P.exp(P.full([70, 130], 1.0, torch.float32, u.device)), [1])], A),
}
SHOWN = ("bias_relu", "softmax", "layer_norm", "column_sum", "row_sum_shared", "statistics_shared", "long_softmax", "held_softmax", "transpose", "three_ways",
         "sliced_transpose", "channels_last", "argmax", "cat", "gather", "scatter_add", "pad", "half")


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("long_softmax", "held_softmax")])
def test_program(name):
    fn, *tensors = PROGRAMS[name]
    check(fn, *tensors, hw=REFERENCE if name.endswith("_shared") else TINY, tolerance=2e-4 if name.endswith("_shared") else 3e-6)


def test_rows_too_long_for_registers():
    check(softmax, torch.randn(3, 33000))


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name):
    check_golden(name, generated(*PROGRAMS[name])[1].text)


@pytest.mark.slow
def test_machine_code_for_two_generations():
    """Every program above compiles for sm_90, and the representative ones for sm_80 too."""
    every_op = {"unary": (unary_floats, FLOATS, FLOATS), "binary": (binary_floats, FLOATS, FLOATS), "integers": (integers, INTEGERS, INTEGERS)}
    sources = {n: generated(*p)[1] for n, p in {**PROGRAMS, **every_op}.items()}
    futures = [f for s in sources.values() for f in triton_pool.submit([vars(p) for p in s.programs], 90)]
    elder = (*SHOWN[:4], "three_ways", "sliced_transpose", "channels_last")
    futures += [f for n in elder for f in triton_pool.submit([vars(p) for p in sources[n].programs], 80)]
    check_machine_code(futures)


def test_equal_kernels_are_compiled_once_and_kept():
    _, source = generated(lambda u, v: P.exp(P.sub(P.mul(u, 3.25), v)), torch.zeros(77), torch.zeros(77))
    program = vars(source.programs[0])
    first, second = triton_pool.submit([program, dict(program, text=program["text"].replace(program["name"], "other"), name="other")], 90)
    assert first is second
    made, before = first.result(), minipt2.counters()["triton_compiled"]
    triton_pool._pending.clear()
    again, = triton_pool.submit([program], 90)
    assert again.done() and again.result() == made and minipt2.counters()["triton_compiled"] == before


def test_second_process_generates_nothing(interpreted, monkeypatch, tmp_path):
    compiler = importlib.import_module("minipt2.inductor.compile")
    made, generate = [], compiler._triton
    monkeypatch.setattr(compiler, "_triton", lambda *args: (made.append(args), generate(*args))[1])
    x = torch.randn(8, 16)
    with config.patch(cache_dir=str(tmp_path / "cache")):
        for expected in (1, 1):
            minipt2.reset()
            torch.testing.assert_close(minipt2.compile(lambda v: F.softmax(v * 3, -1))(x), F.softmax(x * 3, -1))
            assert len(made) == expected
    assert minipt2.counters()["plans_reused"] == 1


def test_layers_share_their_kernels():
    def layers(u, w):
        for _ in range(3):
            u = P.mm(P.relu(P.add(u, 1.0)), w)
        return u
    _, source = generated(layers, torch.zeros(32, 32), torch.zeros(32, 32))
    assert len(source.launches) == 3 and len(source.programs) == 2  # the first keeps its operand, the others overwrite theirs


def test_only_what_reaches_far_is_counted_in_64_bits():
    near, far = (generated(P.relu, torch.empty(n, 1 << 16, dtype=torch.int8, device="meta"))[1].text for n in (8, 1 << 16))
    assert "int64" not in near and ".to(tl.int64)" in far
    last = generated(P.relu, torch.empty((1 << 31) - 5, dtype=torch.int8, device="meta"))[1].text
    assert ".to(tl.int64)" in last  # the last block reaches beyond 2**31


def test_masks_only_where_blocks_stick_out():
    assert "mask" not in generated(P.relu, torch.zeros(1 << 20))[1].text
    assert "xmask = x < 1000003" in generated(P.relu, torch.zeros(1000003))[1].text


# ------------------------------------------------------------------ launching
def test_launcher_passes_pointers_and_grids():
    """The C that launches, with a driver of our own behind it."""
    plan, source = generated(lambda u, v: P.sum(P.relu(P.add(u, v)), [0, 1]), torch.zeros(300, 1000), torch.zeros(300, 1000))
    _, table = triton_wrapper.generate(plan, source, "test", "cuda:0")
    c = cache.compile_c(triton_wrapper.launcher_text(table))
    calls = []
    unsigned = ctypes.c_uint
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[unsigned] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)

    def driver(function, x, y, z, threads, _, __, shared, stream, args, extra):
        count = len(source.programs[len(calls)].signature)
        calls.append((x, y, z, stream, [ctypes.c_void_p.from_address(args[k]).value for k in range(count)]))
        return 0
    callback = kind(driver)
    ctypes.c_void_p.in_dll(c, "launch").value = ctypes.cast(callback, ctypes.c_void_p).value
    c.run0.argtypes, c.run0.restype = [ctypes.c_void_p] * 5, ctypes.c_int
    assert c.run0(7, 1 << 20, 64, 128, 256) == 0
    (x, y, z, stream, first), second = calls
    split = source.launches[0].calls[0].grid[1]
    assert (x, y, z, stream) == (1, split, 1, 7) and split > 1
    assert first[:2] == [64, 128] and first[2] == second[4][1] >= 1 << 20 and second[:2] == (1, 1) and second[4][0] == 256
    assert c.run0(7, 1 << 20, 64, 132, 256) == triton_wrapper.UNALIGNED and len(calls) == 2


@pytest.mark.parametrize("sized", [False, True])
def test_kernels_get_the_address_of_the_flags(interpreted, sized):
    """A global of the C that a library of the process has as well would be that one."""
    plan, source = generated(lambda table, i: P.index(table, [i]), torch.zeros(50, 8), torch.zeros(4, dtype=torch.int64))
    _, table = triton_wrapper.generate(plan, source, "test", "cuda:0")
    c = cache.compile_c(triton_wrapper.launcher_text(table))
    if sized:
        text = triton_sized_wrapper.launcher_text(dict(runs=[dict(pointers=1, numbers="", aligned=[])]))
        c = cache.compile_c(text)
    found = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
    last = 0 if sized else 3
    callback = kind(lambda *call: found.append(ctypes.c_void_p.from_address(call[9][last]).value) or 0)
    ctypes.c_void_p.in_dll(c, "launch").value = ctypes.cast(callback, ctypes.c_void_p).value
    ctypes.c_void_p.in_dll(c, "raised").value = 4096
    if sized:
        numbers = (ctypes.c_int64 * 9)(1, 0, 1, 1, 32, 0, 1, triton_sizes.FLAGS, 0)
        c.run0.argtypes, c.run0.restype = [ctypes.c_void_p] * 4, ctypes.c_int
        assert c.run0(7, 0, ctypes.addressof(numbers), 64) == 0
    else:
        c.run0.argtypes, c.run0.restype = [ctypes.c_void_p] * 4, ctypes.c_int
        assert c.run0(7, 64, 64, 64) == 0
    assert found == [4096]


@pytest.mark.parametrize("dynamic", [False, True])
def test_large_intermediates_are_made_and_freed_when_their_time_is(interpreted, monkeypatch, dynamic):
    """All of them count as large here. Runs end where something can be freed before the next is made."""
    monkeypatch.setattr(importlib.import_module("minipt2.inductor.scheduler"), "GPU", replace(GPU, alone_from=1))

    def fn(x, w):
        for _ in range(3):
            x = torch.softmax(x @ w, -1).sin()
        return x.sum()
    call = minipt2.compile(fn, dynamic=dynamic)
    for n in (5, 6):
        mine = [torch.randn(n, 7, requires_grad=True), torch.randn(7, 7, requires_grad=True)]
        theirs = [t.detach().clone().requires_grad_() for t in mine]
        call(*mine).backward()
        fn(*theirs).backward()
        torch.testing.assert_close([t.grad for t in mine], [t.grad for t in theirs])


def test_runs_end_where_memory_can_be_given_back(interpreted):
    with config.patch(fusion=False):
        plan, source = generated(lambda x: P.sum(P.sum(P.sum(x, [2]), [1]), [0]), torch.randn(8, 8, 8))
    kept = in_runs(plan, source.launches, {})
    plan.alone_from = 1
    plan.plan = plan_memory(plan)
    assert len(kept) == 1 and len(in_runs(plan, source.launches, {})) > 1 and not plan.plan


def test_inputs_that_are_not_aligned(interpreted):
    base = torch.randn(65)
    expected = torch.relu(base[1:]) + 1
    torch.testing.assert_close(minipt2.compile(lambda v: torch.relu(v) + 1)(base[1:]), expected)


def test_input_written_in_place_at_any_address(interpreted):
    base = torch.zeros(65)
    minipt2.compile(lambda v: v.add_(1))(base[1:])
    assert base.tolist() == [0.0] + [1.0] * 64


def test_wrong_index_raises(interpreted):
    fn = minipt2.compile(lambda table, i: table[i] * 2)
    table = torch.randn(5, 3)
    torch.testing.assert_close(fn(table, torch.tensor([4, -5])), table[[4, -5]] * 2)
    with pytest.raises(IndexError, match="out of range"):
        fn(table, torch.tensor([1, 5]))
    torch.testing.assert_close(fn(table, torch.tensor([0, 1])), table[:2] * 2)


def test_graphs_that_launch_alike_have_tables_of_their_own():
    """One input, one result, one block: only the kernels differ, and a library's table holds those of one graph."""
    texts = set()
    for op in (P.relu, P.exp):
        plan, source = generated(op, torch.zeros(64))
        table = triton_wrapper.generate(plan, source, "test", "cuda:0")[1]
        texts |= {triton_wrapper.launcher_text(table), triton_wrapper.launcher_text(dict(table, device="cuda:1"))}
    assert len({cache.compile_c(text)._handle for text in texts}) == 4


def test_a_wrong_index_is_raised_by_the_next_call_of_any_graph(monkeypatch):
    """As on a GPU: kernels write into memory that all graphs share."""
    monkeypatch.setattr(triton_library, "_notes", None)
    first, second = (triton_library.Loaded.__new__(triton_library.Loaded) for _ in range(2))
    second.check()
    notes = triton_library.Notes.shared()
    first.check()
    notes.memory[0] = 1
    with pytest.raises(IndexError, match="out of range"):
        second.check()
    first.check()
    notes.memory[0] = 1
    with pytest.warns(UserWarning, match="index out of range"):
        notes.tell()
    notes.memory[0] = 0


# ------------------------------------------------------------------ models
@pytest.mark.parametrize("name, phase", [(n, p) for n in ("gpt2", "bert", "vit", "recommender", "actor_critic", "lstm") for p in ("infer", "train")]
                         + [("resnet18", "infer"), ("unet", "infer"), ("mobilenetv2", "infer"),
                            pytest.param("resnet18", "train", marks=pytest.mark.slow)])
def test_model_matches_eager(name, phase, interpreted):
    module = models.build(name, "small").train(phase == "train")
    check_module(module, *models.inputs(name, "small"), grad=phase == "train", tolerance=2e-4)
    counted = minipt2.counters()
    assert counted["kernels"] > 0 and counted["graphs"] == 1


@pytest.mark.parametrize("fn", [
    lambda x: F.batch_norm(x, None, None, training=True),
    lambda x: F.batch_norm(x.to(memory_format=torch.channels_last), None, None, training=True),
    lambda x: F.layer_norm(x, x.shape[1:]).amax((0, 2, 3)),
    lambda x: (x.mean(), (x > 3).any(), x.argmax(), x.exp().sum(0)),
])
def test_shared_rows(fn, on_many_sms):
    x = torch.randn(8, 8, 32, 33) + 3
    found, expected = minipt2.compile(fn)(x), fn(x)
    assert_same(expected, found, 2e-5)


@pytest.mark.parametrize("name, kernels, megabytes", [("gpt2", 9, 0.2), ("resnet18", 9, 0.95), ("bert", 11, 0.17)])
def test_kernels_and_bytes_moved(name, kernels, megabytes, interpreted):
    """Fusion for a GPU: no more kernels and bytes than now."""
    seen = []
    stop = subscribe(lambda stage, name, payload: seen.append(payload() if callable(payload) else payload), "schedule")
    with torch.no_grad():
        minipt2.compile(models.build(name, "small").eval())(*models.inputs(name, "small"))
    stop()
    moved = sum(s.bytes_moved() for s in seen) / 1e6
    assert sum(len(s.kernels) for s in seen) <= kernels and 0.8 * megabytes < moved <= megabytes, moved
