"""Triton kernels whose sizes are arguments: one compilation, right at every size (Triton's interpreter against eager), and machine code."""
import base64
import ctypes
import dataclasses
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2 import config, trace
from minipt2.inductor import cache, triton_pool, triton_sizes
from minipt2.inductor.codegen import triton_sized, triton_wrapper
from minipt2.inductor.hardware import REFERENCE
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from minipt2.inductor.triton_sizes import SizeClass, rounded, size_class
from tests.compare import assert_same
from tests.inductor.codegen.written import check_golden, check_machine_code
from tests.inductor.symbolic import check, graph_of
from tests.inductor.test_symbolic import CASES, dtypes_of
from tests.varying import check_growing_cache, check_sizes, images, padded, tokens

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
LARGE = 20_000


def source_of(name: str) -> tuple:
    fn, shapes, hints, _ = CASES[name]
    plan = schedule(lower(graph_of(fn, shapes, hints, dtypes_of(name))), GPU)
    return plan, triton_sized.generate(plan, REFERENCE)


def at_sizes(name: str, *others: dict) -> None:
    fn, shapes, hints, _ = CASES[name]
    check(fn, shapes, hints, *others, dtypes=dtypes_of(name), interpreted=False)


@pytest.mark.parametrize("name", CASES)
def test_right_at_every_size(name, interpreted):
    others = CASES[name][3]
    at_sizes(name, *[o for o in others if o.get("s0", 1) * o.get("s1", 1) < LARGE][:6])


@pytest.mark.parametrize("name, sizes", [
    ("column sums", dict(s0=6000, s1=3)), ("column sums", dict(s0=2, s1=70)), ("layer norm of any length", dict(s0=3, s1=2000)),
])
def test_right_where_programs_share_rows(name, sizes, on_many_sms):
    at_sizes(name, sizes)


def test_rows_that_outgrow_registers(interpreted):
    """The program that holds a row is not used for longer ones."""
    at_sizes("softmax", dict(s0=2, s1=40_000), dict(s0=2, s1=31), dict(s0=2, s1=32), dict(s0=2, s1=33))


@pytest.mark.parametrize("name", ["softmax", "gathered", "causal", "scaled", "merged", "column sums"])
def test_offsets_of_64_bits(name, interpreted, monkeypatch):
    monkeypatch.setattr(triton_sizes, "WIDE_FROM", 100)
    made = []
    variant = triton_sized._variant
    monkeypatch.setattr(triton_sized, "_variant", lambda *a: (made.append(variant(*a)), made[-1])[1])
    at_sizes(name, *CASES[name][3][2:4])
    wide = [c["program"] for v in made for c in v["calls"]]
    assert any("i64" in p["signature"] and ".to(tl.int64)" in p["text"] for p in wide)


def test_multiples_of_16_get_programs_that_know_it(interpreted, monkeypatch):
    monkeypatch.setattr(triton_sizes, "VECTORS_FROM", 0)
    at_sizes("softmax", dict(s0=16, s1=48), dict(s0=7, s1=48), dict(s0=16, s1=47))
    kernel = dict(outer=[True], inner=True)
    assert size_class(kernel, (16, 47), (16,), (47,), (3008,)).whole == (0,)
    monkeypatch.setattr(triton_sizes, "VECTORS_FROM", 1 << 16)
    assert size_class(kernel, (16, 48), (16,), (48,), (3072,)).whole == ()


def test_no_size_exceeds_its_class():
    for n in range(1, 5000):
        assert n <= rounded(n) <= max(16, n * 1.25)
        assert rounded(rounded(n)) == rounded(n)
    key = size_class(dict(outer=[True, False], inner=True), (33,), (33, 12), (5, 33), (9,))
    assert key.outer == (40, 12) and key.length == 256 and not key.wide


