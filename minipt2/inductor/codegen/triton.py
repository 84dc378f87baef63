"""A schedule's kernels as Triton programs.

``generate(schedule)`` -> ``TritonSource``: for each kernel of the schedule, in order, the program to launch, its grid and the buffers to
pass. ``kernel(plan, blocks)`` is the text of one masked block program. Kernels of equal structure share one text: variables, values and
pointers have canonical names, sizes and block sizes are constants. Upstream: ``torch._inductor.codegen.triton.TritonScheduling``.
"""
from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Callable, Iterable, Iterator, Sequence

import torch

from ... import trace
from ..hardware import Hw
from ..ir import Instr
from ..scheduler.affine import Index
from ..scheduler.attention import Attention
from ..scheduler.kernels import Kernel, Schedule
from ..scheduler.templates import Template
from . import triton_split_k as split_k
from .c_openmp_plan import Param, Plan, make_plan
from .index import size_text
from .triton_attention import AttentionWriter, attention_plan
from .triton_blocks import Blocks, choose, stays_near
from .triton_cut import cuts
from .triton_half import cheaper
from .triton_ops import HALF, STORAGE, cast, expression
from .triton_order import in_order
from .triton_reduce import Accumulator, Online, Welford, accumulator
from .triton_rewalk import online, walks
from .triton_softmax import brief
from .triton_template import TemplateWriter
from .triton_template_plan import template_plan
from .triton_tiles import sides, walked_across, y_loop
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
class Call:
    """Program ``kernel`` on ``grid`` blocks with pointers to ``args`` (buffers, or pieces of a launch's workspace), and to the error flags
    behind them if ``checks``."""

    kernel: int
    args: list[str]
    grid: tuple[int, int] = (1, 1)
    checks: bool = False


@dataclass
class Launch:
    """What runs a kernel of the schedule that touches the buffers ``args``: one program, or two that share the pieces ``work`` of memory
    (name -> bytes)."""

    args: list[str]
    calls: list[Call]
    work: dict[str, int] = field(default_factory=dict)

    @property
    def checks(self) -> bool:
        return any(c.checks for c in self.calls)


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
    known: dict[Program, int] = {}
    names: set[str] = set()
    plans = [brief(cheaper(make_plan(step, schedule))) for step in schedule.kernels if not isinstance(step, Template)]
    blocks = tuned(plans, schedule) if tuned is not None else [choose(plan, hw, walked_across(plan)) for plan in plans]
    chosen = iter(zip(plans, in_order(schedule, plans, blocks, hw)))
    for step in schedule.kernels:
        written = templates(step, schedule) if isinstance(step, Template) else bodies(*next(chosen))
        launch = Launch([p.buffer for p in written[0].plan.params], [])
        for body in written:
            program = program_of(body, schedule)
            if program not in known:
                known[program] = len(source.programs)
                source.programs.append(replace(program, name=(name := title(step, names)), text=define(name, comment(step), body)))
            launch.work.update(body.work)
            args = [p.buffer for p in body.params] + list(body.work)
            launch.calls.append(Call(known[program], args, body.grid, body.checks))
        source.launches.append(launch)
    trace.artifact("codegen", schedule.program.name, lambda: source.text)
    return source


def bodies(plan: Plan, blocks: Blocks, most: Plan | None = None) -> list["Writer"]:
    """One program, or where programs share rows the two that run one after the other. ``most``: see ``Writer``."""
    if blocks.split == 1:
        return [_whole(plan, blocks, most).write()]
    from .triton_split import Final, Part
    return [Part(plan, blocks, most).write(), Final(plan, blocks, most).write()]


def _whole(plan: Plan, blocks: Blocks, most: Plan | None = None) -> "Writer":
    """What writes a kernel of one program."""
    from .triton_resident import Resident, resident
    return (Resident if resident(plan, blocks) else Writer)(plan, blocks, most)


