"""Triton programs for sizes that are arguments: a kernel's plan is kept, and each class of sizes that is met gets a program from it.

``generate(schedule, hw)`` -> ``SizedSource``: the plans, and the programs for the sizes of the first call; ``variant(data, size_class, hw)``
makes the program of another class. Blocks are chosen as if the largest sizes of a class were known, so that a program is what those sizes
would have got; the text sees symbols only. Upstream: ``torch._inductor.codegen.triton`` (``ks0``, arguments for sizes).
"""
from __future__ import annotations

import base64
import pickle
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import sympy

from ... import trace
from ...shapes import value
from ..hardware import Hw
from ..ir import Instr
from ..scheduler.affine import Index, Opaque
from ..scheduler.kernels import Kernel, Schedule
from ..scheduler.memory import storage_bytes
from ..scheduler.nodes import map_indices
from ..sizes import hint, undecided, use
from ..triton_sizes import SizeClass, size_class
from .c_openmp_plan import Param, Plan, make_plan
from .triton import Program, Writer, bodies, comment, define, title, walked_across
from .triton_blocks import choose
from .triton_half import cheaper
from .triton_ops import STORAGE
from .triton_rewalk import in_pairs
from .triton_softmax import brief


@dataclass
class Kept:
    """All that a kernel's programs are made from. ``aligned``: pointers (by name) that are multiples of 16 bytes."""

    plan: Plan
    name: str
    comment: str
    aligned: list[str]


@dataclass
class SizedLaunch:
    """What runs a kernel of the schedule that touches the buffers ``args``. ``sizes``: its symbols, the sizes of its outer and of its inner
    loops, and bytes of its operands; ``scalars``: names of the numbers it is given."""

    args: list[str]
    aligned: list[str]
    checks: bool
    sizes: tuple[list[Any], ...]
    scalars: list[str]


@dataclass
class SizedSource:
    """``launches[k]`` and ``kernels[k]`` (an entry of the library's table) belong to the k-th kernel of the schedule."""

    hw: Hw
    launches: list[SizedLaunch] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Those for the sizes of the first call, by text."""

    @property
    def text(self) -> str:
        return "\n\n".join(self.programs)


def generate(schedule: Schedule, hw: Hw) -> SizedSource:
    """Programs for all kernels of ``schedule`` at the sizes of the first call, and what others are made from."""
    source, names = SizedSource(hw), set()
    inputs = {b.name for b in schedule.program.inputs}
    with use(schedule.program.hints):
        for step in schedule.kernels:
            plan = brief(cheaper(make_plan(step, schedule)))
            # inputs that are written may begin anywhere (others are copied where they are not aligned)
            aligned = [p for p in plan.params if p.buffer not in inputs or not p.written]
            nbytes = [storage_bytes(schedule.layouts[p.buffer]) for p in plan.params]
            kept = Kept(replace(plan, params=[replace(p, buffer="") for p in plan.params]), title(step, names), comment(step), [p.name for p in aligned])
            source.launches.append(_launch(plan, [p.buffer for p in aligned], nbytes))
            source.kernels.append(_entry(kept, source.launches[-1].sizes, hw))
    for entry in source.kernels:
        for call in entry["variants"][0][1]["calls"]:
            source.programs.setdefault(call["program"]["text"], call["program"])
    trace.artifact("codegen", schedule.program.name, lambda: source.text)
    return source


def _launch(plan: Plan, aligned: list[str], nbytes: list[Any]) -> SizedLaunch:
    sizes = ([*plan.symbols], [n for _, n in plan.outer], [n for _, n in plan.inner], nbytes)
    return SizedLaunch([p.buffer for p in plan.params], aligned, _checks(plan), sizes, [s.name for s in plan.scalars])


def _checks(plan: Plan) -> bool:
    from ..scheduler.nodes import walk
    return any(i.op in ("indirect", "valid") for i in walk(plan.instrs))


def _entry(kept: Kept, sizes: tuple[list[Any], ...], hw: Hw) -> dict[str, Any]:
    outer = [not isinstance(n, int) for _, n in kept.plan.outer]
    entry = dict(plan=base64.b64encode(pickle.dumps(kept)).decode(), outer=outer, inner=not all(isinstance(n, int) for _, n in kept.plan.inner))
    key = size_class(entry, *[[hint(n) for n in group] for group in sizes])
    return dict(entry, variants=[[list(key), _variant(kept, key, hw)]])


def variant(data: bytes, key: SizeClass, hw: dict[str, Any]) -> dict[str, Any]:
    """The programs for a class of sizes from a kernel's entry: what is launched, on what grid, with what; JSON-able."""
    return _variant(pickle.loads(data), key, Hw(**hw))