def test_text_depends_on_symbols_alone():
    """Sizes of the first call choose blocks and nothing else."""
    fn, shapes, hints, _ = CASES["heads"]
    texts = {triton_sized.generate(schedule(lower(graph_of(fn, shapes, dict(s0=s0, s1=24))), GPU), REFERENCE).text for s0 in (17, 18, 20)}
    assert len(texts) == 1


def test_known_sizes_beside_unknown_ones_stay_numbers():
    source = source_of("layer norm")[1]
    text = source.text
    assert "r < 48" in text and "/ 48.0" in text


@pytest.mark.parametrize("name", ["softmax", "layer norm of any length", "transposed", "column sums", "joined"])
def test_golden(name):
    check_golden(f"{name.replace(' ', '_')}_sizes", source_of(name)[1].text)


@pytest.mark.slow
def test_machine_code_for_two_generations():
    """Every kernel in its first class, with wide offsets, with sizes known to be multiples, and with rows too many or too long."""
    programs = []
    for name in CASES:
        for kernel in source_of(name)[1].kernels:
            key = SizeClass(*kernel["variants"][0][0])
            others = [key._replace(wide=True), key._replace(whole=tuple(range(len(key.symbols)))), key._replace(length=1 << 17),
                      key._replace(outer=tuple(n * 1000 for n in key.outer))]
            made = [triton_sized.variant(base64.b64decode(kernel["plan"]), k, dataclasses.asdict(REFERENCE)) for k in others]
            programs += [c["program"] for v in (kernel["variants"][0][1], *made) for c in v["calls"]]
    futures = triton_pool.submit(programs, 90) + triton_pool.submit(programs[::5], 80)
    check_machine_code(futures)


# ------------------------------------------------------------------ launching
def test_launcher_walks_the_table_of_a_plan():
    """The C that launches, with a driver of our own behind it: pointers, the arena, sizes of 32 and 64 bits, numbers of the call."""
    table = dict(kernels=[], runs=[dict(pointers=2, numbers="ld", aligned=[0])])
    c = cache.compile_c(triton_wrapper.launcher_text(table))
    calls = []
    unsigned = ctypes.c_uint
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[unsigned] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)

    def driver(function, x, y, z, threads, _, __, shared, stream, args, extra):
        read = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64, ctypes.c_double]
        calls.append((function, x, y, threads, shared, stream, [t.from_address(args[k]).value for k, t in enumerate(read)] if function == 5 else []))
        return 0
    callback = kind(driver)
    ctypes.c_void_p.in_dll(c, "launch").value = ctypes.cast(callback, ctypes.c_void_p).value
    full = [5, 7, 3, 128, 1024, 5, triton_sizes.POINTER, 1, triton_sizes.ARENA, 64, triton_sizes.SIZE, 1000, triton_sizes.SCALAR, 0, triton_sizes.SCALAR, 1]
    table = [3, *full, 6, 0, 3, 128, 0, 0, 8, 1, 1, 32, 0, 0]
    numbers = (ctypes.c_int64 * len(table))(*table)
    c.run0.argtypes, c.run0.restype = [ctypes.c_void_p] * 5 + [ctypes.c_int64, ctypes.c_double], ctypes.c_int
    assert c.run0(9, 1 << 20, numbers, 64, 132, 1 << 40, 0.25) == 0
    assert calls == [(5, 7, 3, 128, 1024, 9, [132, (1 << 20) + 64, 1000, 1 << 40, 0.25]), (8, 1, 1, 32, 0, 9, [])]
    assert c.run0(9, 1 << 20, numbers, 68, 132, 0, 0.0) == triton_wrapper.UNALIGNED and len(calls) == 2


def test_wrong_index_raises_at_any_size(interpreted):
    fn = minipt2.compile(lambda table, i: table[i] * 2, dynamic=True)
    for n in (5, 9):
        table = torch.randn(n, 3)
        torch.testing.assert_close(fn(table, torch.tensor([n - 1, -n])), table[[n - 1, -n]] * 2)
        with pytest.raises(IndexError, match="out of range"):
            fn(table, torch.tensor([1, n]))


