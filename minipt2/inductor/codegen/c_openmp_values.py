"""From instructions to C statements: each value once, in the outermost loop where all it depends on is known.

``Writer`` holds the text of one function, the names of values in scope, and ``nest``, which opens loops and puts every
value at its depth. Upstream: ``torch._inductor.codegen.common.CSE`` and ``cpp.CppKernel``.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Sequence

import torch

from ..ir import Instr, Ref
from ..ops import TO_BOOL
from ..scheduler.affine import Index
from ..scheduler.flat import uses
from . import index as index_text
from .c_openmp_ops import C, HALF, NEEDS_NONZERO, STORAGE, VALUE, cast, is_float, literal, load, store
from .c_openmp_plan import Plan

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BAD_INDEX, BAD_DIVISOR, BAD_VALUE = 1, 2, 4
"""Bits of the error flag: an index out of range, an integer division by zero, a value that the operator does not take."""


@dataclass
class Loop:
    """``for (var = start; var < stop; var += step)`` with ``pragma`` lines above it."""

    var: str
    stop: str
    start: str = "0"
    step: Any = 1
    pragma: str = ""
    head: str = ""
    """The whole head, where it is of another form."""
    size: Any = None
    """Where the loop starts at 0, the size it stops at."""


@dataclass
class Target:
    """What a nest is for: once the values ``needs`` are known, ``act(texts)`` gives lines; ``deep``: in the innermost loop in any case."""

    order: float
    needs: list[int]
    act: Callable[..., list[str]]
    deep: bool = False
    variables: frozenset[str] = frozenset()
    """Loop variables ``act`` itself uses."""


class Writer:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.by_id: dict[int, Instr] = {i.id: i for i in plan.instrs}
        self.every = {i.id: i for i in self._walk(plan.instrs)}
        """Those inside masked blocks too."""
        self.order = {i.id: k for k, i in enumerate(plan.instrs)}
        self.types = {p.name: p.dtype for p in plan.params}
        self.lines: list[str] = []
        self.depth = 1
        self.count = self.masks = 0
        self.scopes: list[dict[int, str]] = [{}]
        self.arrays: dict[int, tuple[str, frozenset[str]]] = {}
        """Values kept in arrays: element text, and the variables it depends on."""
        self.checks = any(self._checked(i) for i in self._walk(plan.instrs))
        self.itype = "idx" if plan.extents or plan.symbols else "int64_t" if plan.wide else "int"
        self.heap: list[str] = []

    # ------------------------------------------------------------ text
    def line(self, *lines: str) -> None:
        self.lines += ["  " * self.depth + text if not text.startswith("#") else text for text in lines]

    def name(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    @contextmanager
    def open(self, head: str) -> Iterator[None]:
        """A braced block with a scope of its own."""
        self.line(head + " {")
        self.depth += 1
        self.scopes.append({})
        yield
        self.scopes.pop()
        self.depth -= 1
        self.line("}")

    def for_(self, loop: Loop) -> Any:
        if loop.pragma:
            self.line(loop.pragma)
        step = f"{loop.var}++" if loop.step == 1 else f"{loop.var} += {loop.step}"
        return self.open(loop.head or f"for ({self.itype} {loop.var} = {loop.start}; {loop.var} < {loop.stop}; {step})")

    def loop(self, var: str, size: Any, **more: Any) -> Loop:
        return Loop(var, index_text.size_text(size), size=size, **more)

    def array(self, name: str, ctype: str, size: Any, each_thread: bool = False) -> None:
        """Declare an array of ``size`` elements: on the stack where that is known, else on the heap (one for ``each_thread``, to be
        opened by ``own_part``)."""
        if isinstance(size, int):
            self.line(f"{ctype} {name}[{size}] __attribute__((aligned(64)));")
            return
        count = index_text.size_text(size, tight=True) + "*omp_get_max_threads()" * each_thread
        self.line(f"{ctype}* {'' if each_thread else 'restrict '}{name}{'_all' * each_thread} = malloc(sizeof({ctype})*(uint64_t){count});")
        self.heap.append(name + "_all" * each_thread)

    def own_part(self, name: str, ctype: str, size: Any) -> None:
        self.line(f"{ctype}* restrict {name} = {name}_all + (int64_t){index_text.size_text(size, tight=True)}*omp_get_thread_num();")

    def parallel_for(self, collapse: int = 1) -> str:
        """The pragma that shares loops among threads."""
        more = f" collapse({collapse})" if collapse > 1 else ""
        return f"#pragma omp parallel for{more} schedule(static){self.bad_clause()}{self.plan.threads_if}"

    def bad_clause(self) -> str:
        return " reduction(|:bad)" if self.checks else ""

    # ------------------------------------------------------------ values
    def known(self, id: int) -> str | None:
        return next((s[id] for s in reversed(self.scopes) if id in s), None)

    def closure(self, ids: Iterable[int]) -> list[int]:
        """Values to compute for ``ids``, in order; what is in scope or kept in an array is not computed again."""
        found: set[int] = set()
        todo = list(ids)
        while todo:
            id = todo.pop()
            if id in found or self.known(id) is not None:
                continue
            found.add(id)
            if id not in self.arrays and id in self.by_id:
                todo += uses(self.by_id[id])
        return sorted((i for i in found if i in self.by_id), key=self.order.__getitem__)

    def variables(self, ids: Sequence[int]) -> dict[int, frozenset[str]]:
        """Loop variables each of ``ids`` (in order) depends on, what is in scope aside."""
        out: dict[int, frozenset[str]] = {}
        for id in ids:
            if id in self.arrays:
                out[id] = self.arrays[id][1]
                continue
            own = {n for j in self._walk([self.by_id[id]]) for a in j.args if isinstance(a, Index) for n in a.names()}
            out[id] = frozenset(own).union(*(out.get(u, frozenset()) for u in uses(self.by_id[id])))
        return out

    def nest(self, loops: Sequence[Loop], targets: Sequence[Target], perfect: int = 0,
             around: Callable[[int], Any] | None = None) -> None:
        """Write ``loops`` with every value that ``targets`` need at its depth; the first ``perfect`` loops hold nothing but the next.

        ``around(d)`` may return a context manager that wraps what stands inside loop d.
        """
        ids = self.closure(i for t in targets for i in t.needs)
        variables = self.variables(ids)
        place = {loop.var: d + 1 for d, loop in enumerate(loops)}

        def depth_of(vars: Iterable[str]) -> int:
            d = max((place[v] for v in vars if v in place), default=0)
            return max(d, perfect) if d else 0

        items: list[list[tuple[float, Any]]] = [[] for _ in range(len(loops) + 1)]
        for id in ids:
            items[depth_of(variables[id])].append((self.order[id], id))
        for t in targets:
            d = len(loops) if t.deep else depth_of(t.variables.union(*(variables.get(n, frozenset()) for n in t.needs)))
            items[d].append((t.order + 0.5, t))
        self._level(loops, items, 0, around)

    def _level(self, loops: Sequence[Loop], items: list[list[tuple[float, Any]]], d: int, around: Callable[[int], Any] | None) -> None:
        for _, item in sorted(items[d], key=lambda pair: pair[0]):
            if isinstance(item, Target):
                self.line(*item.act(*[self.text(n) for n in item.needs]))
            else:
                self.define(item)
        if d < len(loops):
            with self.for_(loops[d]):
                if around is None:
                    self._level(loops, items, d + 1, around)
                else:
                    with around(d):
                        self._level(loops, items, d + 1, around)

    def text(self, id: int) -> str:
        known = self.known(id)
        assert known is not None, f"value {id} is not in scope"
        return known

    def define(self, id: int) -> None:
        """Write the statement that computes a value and remember its name."""
        i = self.every[id]
        if id in self.arrays:
            self.scopes[-1][id] = self.arrays[id][0]
        elif i.op == "constant":
            value = literal(i.args[0], i.dtype)
            self.scopes[-1][id] = f"({value})" if value.startswith("-") else value
        elif i.op == "scalar":
            self.scopes[-1][id] = str(i.args[0])
        elif i.op == "index_expr":
            self.scopes[-1][id] = self.expression(i)
        elif i.op == "masked":
            self.scopes[-1][id] = self._masked(i)
        elif i.op == "indirect":
            self.scopes[-1][id] = self._indirect(i)
        elif i.op == "bitcast":
            self.scopes[-1][id] = self._bitcast(i)
        elif i.op == "valid":
            self._flag(f"!{self.arg(i.args[1])}", BAD_VALUE)
            self.scopes[-1][id] = self.arg(i.args[0])
        else:
            if i.op in NEEDS_NONZERO and not is_float(i.dtype):
                self._flag(f"{self.arg(i.args[1], i.dtype)} == 0", BAD_DIVISOR)
            v = self.name()
            self.line(f"const {VALUE[i.dtype]} {v} = {index_text.bare(self.expression(i))};")
            self.scopes[-1][id] = v

    def expression(self, i: Instr) -> str:
        if i.op == "load":
            return load(f"{i.args[0]}[{self.index(i.args[1])}]", self.types[i.args[0]])
        if i.op == "index_expr":
            return f"({VALUE[i.dtype]})({self.index(i.args[0])})"
        if i.op == "to_dtype":
            return cast(self.arg(i.args[0]), self.dtype(i.args[0]), i.dtype)
        if i.op == "random_bits":
            return f"random_bits({self.arg(i.args[0])}, {self.arg(i.args[1])}, {i.args[2]})"
        if i.op == "where":
            return C(i.dtype).op("where", self.arg(i.args[0]), self.arg(i.args[1], i.dtype), self.arg(i.args[2], i.dtype))
        if i.op in COMPARE and all(isinstance(a, Ref) and self._is_position(self.every[a.id]) for a in i.args):
            return f"({self._position(i.args[0])} {COMPARE[i.op]} {self._position(i.args[1])})"
        # what yields a truth value is computed in its operands' dtype
        dtype = self.dtype(i.args[0], i.dtype) if i.op in TO_BOOL else i.dtype
        return C(dtype).op(i.op, *[self.arg(a, dtype) for a in i.args])

    def _is_position(self, i: Instr) -> bool:
        return i.op in ("index_expr", "constant") and not is_float(i.dtype)

    def _position(self, a: Ref) -> str:
        """An index value in the type of the loops: masks made of 64-bit numbers would halve the vectors."""
        i = self.every[a.id]
        return self.index(i.args[0]) if i.op == "index_expr" else str(int(i.args[0]))

    def arg(self, a: Any, dtype: torch.dtype | None = None) -> str:
        return self.text(a.id) if isinstance(a, Ref) else literal(a, dtype)

    def dtype(self, a: Any, default: torch.dtype | None = None) -> torch.dtype:
        return self.every[a.id].dtype if isinstance(a, Ref) else default

    def index(self, index: Index) -> str:
        # under a mask gcc must not assume that an int offset stays in range, and would gather: 64 bits keep a plain masked load
        plain = "{}" if not self.masks or self.itype == "int64_t" else "(int64_t){}"
        return index_text.text(index, lambda n: plain.format(self.text(int(n[1:])) if n[0] == "i" else n))

    def store_line(self, i: Instr, value: str) -> list[str]:
        """Statement of a store; ``atomic_add`` adds, since loops that could collide never run side by side."""
        name, index, ref, mode = i.args
        dtype = self.types[name]
        value = cast(value, self.dtype(ref), dtype) if self.dtype(ref) is not dtype and dtype not in HALF else value
        place = f"{name}[{self.index(index)}]"
        if mode is not None:
            value = C(dtype).op("add", load(place, dtype), value)
        return [f"{place} = {index_text.bare(store(value, dtype))};"]

    def store_target(self, i: Instr, deep: bool = False) -> Target:
        indirect = [int(n[1:]) for n in i.args[1].names() if n[0] == "i"]
        plain = frozenset(n for n in i.args[1].names() if n[0] != "i")
        return Target(self.order[i.id], [i.args[2].id, *indirect], lambda value, *_: self.store_line(i, value), deep, plain)

    # ------------------------------------------------------------ statements that need more than an expression
    def _masked(self, i: Instr) -> str:
        mask, block, other = i.args
        v = self.name()
        self.line(f"{VALUE[i.dtype]} {v} = {literal(other, i.dtype)};")
        with self.open(f"if ({self.arg(mask)})"):
            self.masks += 1
            for j in block.instrs:
                self.define(j.id)
            self.masks -= 1
            self.line(f"{v} = {self.text(block.result.id)};")
        return v

    def _indirect(self, i: Instr) -> str:
        value, _, size, wraps = i.args
        v, n = self.name("i"), index_text.size_text(size)
        wide = "int64_t" if self.dtype(value) in (torch.int64, torch.uint32) else "int32_t" if isinstance(size, int) else "idx"
        raw = self.arg(value)
        self.line(f"const {wide} {v}w = {raw} < 0 ? {raw} + {n} : {raw};" if wraps else f"const {wide} {v}w = {raw};")
        outside = f"(u{wide}){v}w >= {n}u" if isinstance(size, int) else f"(u{wide}){v}w >= (u{wide})({n})"
        self._flag(outside, BAD_INDEX)
        self.line(f"const {self.itype} {v} = {outside} ? 0 : ({self.itype}){v}w;")
        return v

    def _bitcast(self, i: Instr) -> str:
        source, v = self.dtype(i.args[0]), self.name()
        self.line(f"const union {{ {STORAGE[source]} a; {STORAGE[i.dtype]} b; }} u{v} = {{{store(self.arg(i.args[0]), source)}}};",
                  f"const {VALUE[i.dtype]} {v} = {load(f'u{v}.b', i.dtype)};")
        return v

    def _flag(self, condition: str, bit: int) -> None:
        self.line(f"bad |= {condition};" if bit == 1 else f"bad |= ({condition}) << {bit.bit_length() - 1};")

    def _checked(self, i: Instr) -> bool:
        return i.op in ("indirect", "valid") or i.op in NEEDS_NONZERO and not is_float(i.dtype)

    def _walk(self, instrs: Iterable[Instr]) -> Iterator[Instr]:
        for i in instrs:
            if i.op == "masked":
                yield from self._walk(i.args[1].instrs)
            yield i
