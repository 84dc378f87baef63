"""From instructions to Triton statements: each value once, in the outermost place where all it depends on is known.

``Body`` holds the text of one kernel: its program axes, the names of values in scope, masks. A value is a block over the axes it
depends on (``[XBLOCK, 1]`` beside a row, ``[1, RBLOCK]`` along it); Triton's broadcasting does the rest. Upstream:
``torch._inductor.codegen.triton.TritonKernel`` and ``simd.IterationRangesRoot``.
"""
from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Iterable, Iterator, Sequence

import sympy
import torch

from ..ir import Instr, Ref
from ..ops import TO_BOOL
from ..scheduler.affine import Index
from ..scheduler.flat import uses
from ..scheduler.nodes import walk
from ..sizes import exact, tidy
from . import index as index_text
from .c_openmp_plan import Plan
from .index import size_text
from .triton_ops import HALF, MEMORY, VALUE, cast, expression, literal, number, store, typed

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INDEX, WRONG = 0, 2
"""Places of the error flags, as bits of what C kernels return: an index out of range, a value that the operator does not take."""


@dataclass
class Axis:
    """``length`` elements, walked by loops ``vars`` (outermost first), ``block`` of them a program; ``place``: its dimension in a block.
    Sizes are ints or, where they are arguments, expressions."""

    name: str
    vars: list[tuple[str, Any]]
    block: int
    place: str = ""
    looped: bool = False
    ragged: bool = False
    """Programs may reach beyond the end although ``block`` divides ``length``."""

    @property
    def length(self) -> Any:
        return tidy(prod(n for _, n in self.vars))

    @property
    def masked(self) -> bool:
        return self.ragged or exact(self.length, self.block) is None

    @property
    def constant(self) -> str:
        return f"{self.name.upper()}BLOCK"


