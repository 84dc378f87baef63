"""What each chapter contributes, as an ablation: a counter that must move, and (marker ``speed``, run alone) a ratio with its interval.

A ratio passes when the whole 95 % interval of ``report.measure`` lies above the floor, and fails when it lies below; a machine on which it
still spans the floor after ``BUDGET`` seconds has decided nothing, and the test says so. Floors are modest: they must hold on any machine.
"""
from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from typing import Any, Callable, Iterator, NamedTuple

import pytest
import torch
from torch import fx, nn

import minipt2
from minipt2 import inductor, models, prims
from minipt2.aot_autograd import aot_compile
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.config import config
from minipt2.course import programs
from minipt2.inductor.codegen import c_openmp_ops, runs
from minipt2.prims import decompositions
from minipt2.report import measure

BUDGET = 60.0
COMPOSITES = ("native_layer_norm", "_softmax", "gelu", "native_batch_norm", "sigmoid", "silu", "hardswish")


class Ablation(NamedTuple):
    """``without`` and ``with_it`` make a step of a model and its inputs, compiled without and with what the chapter adds."""

    without: Callable[[nn.Module, tuple], Callable[[], Any]]
    with_it: Callable[[nn.Module, tuple], Callable[[], Any]]
    training: bool
    floors: dict[str, float]
    size: str = "bench"


# ------------------------------------------------------------------ the sides
def forward(compiled: Callable, args: tuple) -> Callable[[], Any]:
    def step() -> Any:
        with torch.no_grad():
            return compiled(*args)
    return step


def backward(compiled: Callable, args: tuple) -> Callable[[], Any]:
    return lambda: models.loss(compiled(*args)).backward()