def _variant(kept: Kept, key: SizeClass, hw: Hw) -> dict[str, Any]:
    plan = replace(kept.plan, wide=kept.plan.wide or key.wide)
    most = at(plan, key)
    blocks = choose(most, hw, walked_across(most), deep=False, paired=bool(plan.inner) and bool(in_pairs(plan)))
    with undecided():
        made = bodies(plan, blocks, most)
    return dict(calls=[_call(kept, body, key, name) for body, name in zip(made, (kept.name, f"{kept.name}_rest"))],
                work=[n // most.rows for n in made[0].work.values()])


def _call(kept: Kept, body: Writer, key: SizeClass, name: str) -> dict[str, Any]:
    plan, numbers, pointers = body.plan, body.numbers, body.params
    args = [["b", plan.params.index(p)] for p in pointers] + [["w", k] for k in range(len(body.work))]
    args += [["s", plan.symbols.index(s)] if s in plan.symbols else ["x", plan.scalars.index(s)] for s in numbers] + [["e", 0]] * body.checks
    signature = ["*" + STORAGE[d] for d in [p.dtype for p in pointers] + body.work_types]
    first = len(signature)
    signature += [("i64" if plan.wide else "i32") if s in plan.symbols else "i64" if s.is_integer else "fp64" for s in numbers]
    aligned = [k for k, p in enumerate(pointers) if p.name in kept.aligned] + list(range(len(pointers), first))
    aligned += [first + k for k, s in enumerate(numbers) if s in plan.symbols and plan.symbols.index(s) in key.whole]
    program = Program(name, define(name, kept.comment, body), (*signature, *["*i32"] * body.checks), tuple(aligned), body.blocks.warps, body.blocks.stages)
    places = {v: k for k, (v, _) in enumerate(plan.outer)}
    grid = [span if isinstance(span, int) else [[places[v] for v in span[0]], span[1]] for span in body.spans]
    return dict(program=asdict(program), args=args, grid=grid)


# ------------------------------------------------------------------ a plan with numbers
def at(plan: Plan, key: SizeClass) -> Plan:
    """``plan`` with the largest sizes of a class, as if they were known: for choosing blocks."""
    known = {s: sympy.Integer(n) for s, n in zip(plan.symbols, key.symbols)}
    outer = [(v, n) for (v, _), n in zip(plan.outer, key.outer)]
    inner = [(v, key.length if k == 0 else 1) for k, (v, _) in enumerate(plan.inner)]
    return replace(plan, outer=outer, inner=inner, instrs=[_indirect(i, known) for i in map_indices(plan.instrs, lambda e: _index(e, known))])


def _number(n: Any, known: dict[sympy.Symbol, Any]) -> int:
    return n if isinstance(n, int) else int(value(n, known))


def _index(index: Index, known: dict[sympy.Symbol, Any]) -> Index:
    def term(t: Any) -> Any:
        return t if isinstance(t, (str, Opaque)) else type(t)(_index(t.arg, known), max(_number(t.k, known), 1))
    return Index(_number(index.const, known), {term(t): _number(c, known) for t, c in index.terms.items()})


def _indirect(i: Instr, known: dict[sympy.Symbol, Any]) -> Instr:
    return i._replace(args=(*i.args[:2], _number(i.args[2], known), i.args[3])) if i.op == "indirect" else i