def test_sizes_that_data_decides_may_be_zero(interpreted):
    def fn(x):
        return torch.relu(x[x > 0] * 2), x.sum()
    call = minipt2.compile(fn)
    for x in (torch.tensor([1.0, -1.0, 3.0]), torch.tensor([-1.0, -2.0]), torch.ones(9)):
        assert_same(fn(x), call(x))


def test_inputs_that_are_not_aligned(interpreted):
    call = minipt2.compile(lambda v: torch.relu(v) + 1, dynamic=True)
    base = torch.randn(65)
    for n in (65, 40):
        torch.testing.assert_close(call(base[1:n]), torch.relu(base[1:n]) + 1)


def test_a_learning_rate_that_varies(interpreted):
    """A number of the call is no size: no new plan for it."""
    made = []
    stop = trace.subscribe(lambda stage, name, payload: made.append(name), "recipe")
    call = minipt2.compile(lambda p, g, lr: p - lr * g, dynamic=True)
    for n, lr in ((8, 0.1), (9, 0.05), (9, 1e-3)):
        p, g = torch.randn(n), torch.randn(n)
        torch.testing.assert_close(call(p, g, lr), p - lr * g)
    stop()
    assert len(made) <= 2


def test_a_second_process_meets_a_new_class_without_lowering(interpreted, monkeypatch, tmp_path):
    fn = lambda v: F.softmax(v * 3, -1)
    with config.patch(cache_dir=str(tmp_path / "cache")):
        minipt2.compile(fn, dynamic=True)(torch.randn(8, 16))
        minipt2.reset()
        monkeypatch.setattr("minipt2.inductor.lowering.lower", None)
        call = minipt2.compile(fn, dynamic=True)
        for shape in ((8, 16), (5, 300), (2, 3)):
            x = torch.randn(shape)
            torch.testing.assert_close(call(x), fn(x))
    assert minipt2.counters()["plans_reused"] == 1


def test_what_a_plan_keeps_is_the_same_in_every_process():
    """Pickled plans hold no hashes of names, which differ between processes."""
    data = base64.b64decode(source_of("merged")[1].kernels[0]["plan"])
    program = ("import sys, pickle; plan = pickle.loads(sys.stdin.buffer.read()).plan\n"
               "from minipt2.inductor.scheduler.affine import Index\n"
               "assert all(a == Index(a.const, dict(a.terms)) and hash(a) == hash(Index(a.const, dict(a.terms))) "
               "for i in plan.instrs for a in i.args if isinstance(a, Index))")
    subprocess.run([sys.executable, "-c", program], input=data, check=True, env=dict(os.environ, PYTHONHASHSEED="1", PYTHONPATH=os.pathsep.join(sys.path)))


# ------------------------------------------------------------------ models
MODELS = {
    "gpt2": ("gpt2", [tokens(2, 8), tokens(3, 11), tokens(4, 16), tokens(2, 5)]),
    "bert": ("bert", [padded(2, 8), padded(3, 11), padded(2, 16)]),
    "resnet18 batches": ("resnet18", [images(n, 32) for n in (3, 4, 5)]),  # of two 1x1 images a batch norm makes +-1: eager's own gradients are 1e-2 off
    "resnet18 images": ("resnet18", [images(2, n) for n in (32, 48, 40)]),
}


@pytest.mark.parametrize("name, phase", [("gpt2", "infer"), ("gpt2", "train"), ("bert", "infer"), ("bert", "train"), ("resnet18 batches", "infer"),
                                         pytest.param("resnet18 images", "infer", marks=pytest.mark.slow),
                                         pytest.param("resnet18 batches", "train", marks=pytest.mark.slow)])
def test_two_compilations_serve_all_sizes(name, phase, interpreted):
    check_sizes(*MODELS[name], phase)


def test_a_growing_cache_takes_three_compilations(interpreted):
    check_growing_cache(6)