def plain(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return forward(model, args)


def compiled(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return forward(minipt2.compile(model), args)


def unfused(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return forward(minipt2.compile(model, options={"fusion": False}), args)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost modules of a kind that the model has several of: its residual blocks, its layers."""
    kinds = Counter(type(m) for m in model.modules() if len(list(m.children())) > 1 and not isinstance(m, (nn.Sequential, nn.ModuleList)))
    found: list[nn.Module] = []
    for module in model.modules():
        if kinds[type(module)] > 1 and not any(module in set(outer.modules()) for outer in found):
            found.append(module)
    return found


def broken(model: nn.Module, args: tuple, backend: str = "inductor") -> Callable[[], Any]:
    """A graph break before every block."""
    for block in blocks(model):
        block.register_forward_pre_hook(lambda module, args: print(end=""))
    return forward(minipt2.compile(model, backend=backend), args)


def recorded_each_time(model: nn.Module, args: tuple) -> Callable[[], Any]:
    """Captured anew at every call, as a lazy tensor is: no guards, no cache."""
    def step() -> Any:
        minipt2.reset()
        return forward(minipt2.compile(model, backend="eager"), args)()
    return step


def captured(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return forward(minipt2.compile(model, backend="eager"), args)


def trained(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return backward(minipt2.compile(model), args)


def _graphs(rules: dict, compile_backward: bool = True) -> Callable:
    """A backend: the inductor's, with these decompositions."""
    def backend(gm: fx.GraphModule, examples: list) -> Callable:
        def compiler(graph: fx.GraphModule, inputs: list, inference: bool = False) -> Callable:
            return inductor.compile_graph(graph, inputs, inference=inference, name="ablation")
        return aot_compile(gm, examples, fw_compiler=compiler, bw_compiler=compiler if compile_backward else run_eagerly,
                           inference_compiler=lambda graph, inputs: compiler(graph, inputs, True),
                           decompose=lambda joint: inductor.choose_layouts(prims.expand(joint, rules)))
    return backend


def eager_backward(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return backward(minipt2.compile(model, backend=_graphs(decompositions, compile_backward=False)), args)


def whole_composites(model: nn.Module, args: tuple) -> Callable[[], Any]:
    """Softmax, norms and activations stay calls of PyTorch's kernels."""
    rules = {op: rule for op, rule in decompositions.items() if op._schema.name.removeprefix("aten::") not in COMPOSITES}
    return forward(minipt2.compile(model, backend=_graphs(rules)), args)


NAIVE = {
    "relu": lambda c, a: f"__builtin_fmax{c.f}({a}, 0)", "maximum": lambda c, a, b: f"__builtin_fmax{c.f}({a}, {b})",
    "minimum": lambda c, a, b: f"__builtin_fmin{c.f}({a}, {b})", "exp": lambda c, a: f"__builtin_exp{c.f}({a})",
    "sigmoid": lambda c, a: f"(1 / (1 + __builtin_exp{c.f}(-{a})))", "tanh": lambda c, a: f"__builtin_tanh{c.f}({a})",
    "erf": lambda c, a: f"__builtin_erf{c.f}({a})",
}
"""What one would write first: the C library's functions, which stay scalar."""


@contextlib.contextmanager
def naive_text() -> Iterator[None]:
    """Code is generated with ``NAIVE`` meanwhile, and nothing is kept of it."""
    tables = (c_openmp_ops._ANY, c_openmp_ops._FLOAT)
    before = [dict(t) for t in tables]
    try:
        for table in tables:
            table.update({name: rule for name, rule in NAIVE.items() if name in table})
        with config.patch(disk_cache=False):
            yield
    finally:
        for table, old in zip(tables, before):
            table.update(old)


@contextlib.contextmanager
def kernel_by_kernel() -> Iterator[None]:
    """Every kernel is called from Python on its own meanwhile."""
    before, runs.MOST_POINTERS = runs.MOST_POINTERS, -1
    try:
        with config.patch(disk_cache=False):
            yield
    finally:
        runs.MOST_POINTERS = before


def first_step_under(how: Callable, side: Callable) -> Callable:
    """A side whose first step, which compiles, runs under ``how()``."""
    def made(model: nn.Module, args: tuple) -> Callable[[], Any]:
        step = side(model, args)
        with how():
            step()
        return step
    return made


def without_onednn(model: nn.Module, args: tuple) -> Callable[[], Any]:
    """Activations in generated code, not in the library's convolutions."""
    return forward(minipt2.compile(model, options={"onednn": False, "channels_last": False}), args)


CHAPTERS = {
    0: Ablation(plain, compiled, False, {"gpt2": 1.05, "resnet18": 1.0}),
    1: Ablation(broken, compiled, False, {"gpt2": 1.05, "resnet18": 1.02}),
    2: Ablation(recorded_each_time, captured, False, {"gpt2": 1.1, "resnet18": 1.03}),
    3: Ablation(eager_backward, trained, True, {"gpt2": 1.03, "mobilenetv2": 1.03}),
    4: Ablation(whole_composites, compiled, False, {"gpt2": 1.0, "mobilenetv2": 1.0}),
    5: Ablation(unfused, compiled, False, {"gpt2": 1.03, "mobilenetv2": 1.03}),
    6: Ablation(first_step_under(naive_text, without_onednn), without_onednn, False, {"gpt2": 1.05, "resnet18": 1.02}),
    7: Ablation(first_step_under(kernel_by_kernel, trained), trained, True, {"gpt2": 1.0, "mobilenetv2": 1.0}, "small"),
}
CASES = [(chapter, model) for chapter, ablation in CHAPTERS.items() for model in ablation.floors]


def sides(chapter: int, name: str, size: str) -> tuple[Callable, Callable]:
    made = []
    for side in CHAPTERS[chapter][:2]:
        model = models.build(name, size)
        made.append(side(model if CHAPTERS[chapter].training else model.eval(), models.inputs(name, size)))
    return tuple(made)


def counted(step: Callable[[], Any]) -> Counter:
    """What compiling one step made."""
    minipt2.reset()
    step()
    return Counter(minipt2.counters())


# ------------------------------------------------------------------ counters: these gate
@pytest.mark.parametrize("name", ["gpt2", "resnet18"])
def test_breaks_make_graphs(name, fresh):
    model, args = models.build(name, "small").eval(), models.inputs(name, "small")
    assert counted(captured(model, args))["graphs"] == 1 and len(blocks(model)) > 1
    assert counted(broken(model, args, backend="eager"))["graphs"] > 2


@pytest.mark.parametrize("chapter, counter", [(4, "fallbacks"), (5, "kernels")])
def test_the_counter_moves(chapter, counter, fresh):
    without, with_it = (counted(side)[counter] for side in sides(chapter, "gpt2", "small"))
    assert without > with_it


def test_naive_text_calls_the_library(fresh):
    """Same schedule, other text."""
    def generated(how: Callable) -> str:
        minipt2.reset()
        with how():
            return "".join(programs.generated(without_onednn(models.build("gpt2", "small").eval(), models.inputs("gpt2", "small")), ".c"))
    naive, ours = generated(naive_text), generated(lambda: config.patch(disk_cache=False))
    of_library, of_ours = re.compile(r"= .*__builtin_(exp|tanh|erf|fmax)f\("), re.compile(r"= .*mp_(exp|tanh|erf|sigmoid)f\(")
    assert of_library.search(naive) and not of_ours.search(naive)
    assert of_ours.search(ours) and not of_library.search(ours)


def test_runs_of_kernels_are_one_call_from_python(fresh):
    def calls(how: Callable) -> int:
        minipt2.reset()
        with how():
            return sum(text.count(" = bind(library") for text in programs.generated(
                trained(models.build("mobilenetv2", "small"), models.inputs("mobilenetv2", "small")), ".py"))
    assert calls(kernel_by_kernel) > calls(lambda: config.patch(disk_cache=False)) > 0


def test_a_compiled_backward_has_kernels_and_an_eager_one_none(fresh):
    without, with_it = (counted(side)["kernels"] for side in sides(3, "gpt2", "small"))
    assert with_it > without > 0


def test_guards_save_every_capture_but_the_first(fresh):
    without, with_it = sides(2, "gpt2", "small")
    with_it()
    before = minipt2.counters()["graphs"]
    with_it()
    assert minipt2.counters()["graphs"] == before
    without()
    assert minipt2.counters()["graphs"] == 1  # reset, captured, and forgotten at the next call


def test_symbols_save_compilations(fresh):
    def graphs(dynamic: bool | None) -> int:
        minipt2.reset()
        f = minipt2.compile(lambda x: torch.softmax(x, -1), dynamic=dynamic, backend="eager")
        for n in range(2, 7):
            f(torch.randn(n, 4))
        return minipt2.counters()["graphs"]
    assert graphs(False) == 5 > graphs(None) >= graphs(True) == 1


# ------------------------------------------------------------------ ratios
def decided(slow: Callable, fast: Callable, floor: float) -> measure.Ratio:
    """Rounds until the interval is on one side of ``floor``, or ``BUDGET`` seconds are over."""
    measure.pin_malloc()
    end, a, b = time.perf_counter() + BUDGET, [], []
    while True:
        timing = measure.interleave({"slow": slow, "fast": fast}, 6, time.process_time, warmup=0 if a else 3)
        a += timing["slow"].seconds
        b += timing["fast"].seconds
        ratio = measure.ratio(a, b)
        if len(a) >= 12 and (ratio.low > floor or ratio.high < floor) or time.perf_counter() > end:
            return ratio


@pytest.mark.speed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chapter, name", CASES)
def test_chapter_pays(chapter, name, fresh, record_property):
    floor = CHAPTERS[chapter].floors[name]
    slow, fast = sides(chapter, name, CHAPTERS[chapter].size)
    ratio = decided(slow, fast, floor)
    record_property("ratio", ratio)
    if ratio.low <= floor <= ratio.high:
        pytest.skip(f"inconclusive on this machine: {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}], floor {floor}")
    assert ratio.low > floor, f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] in {ratio.rounds} rounds"


@pytest.mark.speed
def test_a_side_against_itself_is_one(fresh):
    step = compiled(models.build("gpt2", "small").eval(), models.inputs("gpt2", "small"))
    ratio = decided(step, step, 1.5)
    assert ratio.low <= 1.05 and ratio.high >= 0.95