def templates(step: Template, schedule: Schedule) -> list[TemplateWriter]:
    """A contraction with the loops after it, in the tiles chosen for it: one program, or two where programs share a tile's summands; those that cut
    its operands before."""
    if isinstance(step.contraction, Attention):
        return [AttentionWriter(attention_plan(step, schedule), step.tile).write()]
    kinds = [TemplateWriter] if step.tile.split == 1 else [split_k.Part, split_k.Sum]
    plan = template_plan(step, schedule)
    return [body.write() for body in (*cuts(plan, step.tile), *(kind(plan, step.tile) for kind in kinds))]


def variant(plan: Plan, blocks: Blocks, schedule: Schedule) -> tuple[Program, tuple[int, int], bool]:
    """A kernel with other blocks, to be raced: (program, grid, whether it takes error flags)."""
    body = _whole(plan, blocks).write()
    return program_of(body, schedule), body.grid, body.checks


def program_of(body: "Writer | TemplateWriter", schedule: Schedule) -> Program:
    """The program ``kernel`` of a body, without comments."""
    inputs = {b.name for b in schedule.program.inputs}
    # inputs that are written may begin anywhere (others are copied where they are not aligned)
    aligned = [k for k, p in enumerate(body.params) if p.buffer not in inputs or not p.written]
    signature = [p.dtype for p in body.params] + list(body.work_types)
    count = len(body.params)
    return Program("kernel", define("kernel", "", body), tuple("*" + STORAGE[d] for d in signature) + ("*i32",) * body.checks,
                   (*aligned, *range(count, count + len(body.work))), body.blocks.warps, body.blocks.stages)


def kernel(plan: Plan, blocks: Blocks, name: str = "kernel") -> str:
    """The text of one program, without comments."""
    return define(name, "", _whole(plan, blocks).write())


def define(name: str, comment: str, body: "Writer | TemplateWriter") -> str:
    """The function's text, below what it computes and the user's lines it came from."""
    params = [p.name for p in body.params] + list(body.work) + [s.name for s in body.numbers] + ["err"] * body.checks
    return f"@triton.jit\ndef {name}({', '.join(params)}):\n{comment}{body.statements}\n"


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


