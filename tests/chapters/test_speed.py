"""What each chapter contributes, as an ablation: a counter that must move, and (marker ``speed``, run alone) a ratio with its interval.

A ratio passes when its whole interval (``deciding``) lies above the floor, and fails when it lies below; a machine on which it still spans the
floor after a minute has decided nothing, and the test says so. Floors are modest: they must hold on any machine. A control goes with each: with
the ablation disconnected, both sides compiled alike, the same test must not pass.
"""
from __future__ import annotations

import contextlib
import re
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
from minipt2.inductor.lowering import graph
from minipt2.prims import decompositions

from . import deciding

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
    return lambda: captured(model, args)()  # its entries die with it; a reset would take the other side's along


def captured(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return forward(minipt2.compile(model, backend="eager"), args)


def trained(model: nn.Module, args: tuple) -> Callable[[], Any]:
    return backward(minipt2.compile(model), args)


def _graphs(rules: dict, compile_backward: bool = True) -> Callable:
    """A backend: the inductor's, with these decompositions."""
    def backend(gm: fx.GraphModule, examples: list) -> Callable:
        def compiler(gm: fx.GraphModule, inputs: list, inference: bool = False) -> Callable:
            return inductor.compile_graph(gm, inputs, inference=inference, name="ablation")
        return aot_compile(gm, examples, fw_compiler=compiler, bw_compiler=compiler if compile_backward else run_eagerly,
                           inference_compiler=lambda gm, inputs: compiler(gm, inputs, True),
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
def prim_by_prim() -> Iterator[None]:
    """Every prim's result goes to memory meanwhile, by a loop of its own."""
    before, graph.MAX_OPS = graph.MAX_OPS, 0
    try:
        with config.patch(fusion=False, disk_cache=False):
            yield
    finally:
        graph.MAX_OPS = before


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


def by_the_library(model: nn.Module, args: tuple) -> Callable[[], Any]:
    """No race: products and convolutions are the vendor's."""
    return forward(minipt2.compile(model, options={"packed_products": False}), args)


CHAPTERS = {
    0: Ablation(plain, compiled, False, {"gpt2": 1.05, "resnet18": 1.05}),
    1: Ablation(broken, compiled, False, {"gpt2": 1.02, "resnet18": 1.05}),
    2: Ablation(recorded_each_time, captured, False, {"gpt2": 1.1, "resnet18": 1.05}),
    3: Ablation(eager_backward, trained, True, {"gpt2": 1.05, "mobilenetv2": 1.05}),
    4: Ablation(whole_composites, compiled, False, {"gpt2": 1.05, "mobilenetv2": 1.05}),
    5: Ablation(first_step_under(prim_by_prim, trained), trained, True, {"gpt2": 1.05, "mobilenetv2": 1.05}),
    6: Ablation(first_step_under(naive_text, without_onednn), without_onednn, False, {"gpt2": 1.05, "resnet18": 1.02}),
    7: Ablation(by_the_library, compiled, False, {"vit": 1.02, "mobilenetv2": 1.05}),
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


def test_decompositions_leave_fewer_library_calls(fresh):
    without, with_it = (counted(side)["fallbacks"] for side in sides(4, "gpt2", "small"))
    assert without > with_it


def test_fusion_leaves_fewer_kernels(fresh):
    args = models.inputs("gpt2", "small")
    with prim_by_prim():
        apart = counted(trained(models.build("gpt2", "small"), args))["kernels"]
    assert apart > 3 * counted(trained(models.build("gpt2", "small"), args))["kernels"] > 0


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
    """In turns, as they are timed: neither side makes the other compile."""
    without, with_it = sides(2, "gpt2", "small")
    counts = []
    for step in (without, with_it, with_it, without, without, with_it):
        before = minipt2.counters()["graphs"]
        step()
        counts.append(minipt2.counters()["graphs"] - before)
    assert counts == [1, 1, 0, 1, 1, 0]


def test_symbols_save_compilations(fresh):
    def graphs(dynamic: bool | None) -> int:
        minipt2.reset()
        f = minipt2.compile(lambda x: torch.softmax(x, -1), dynamic=dynamic, backend="eager")
        for n in range(2, 7):
            f(torch.randn(n, 4))
        return minipt2.counters()["graphs"]
    assert graphs(False) == 5 > graphs(None) >= graphs(True) == 1


# ------------------------------------------------------------------ ratios
@pytest.mark.speed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chapter, name", CASES)
def test_chapter_pays(chapter, name, fresh, record_property):
    without, with_it = sides(chapter, name, CHAPTERS[chapter].size)
    deciding.judge(deciding.decide(deciding.in_turns(without, with_it), CHAPTERS[chapter].floors[name]), record_property)


@pytest.mark.speed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chapter, name", CASES)
def test_disconnected_it_does_not_pay(chapter, name, fresh, record_property):
    """The control: compiled twice with what the chapter adds, the same floor."""
    _, one = sides(chapter, name, CHAPTERS[chapter].size)
    _, other = sides(chapter, name, CHAPTERS[chapter].size)
    decision = deciding.decide(deciding.in_turns(one, other), CHAPTERS[chapter].floors[name])
    record_property("decision", str(decision))
    assert decision.verdict != "pays", str(decision)