class Body:
    def __init__(self, plan: Plan, axes: Sequence[Axis]):
        self.plan, self.axes = plan, {a.name: a for a in axes}
        self.by_id = {i.id: i for i in walk(plan.instrs)}
        self.top = {i.id for i in plan.instrs}
        self.order = {i.id: k for k, i in enumerate(plan.instrs)}
        self.types = {p.name: p.dtype for p in plan.params}
        self.axis_of = {v: a.name for a in axes for v, _ in a.vars}
        self.spread: dict[int, frozenset[str]] = {}
        """Axes each value depends on."""
        for i in walk(plan.instrs):
            self.spread[i.id] = self._axes_of(i)
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.scopes: list[dict[int, str]] = [{}]
        self.masks: list[Ref] = []
        self.only = ""
        """A condition beside the masks."""
        self.checks = any(i.op in ("indirect", "valid") for i in self.by_id.values())

    def _axes_of(self, i: Instr) -> frozenset[str]:
        if i.op == "reduce":
            return self.spread[i.args[1].id] - {"r"}
        own = {self.axis_of[n] for j in walk([i]) for a in j.args if isinstance(a, Index) for n in a.names() if n in self.axis_of}
        return frozenset(own).union(*(self.spread.get(u, frozenset()) for u in uses(i)))

    @property
    def numbers(self) -> list[sympy.Symbol]:
        """The sizes and scalars that the statements use."""
        every = self.plan.symbols + self.plan.scalars
        used = set(re.findall(r"\w+", "\n".join(self.lines))) if every else ()
        return [s for s in every if s.name in used]

    # ------------------------------------------------------------ text
    def line(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + text for text in lines]

    def name(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count - 1}"

    @contextmanager
    def open(self, head: str) -> Iterator[None]:
        """An indented block with a scope of its own."""
        self.line(head)
        self.depth += 1
        self.scopes.append({})
        yield
        self.scopes.pop()
        self.depth -= 1

    # ------------------------------------------------------------ axes
    def constants(self) -> None:
        for a in self.axes.values():
            self.line(f"{a.constant}: tl.constexpr = {a.block}")

    def axis(self, a: Axis, start: str) -> None:
        """The elements of axis ``a`` from ``start`` on, its mask, and the loop variables it is made of."""
        wide = ".to(tl.int64)" if self.plan.wide else ""
        begin = "" if start == "0" else f"{start} + " if a.looped else f"{start}{wide} * {a.constant} + "
        self.line(f"{a.name} = {begin}tl.arange(0, {a.constant}){a.place}" + (wide if not begin or a.looped else ""))
        if a.masked:
            self.line(f"{a.name}mask = {a.name} < {size_text(a.length)}")
        self.variables(a)

    def variables(self, a: Axis) -> None:
        """The loop variables that ``a`` is made of, those that are used alone."""
        if len(a.vars) < 2:
            return
        used = {n for i in self.by_id.values() for e in i.args if isinstance(e, Index)
                for n in (self.along_axes(e) if i.op in ("load", "store") else e).names()}
        stride = a.length
        for k, (v, n) in enumerate(a.vars):
            stride = exact(stride, n)
            if v in used:
                text = f"{a.name} // {factor(stride)}" if stride != 1 else a.name
                self.line(f"{v} = {text}" + (f" % {factor(n)}" if k else ""))

    def variable(self, name: str) -> str:
        if name[0] == "i":
            return self.text(int(name[1:]))
        if name in self.axes:
            return name
        a = self.axes[self.axis_of[name]]
        return a.name if len(a.vars) == 1 else name

    # ------------------------------------------------------------ values
    def known(self, id: int) -> str | None:
        return next((s[id] for s in reversed(self.scopes) if id in s), None)

    def text(self, id: int) -> str:
        known = self.known(id)
        assert known is not None, f"value {id} is not in scope"
        return known

    def closure(self, ids: Iterable[int]) -> list[int]:
        """Values to compute for ``ids``, in order; what is in scope is not computed again."""
        found: set[int] = set()
        todo = list(ids)
        while todo:
            id = todo.pop()
            if id not in found and id in self.top and self.known(id) is None:
                found.add(id)
                todo += uses(self.by_id[id])
        return sorted(found, key=self.order.__getitem__)

    def compute(self, ids: Iterable[int], along_row: bool | None = None) -> None:
        """Write what ``ids`` need; with ``along_row`` only the part that changes, or does not change, along the row."""
        for id in self.closure(ids):
            if along_row is None or along_row == (id in self.plan.in_row):
                self.define(id)

    def define(self, id: int) -> None:
        """Write the statement that computes a value and remember its name."""
        i = self.by_id[id]
        if i.op == "constant":
            self.scopes[-1][id] = literal(i.args[0], i.dtype)
            return
        special = getattr(self, f"_{i.op}", None)
        value = special(i) if special is not None else self.expression(i)
        name = self.name()
        self.line(f"{name} = {index_text.bare(value)}")
        self.scopes[-1][id] = name

    def dtype(self, a: Ref) -> torch.dtype:
        return self.by_id[a.id].dtype

    def expression(self, i: Instr) -> str:
        """An op of the op set; what yields a truth value is computed in its operands' dtype."""
        if i.op in COMPARE and all(self._is_position(a) for a in i.args):
            return f"({self._position(i.args[0])} {COMPARE[i.op]} {self._position(i.args[1])})"
        dtype = self.dtype(i.args[0]) if i.op in TO_BOOL and isinstance(i.args[0], Ref) else i.dtype
        operands = i.args[1:] if i.op == "where" else i.args
        alone = all(self._fixed(a) for a in operands)
        texts = [self.operand(a, dtype, alone or i.op == "where" and a is i.args[0]) for a in i.args]
        return expression(i.op, dtype, *texts)

    def _fixed(self, a: Any) -> bool:
        return not isinstance(a, Ref) or self.by_id[a.id].op == "constant"

    def operand(self, a: Any, dtype: torch.dtype, alone: bool = False) -> str:
        """A value as an operand; ``alone``: nothing beside it says what type a number is of."""
        if not isinstance(a, Ref):
            return typed(a, dtype) if alone else literal(a, dtype)
        i = self.by_id[a.id]
        if i.op == "constant" and alone:
            return typed(i.args[0], i.dtype)
        text = self.text(a.id)
        return f"{text}_m2" if a.part else text

    def _is_position(self, a: Any) -> bool:
        i = self.by_id.get(a.id) if isinstance(a, Ref) else None
        return i is not None and i.op in ("index_expr", "constant") and not i.dtype.is_floating_point

    def _position(self, a: Ref) -> str:
        """An index value in the type of the loops: comparing 64-bit numbers takes twice the instructions."""
        i = self.by_id[a.id]
        return f"({self.number_text(i.args[0])})" if i.op == "index_expr" else str(int(i.args[0]))

    def part(self, a: Ref) -> str:
        return self.operand(a, self.dtype(a))

    def number_text(self, index: Index) -> str:
        return index_text.text(index, self.variable, "//")

    # ------------------------------------------------------------ memory
    def mask(self, axes: Iterable[str]) -> tuple[str, frozenset[str]]:
        """Condition under which elements over ``axes`` exist and the masked blocks around are entered, and the axes it spans."""
        parts = [f"{n}mask" for n in self.axes if n in axes and self.axes[n].masked]
        spans = {n for n in axes if self.axes[n].masked}
        parts += [self.only] * bool(self.only)
        for m in self.masks:
            parts.append(self.text(m.id))
            spans |= self.spread[m.id]
        return " & ".join(parts), frozenset(spans)

    def place(self, name: str, index: Index, over: Iterable[str]) -> str:
        """A pointer block that spans at least the axes ``over``."""
        spans = self.index_axes(index)
        missing = [f"0*{n}" for n in self.axes if n in over and n not in spans]
        text = self.number_text(self.along_axes(index))
        text = " + ".join(([text] if text != "0" or not missing else []) + missing)
        return f"{name} + ({text})" if " " in text else f"{name} + {text}"

    def along_axes(self, index: Index) -> Index:
        """``index`` with loops that it walks as one replaced by their axis: ``128*p0 + p1`` is ``x``."""
        for a in self.axes.values():
            stride = index.stride(a.vars[-1][0]) if len(a.vars) > 1 else 0
            if stride == 0:
                continue
            terms, step = {}, stride
            for v, n in reversed(a.vars):
                terms[v], step = step, tidy(step * n)
            if all(index.stride(v) == c for v, c in terms.items()):
                rest = {t: c for t, c in index.terms.items() if t not in terms}
                index = Index(index.const, {**rest, a.name: stride})
        return index

    def index_axes(self, index: Index) -> frozenset[str]:
        axes: set[str] = set()
        for n in index.names():
            axes |= {self.axis_of[n]} if n in self.axis_of else self.spread[int(n[1:])]
        return frozenset(axes)

    def _load(self, i: Instr, other: str = "") -> str:
        """``other``: what a masked load gives where it does not happen."""
        name, index = i.args
        mask, spans = self.mask(self.index_axes(index))
        value = f"tl.load({self.place(name, index, spans)}{f', {mask}{other}' if mask else ''}{self.cached(i)})"
        return f"{value}.to(tl.float32)" if i.dtype in HALF else value

    def cached(self, load: Instr) -> str:
        """What the cache should know of a load: nothing."""
        return ""

    def kept_out(self, store: Instr) -> str:
        """What the cache should know of a store: nothing."""
        return ""

    def store(self, i: Instr) -> None:
        """The statement of a store; every axis in force counts, so that no element is written by a program that has none."""
        name, index, ref, mode = i.args
        along = [n for n in self.axes if n != "r" or i.id in self.plan.in_row]
        mask, _ = self.mask(along)
        value = self.in_memory(ref, self.types[name])
        place = self.place(name, index, along)
        if mode is None:
            self.line(f"tl.store({place}, {index_text.bare(value)}" + (f", {mask}" if mask else "") + f"{self.kept_out(i)})")
        else:
            self.line(f'tl.atomic_add({place}, {index_text.bare(value)}' + (f", {mask}" if mask else "") + ', sem="relaxed")')

    def in_memory(self, ref: Ref, dtype: torch.dtype) -> str:
        """A value as ``dtype`` lies in memory."""
        value = self.part(ref)
        if self.by_id[ref.id].op == "constant":
            value = typed(self.by_id[ref.id].args[0], self.dtype(ref))
        return store(value if VALUE[dtype] == VALUE[self.dtype(ref)] else cast(value, self.dtype(ref), dtype), dtype)

    def needs(self, i: Instr) -> list[int]:
        """Values that a store reads."""
        return [i.args[2].id, *(int(n[1:]) for n in i.args[1].names() if n[0] == "i")]

    # ------------------------------------------------------------ ops that need more than an expression
    def _index_expr(self, i: Instr) -> str:
        index = i.args[0]
        if not index.names():
            return typed(index.const, i.dtype) if isinstance(index.const, int) else f"tl.full([1], {size_text(index.const)}, {VALUE[i.dtype]})"
        text = self.number_text(index)
        return f"({text}).to({VALUE[i.dtype]})" if i.dtype is not torch.int32 or self.plan.wide else f"({text})"

    def _scalar(self, i: Instr) -> str:
        return f"tl.full([1], {i.args[0]}, {VALUE[i.dtype]})"

    def _to_dtype(self, i: Instr) -> str:
        source = self.by_id[i.args[0].id]
        text = typed(source.args[0], source.dtype) if source.op == "constant" else self.part(i.args[0])
        return cast(text, source.dtype, i.dtype)

    def _bitcast(self, i: Instr) -> str:
        source = self.dtype(i.args[0])
        value = f"{store(self.part(i.args[0]), source)}.to({MEMORY[i.dtype]}, bitcast=True)"
        return f"{value}.to(tl.float32)" if i.dtype in HALF else value

    def _indirect(self, i: Instr) -> str:
        value, _, size, wraps = i.args
        if self._fixed(value) and isinstance(size, int) and -size * wraps <= self.by_id[value.id].args[0] < size:
            return str(int(self.by_id[value.id].args[0]) % size)
        raw = self.operand(value, self.dtype(value), alone=True)
        name = self.name("i")
        signed = self.dtype(value).is_signed
        if not signed:
            raw = f"{raw}.to(tl.int64)"
        end = size_text(size, tight=True)
        self.line(f"{name} = tl.where({raw} < 0, {raw} + {end}, {raw})" if wraps and signed else f"{name} = {raw}")
        self.flag(INDEX, f"({name} < 0) | ({name} >= {end})", self.spread[i.id])
        clamped = f"tl.minimum(tl.maximum({name}, 0), {size_text(size - 1)})"
        return clamped if self.plan.wide else f"{clamped}.to(tl.int32)"

    def _random_bits(self, i: Instr) -> str:
        seed, position, draw = i.args
        return f"random_bits({self.part(seed)}, {self.operand(position, torch.int64, alone=True)}, {draw})"

    def _valid(self, i: Instr) -> str:
        self.flag(WRONG, f"{self.operand(i.args[1], torch.bool, alone=True)} == 0", self.spread[i.id])
        return self.part(i.args[0])

    def flag(self, place: int, wrong: str, axes: frozenset[str]) -> None:
        """Raise an error flag where ``wrong`` holds: a store that no thread makes when all is well."""
        mask, spans = self.mask(axes)
        over = [n for n in self.axes if n in axes | spans] or list(self.axes)[:1]
        offset = " + ".join([str(place)] * (place > 0) + [f"0*{n}" for n in over])
        self.line(f"tl.store(err + ({offset}), 1, ({wrong})" + (f" & {mask})" if mask else ")"))

    def _masked(self, i: Instr) -> str:
        mask, block, other = i.args
        self.masks.append(mask)
        self.scopes.append({})
        first = block.instrs[0] if len(block.instrs) == 1 else None
        if first is not None and first.op == "load" and _exact(other, first.dtype):
            value = self._load(first, f", {number(other, i.dtype)}")
            self.scopes.pop()
            self.masks.pop()
            return value
        for j in block.instrs:
            self.define(j.id)
        result = self.by_id[block.result.id]
        value = typed(result.args[0], result.dtype) if result.op == "constant" else self.text(block.result.id)
        self.scopes.pop()
        self.masks.pop()
        return f"tl.where({self.text(mask.id)}, {value}, {literal(other, i.dtype)})"


def _exact(number: bool | int | float, dtype: torch.dtype) -> bool:
    """Whether every dtype in memory holds ``number`` as it is."""
    return dtype is not torch.bool and (not dtype.is_floating_point or number == 0 or math.isinf(number))


def factor(n: Any) -> str:
    """A size as a divisor."""
    return size_text(n) if isinstance(n, int) or n.is_Symbol else f"({size_text(n)})"