class Writer(Body):
    """The statements of a kernel's function. ``work``: bytes of its pieces of workspace, of ``work_types``. ``spans``: for each dimension
    of its grid, the loops that it covers and how many of their iterations a program takes."""

    def __init__(self, plan: Plan, blocks: Blocks, most: Plan | None = None):
        """``most``: for a plan whose sizes are arguments, the same plan with numbers that no size of this program exceeds."""
        self.most = most or plan
        self.blocks, self.persistent = blocks, bool(plan.inner) and blocks.persistent(self.most)
        super().__init__(plan, self._axes(plan, blocks))
        self.stores = [i for i in plan.instrs if i.op == "store"]
        self.reduces = [i for i in plan.instrs if i.op == "reduce"]
        self.online = {} if self.persistent or not plan.inner or stays_near(self.most) else online(plan)
        self.walks: dict[tuple[str, Any], list[int]] = {}
        self.walk, self.in_held = 0, False
        self.roots: Sequence[int] = ()
        known = plan.inner and isinstance(length := self.axes["r"].length, int) and not self.persistent
        self.held: list[dict[int, str]] = [{} for _ in range(min(blocks.held, length // blocks.r) if known and blocks.split == 1 else 0)]
        """What stays of each piece in registers, by value."""
        self.work: dict[str, int] = {}
        self.work_types: list[torch.dtype] = []

    @property
    def statements(self) -> str:
        return "\n".join(self.lines)

    @property
    def params(self) -> list[Param]:
        """The pointers that the statements use."""
        used = set(re.findall(r"\b(?:in|out|io)\d+\b", self.statements))
        return [p for p in self.plan.params if p.name in used]

    def _axes(self, plan: Plan, blocks: Blocks) -> list[Axis]:
        if plan.inner:
            known = all(isinstance(n, int) for _, n in plan.inner)
            return [Axis("x", plan.outer, blocks.x, "[:, None]"),
                    Axis("r", plan.inner, blocks.r, "[None, :]", looped=not self.persistent, ragged=self.persistent and not known)]
        if not blocks.y:
            return [Axis("x", plan.outer, blocks.x)]
        z, y, x = sides(plan, y_loop(self.most, blocks.z > 0), deep=blocks.z > 0)
        if not z:
            return [Axis("y", y, blocks.y, "[:, None]"), Axis("x", x, blocks.x, "[None, :]")]
        return [Axis("z", z, blocks.z, "[:, None, None]"), Axis("y", y, blocks.y, "[None, :, None]"), Axis("x", x, blocks.x, "[None, None, :]")]

    def write(self) -> "Writer":
        self.constants()
        spread = [a for a in self.axes.values() if a.name != "r"]
        sizes = dict(self.most.outer)
        self.counts = {a.name: -(-prod(sizes[v] for v, _ in a.vars) // a.block) for a in spread}
        # z and y share a dimension of the grid
        groups = [spread] if len(spread) == 1 else [spread[:-1], spread[-1:]]
        programs = [prod(self.counts[a.name] for a in group) for group in groups]
        order = sorted(range(len(groups)), key=lambda k: -programs[k])  # the second dimension of a grid is short
        self.grid = tuple([programs[k] for k in order] + [1])[:2]
        self.spans = [([v for a in groups[k] for v, _ in a.vars], prod(a.block for a in groups[k])) for k in order]
        for dim, k in enumerate(order):
            self._begin(groups[k], self.program(dim) if programs[k] > 1 else "0")
        if not self.plan.inner:
            self._store_all(self.stores)
        else:
            self._rows()
        return self

    def program(self, dim: int) -> str:
        """Which of the programs along a dimension of the grid this is."""
        return f"(tl.num_programs({dim}) - 1 - tl.program_id({dim}))" if self.blocks.back else f"tl.program_id({dim})"

    def _begin(self, group: Sequence[Axis], program: str) -> None:
        """The elements of the axes that share a dimension of the grid, in which this is ``program``."""
        *outer, last = group
        if not outer or self.counts[outer[0].name] == 1 or self.counts[last.name] == 1:
            for a in group:
                self.axis(a, program if self.counts[a.name] > 1 else "0")
            return
        self.line(f"tile = {program}")
        self.axis(outer[0], f"(tile // {self.counts[last.name]})")
        self.axis(last, f"(tile % {self.counts[last.name]})")

    def _store_all(self, stores: Sequence[Instr]) -> None:
        for i in stores:
            self.compute(self.needs(i))
            self.store(i)

    # ------------------------------------------------------------ reductions
    def place(self, name: str, index: Index, over: Iterable[str]) -> str:
        """Where a program has one row, its beginning is one pointer, and elements lie at numbers known to the compiler beyond it: in one sum of 32 bits
        each vector had a pointer (on an H200, a layer norm of 16384: 90 registers instead of 64, one program an SM instead of two)."""
        if self.plan.inner and not self.plan.column and self.blocks.x == 1 and index.is_affine():
            inner = {v for v, _ in self.plan.inner}
            row = Index(index.const, {v: c for v, c in index.terms.items() if v not in inner})
            along = Index(0, {v: c for v, c in index.terms.items() if v in inner})
            if row.names() and along.names() and self.index_axes(index) >= set(over):
                begin, text = (self.number_text(self.along_axes(part)) for part in (row, along))
                return " + ".join([name, *(f"({t})" if " " in t else t for t in (begin, text))])
        return super().place(name, index, over)

    def _rows(self) -> None:
        stage, in_row = self.plan.stage, self.plan.in_row
        if self.persistent:
            self.axis(self.axes["r"], "0")
        last = max([stage[i.id] for i in self.stores if i.id in in_row] + [stage[i.id] - 1 for i in self.reduces])
        found = {i.id for i in self.online.values()}
        passes = [([i for i in self.reduces if stage[i.id] == s + 1 and i.id not in found],
                   [i for i in self.stores if i.id in in_row and stage[i.id] == s]) for s in range(last + 2)]
        if not self.persistent:
            self.walks = walks(self.plan, [[i.args[1].id for i in reduces] + [n for i in stores for n in self.needs(i)] for reduces, stores in passes])
        for self.walk, (reduces, stores) in enumerate(passes):
            self._store_all([i for i in self.stores if i.id not in in_row and stage[i.id] == self.walk])
            self._pass(reduces, stores)

    def cached(self, load: Instr) -> str:
        """What is read again on the next walk over a row is kept, what was read for the last time goes first."""
        if self.in_held:
            return ""
        seen = self.walks.get(load.args[:2], [self.walk])
        if self.walk < seen[-1]:
            return ', eviction_policy="evict_last"'
        return ', eviction_policy="evict_first"' if seen[0] < self.walk else ""

    def kept_out(self, store: Instr) -> str:
        """What is written along rows that are read again shall not take their place."""
        again = store.id in self.plan.in_row and any(len(seen) > 1 for seen in self.walks.values())
        return ', eviction_policy="evict_first"' if again else ""

    def accumulator(self, i: Instr) -> "Accumulator | Online | Welford":
        if i.id not in self.online:
            return accumulator(i.args[0], i.dtype)
        exp = self.by_id[self.online[i.id].args[1].id]
        return Online(i.dtype, expression(exp.op, exp.dtype, "").removesuffix("()"))

    def _pass(self, reduces: Sequence[Instr], stores: Sequence[Instr]) -> None:
        """One walk over the row: what is accumulated in it, and what is stored along it."""
        if self.persistent:
            for i in reduces:
                self.compute([i.args[1].id])
                self.result(i, self._whole(i))
            self._store_all(stores)
        elif reduces or stores:
            roots = [i.args[1].id for i in reduces] + [n for i in stores for n in self.needs(i)]
            self.compute(roots, along_row=False)
            self.roots = roots
            if self.walk == 0:
                self._ask(roots)
            accs = [self.accumulator(i) for i in reduces]
            names = [[self.name("acc") for _ in acc.parts] for acc in accs]
            for acc, parts in zip(accs, names):
                self.line(*acc.begin(parts))
            merged = any(isinstance(acc, Welford) for acc in accs)
            if merged:
                self.line("steps = 0.0")
            for piece in (*map(self.staying, range(len(self.held))), self.loop()):
                with piece:
                    if merged:
                        self.line("steps += 1.0")
                    for i, acc, parts in zip(reduces, accs, names):
                        self.compute([i.args[1].id])
                        self.line(*acc.update(parts, self._element(i), "rmask" if self.axes["r"].masked else ""))
                    self._store_all(stores)
            for i, parts in zip(reduces, names):
                self.finish(i, parts)

    def _ask(self, roots: Sequence[int]) -> None:
        """Loads of the pieces that stay, before the first is needed."""
        for k in range(len(self.held)):
            with self.staying(k):
                for id in self.closure(roots):
                    if self.by_id[id].op == "load" and self.by_id[id].args[1].is_affine():
                        self.define(id)

    def finish(self, i: Instr, names: Sequence[str]) -> None:
        """The running values ``names`` are complete."""
        acc = self.accumulator(i)
        self.line(*acc.merge(names))
        if isinstance(acc, Online):
            for j, text in zip((i, self.online[i.id]), acc.lanes(names)):
                self.result(j, [text])
        else:
            self.result(i, acc.lanes(names))

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Around the statements for a piece of the row."""
        r, end = self.axes["r"], size_text(self.axes["r"].length)
        begin, step = self.walked(end)
        asked = self._first(begin) if self.blocks.ahead else {}
        with self.open(f"for start in {self.steps(begin, end, step)}:"):
            if asked:
                self._next(asked, step, end)
            self.axis(r, "start")
            yield

    def walked(self, end: str) -> tuple[str, str]:
        """Where a walk begins, and how far its pieces lie apart."""
        return str(len(self.held) * self.blocks.r), "RBLOCK"

    def _first(self, begin: str) -> dict[int, str]:
        """Ask for what a walk reads of its first piece."""
        self.axis(self.axes["r"], begin)
        asked = {}
        for i in map(self.by_id.__getitem__, self.closure(self.roots)):
            if i.op == "load" and i.id in self.plan.in_row and i.args[1].is_affine():
                asked[i.id] = self.name("n")
                self.line(f"{asked[i.id]} = {self._bits(i)}")
        return asked

    def _next(self, asked: dict[int, str], step: str, end: str) -> None:
        """Take what was asked for, and ask for what the next piece has."""
        for id, name in asked.items():
            i = self.by_id[id]
            self.scopes[-1][id] = value = self.name()
            self.line(f"{value} = {name}" + ".to(tl.float32)" * (i.dtype in HALF))
        r = self.axes["r"]
        self.axis(r, f"start + {step}")
        self.only = "" if r.masked else f"(start + {step} < {end})"
        self.line(*(f"{name} = {self._bits(self.by_id[id])}" for id, name in asked.items()))
        self.only = ""

    def _bits(self, i: Instr) -> str:
        """A load as memory has it: halves take half the registers while they wait."""
        text = self._load(i)
        return text.removesuffix(".to(tl.float32)") if i.dtype in HALF else text

    @contextmanager
    def staying(self, k: int) -> Iterator[None]:
        """Around the statements for the k-th piece, of which what was loaded is in scope on later walks too."""
        r = self.axes["r"]
        self.axes["r"] = whole = replace(r, vars=[(r.vars[0][0], r.block)])
        self.axis(whole, str(k * r.block))
        self.scopes.append(self.held[k])
        self.in_held = True
        yield
        self.in_held = False
        kept = {id: name for id, name in self.scopes.pop().items() if self.by_id[id].op == "load"}
        self.held[k], self.axes["r"] = kept, r

    def steps(self, begin: str, end: str, step: str) -> str:
        """Where the pieces begin; with ``stages``, pieces to come are read ahead into shared memory (softmax
        over 65536, on an H200: slower than without; ``max-autotune`` tries)."""
        ahead = self.blocks.stages
        return f"range({begin}, {end}, {step})" if ahead == 1 else f"tl.range({begin}, {end}, {step}, num_stages={ahead})"

    def _element(self, i: Instr) -> str:
        return cast(self.part(i.args[1]), self.dtype(i.args[1]), i.dtype)

    def _whole(self, i: Instr) -> list[str]:
        """A reduction over a whole row in registers, each part of its result."""
        mask = "rmask" if self.axes["r"].masked else ""
        acc = accumulator(i.args[0], i.dtype)
        text = self._element(i)
        spread = self.spread[i.args[1].id]
        if not spread:  # a constant has one dimension, which ``broadcast_to`` refuses
            text = f"tl.where(tl.full([XBLOCK, RBLOCK], True, tl.int1), {text}, {text})"
        elif spread != {"x", "r"}:
            text = f"tl.broadcast_to({text}, [XBLOCK, RBLOCK])"
        return acc.whole(text, mask, self.name, self.line, self.axes["r"].length)

    def result(self, i: Instr, texts: Sequence[str]) -> None:
        """Give the reduction's value, and the other parts it has, their names."""
        name = self.name()
        for text, part in zip(texts, ("", "_m2")):
            self.line(f"{name}{part} = {text}")
        self.scopes[0][i.id] = name
