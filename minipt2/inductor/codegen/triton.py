"""A schedule's kernels as Triton programs.

``generate(schedule)`` -> ``TritonSource``: for each kernel of the schedule, in order, the program to launch, its grid and the buffers to
pass. ``kernel(plan, blocks)`` is the text of one masked block program. Kernels of equal structure share one text: variables, values and
pointers have canonical names, sizes and block sizes are constants. Upstream: ``torch._inductor.codegen.triton.TritonScheduling``.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

from ... import trace
from ..hardware import Hw
from ..scheduler.kernels import Kernel, Schedule
from .c_openmp_plan import Plan, make_plan
from .triton_blocks import Blocks, choose
from .triton_ops import STORAGE, cast
from .triton_reduce import Accumulator
from .triton_values import Axis, Body


@dataclass(frozen=True)
class Program:
    """Text of a kernel, and all else that decides its machine code; JSON-able as ``vars``."""

    name: str
    text: str
    signature: tuple[str, ...]
    aligned: tuple[int, ...]
    """Positions of pointers that are multiples of 16 bytes."""
    warps: int = 4
    stages: int = 1


@dataclass
class Launch:
    """Run program ``kernel`` on ``grid`` blocks with pointers to ``args``, and to the error flags behind them if ``checks``."""

    kernel: int
    args: list[str]
    grid: tuple[int, int] = (1, 1)
    checks: bool = False
    name: str = ""


@dataclass
class TritonSource:
    """``launches[k]`` belongs to the k-th kernel of the schedule."""

    programs: list[Program] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n\n".join(p.text for p in self.programs)


def generate(schedule: Schedule, hw: Hw, tuned: Callable[[list[Plan], Schedule], list[Blocks]] | None = None) -> TritonSource:
    """Programs for all kernels of ``schedule``, with the blocks that ``tuned`` finds, or the first guesses."""
    source = TritonSource()
    known: dict[Any, int] = {}
    names: set[str] = set()
    plans = [make_plan(step, schedule) for step in schedule.kernels]
    chosen = tuned(plans, schedule) if tuned is not None else [choose(plan, hw, walked_across(plan)) for plan in plans]
    for step, plan, blocks in zip(schedule.kernels, plans, chosen):
        body = Writer(plan, blocks).write()
        key = (body.statements, blocks.warps, blocks.stages, tuple(p.dtype for p in plan.params), aligned(plan, schedule))
        if key not in known:
            known[key] = len(source.programs)
            source.programs.append(_program(title(step, names), step, plan, blocks, body, schedule))
        number = known[key]
        source.launches.append(Launch(number, [p.buffer for p in plan.params], body.grid, body.checks, source.programs[number].name))
    trace.artifact("codegen", schedule.program.name, lambda: source.text)
    return source


def variant(plan: Plan, blocks: Blocks, schedule: Schedule) -> tuple[Program, tuple[int, int], bool]:
    """A kernel with other blocks, to be raced: (program, grid, whether it takes error flags)."""
    body = Writer(plan, blocks).write()
    return _program("kernel", None, plan, blocks, body, schedule), body.grid, body.checks


def _program(name: str, step: Kernel | None, plan: Plan, blocks: Blocks, body: "Writer", schedule: Schedule) -> Program:
    signature = tuple("*" + STORAGE[p.dtype] for p in plan.params) + ("*i32",) * body.checks
    return Program(name, define(name, step, plan, body), signature, aligned(plan, schedule), blocks.warps, blocks.stages)


def kernel(plan: Plan, blocks: Blocks, name: str = "kernel") -> str:
    """The text of one program, without comments."""
    return define(name, None, plan, Writer(plan, blocks).write())


def define(name: str, step: Kernel | None, plan: Plan, body: "Writer") -> str:
    """The function's text, below what it computes and the user's lines it came from."""
    params = [p.name for p in plan.params] + ["err"] * body.checks
    return f"@triton.jit\ndef {name}({', '.join(params)}):\n{comment(step) if step is not None else ''}{body.statements}\n"


def comment(step: Kernel) -> str:
    lines = [f"    # {', '.join(step.origins or step.names)}"]
    lines += [f"    #   {f.file}:{f.line}  {f.text}".rstrip() for f in step.stack[:3]]
    return "\n".join(lines) + "\n"


def title(step: Kernel, taken: set[str]) -> str:
    """A name that tells in a profile what is computed: ``add_relu``, ``rows_softmax_mul``."""
    words = dict.fromkeys(o.rstrip("0123456789").strip("_") for o in step.origins)
    stem = "_".join([w for w in words if w.isidentifier()][:4]) or "fused"
    name, k = f"{stem}_kernel", 1
    while name in taken:
        name, k = f"{stem}_kernel{k}", k + 1
    taken.add(name)
    return name


def aligned(plan: Plan, schedule: Schedule) -> tuple[int, ...]:
    """Pointers that may be taken for multiples of 16: all but inputs that are written (others are copied where they are not)."""
    inputs = {b.name for b in schedule.program.inputs}
    return tuple(k for k, p in enumerate(plan.params) if p.buffer not in inputs or not p.written)


def walked_across(plan: Plan) -> str | None:
    """An outer loop along which some operand is contiguous while it jumps along the innermost one (a transpose)."""
    if plan.inner or len(plan.outer) < 2 or plan.outer[-1][1] < 16:
        return None
    last = plan.outer[-1][0]
    sizes = dict(plan.outer)
    for i in plan.instrs:
        if i.op in ("load", "store") and abs(i.args[1].stride(last)) > 1:
            for v, n in plan.outer[:-1]:
                if abs(i.args[1].stride(v)) == 1 and sizes[v] >= 16:
                    return v
    return None


class Writer(Body):
    """The statements of a kernel's function."""

    def __init__(self, plan: Plan, blocks: Blocks):
        self.blocks, self.persistent = blocks, bool(plan.inner) and blocks.persistent(plan)
        super().__init__(plan, self._axes(plan, blocks))
        self.stores = [i for i in plan.instrs if i.op == "store"]
        self.reduces = [i for i in plan.instrs if i.op == "reduce"]

    @property
    def statements(self) -> str:
        return "\n".join(self.lines)

    def _axes(self, plan: Plan, blocks: Blocks) -> list[Axis]:
        if plan.inner:
            return [Axis("x", plan.outer, blocks.x, "[:, None]"), Axis("r", plan.inner, blocks.r, "[None, :]", looped=not self.persistent)]
        if not blocks.y:
            return [Axis("x", plan.outer, blocks.x)]
        across = walked_across(plan)
        rest = [d for d in plan.outer[:-1] if d[0] != across] + [d for d in plan.outer[:-1] if d[0] == across]
        return [Axis("y", rest, blocks.y, "[:, None]"), Axis("x", plan.outer[-1:], blocks.x, "[None, :]")]

    def write(self) -> "Writer":
        self.constants()
        spread = [a for a in self.axes.values() if a.name != "r"]
        counts = {a.name: -(-a.length // a.block) for a in spread}
        order = sorted(spread, key=lambda a: -counts[a.name])  # the second dimension of a grid is short
        self.grid = tuple([counts[a.name] for a in order] + [1])[:2]
        for k, a in enumerate(order):
            self.axis(a, f"tl.program_id({k})" if counts[a.name] > 1 else "0")
        if not self.plan.inner:
            self._pointwise()
        else:
            self._rows()
        return self

    def _pointwise(self) -> None:
        for i in self.stores:
            self.compute(self.needs(i))
            self.store(i)

    # ------------------------------------------------------------ reductions
    def _rows(self) -> None:
        stage, in_row = self.plan.stage, self.plan.in_row
        if self.persistent:
            self.axis(self.axes["r"], "0")
        last = max([stage[i.id] for i in self.stores if i.id in in_row] + [stage[i.id] - 1 for i in self.reduces])
        for s in range(last + 2):
            self._store_all([i for i in self.stores if i.id not in in_row and stage[i.id] == s])
            self._pass([i for i in self.reduces if stage[i.id] == s + 1], [i for i in self.stores if i.id in in_row and stage[i.id] == s])

    def _store_all(self, stores: list[Any]) -> None:
        for i in stores:
            self.compute(self.needs(i))
            self.store(i)

    def _pass(self, reduces: list[Any], stores: list[Any]) -> None:
        """One walk over the row: what is accumulated in it, and what is stored along it."""
        if not reduces and not stores:
            return
        if self.persistent:
            for i in reduces:
                self._reduce(i)
            self._store_all(stores)
            return
        roots = [i.args[1].id for i in reduces] + [n for i in stores for n in self.needs(i)]
        self.compute(roots, along_row=False)
        accs = {i.id: (self.name("acc"), Accumulator(i.args[0], i.dtype)) for i in reduces}
        for name, acc in accs.values():
            self.line(f"{name} = {acc.full('[XBLOCK, RBLOCK]')}")
        r = self.axes["r"]
        with self.open(f"for start in range(0, {r.length}, RBLOCK):"):
            self.axis(r, "start")
            for i in reduces:
                self.compute([i.args[1].id])
                name, acc = accs[i.id]
                value = acc.combine(name, acc.prepared(self._element(i), "", "[XBLOCK, RBLOCK]"))
                self.line(f"{name} = tl.where(rmask, {value}, {name})" if r.masked else f"{name} = {value}")
            self._store_all(stores)
        for i in reduces:
            name, acc = accs[i.id]
            self._result(i, acc.lanes(name))

    def _element(self, i: Any) -> str:
        return cast(self.part(i.args[1]), self.dtype(i.args[1]), i.dtype)

    def _reduce(self, i: Any) -> None:
        """A reduction over a whole row in registers."""
        self.compute([i.args[1].id])
        acc = Accumulator(i.args[0], i.dtype)
        mask = "rmask" if self.axes["r"].masked else ""
        block = acc.prepared(self._element(i), mask, "[XBLOCK, RBLOCK]")
        if mask and "r" not in self.spread[i.args[1].id]:
            block = f"tl.broadcast_to({block}, [XBLOCK, RBLOCK])"
        self._result(i, acc.lanes(block))

    def _result(self, i: Any, text: str) -> None:
        name = self.name()
        self.line(f"{name} = {text}")
        self.scopes[0][i.id] = name
