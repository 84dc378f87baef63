"""``LoopBody``: one run of an ``inner_fn``, written down.

The closures of lowering are run once under ``Recorder``; everything later (dependencies, loop reordering, fusion, code) reads
the recorded list, so that sympy works on each index expression once. Upstream: ``torch._inductor.loop_body.LoopBody``.
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import sympy
import torch

from ...exercise import exercise
from ..ops import TO_BOOL, ops


class Ref(NamedTuple):
    """The result of the instruction with this id. ``part`` selects an output of ``welford`` (0 mean, 1 m2)."""

    id: int
    part: int = 0


class Block(NamedTuple):
    """Instructions that run under a mask, and the value they end with."""

    instrs: tuple["Instr", ...]
    result: Ref


class Instr(NamedTuple):
    """``id = op(*args)`` of logical ``dtype``. Arguments are Refs, sympy expressions, numbers, names, dtypes or a Block.

    load(name, index) · store(name, index, Ref, mode) · reduce(kind, Ref) · constant(number) · scalar(symbol) · index_expr(expr) ·
    indirect(Ref, symbol, size, wraps) · valid(Ref, Ref) · random_bits(Ref, Ref, number) · masked(Ref, Block, other) · to_dtype(Ref) · bitcast(Ref) · where(Ref, Ref, Ref) · unary(Ref) · binary(Ref, Ref)
    """

    id: int
    op: str
    args: tuple[Any, ...]
    dtype: torch.dtype | None


@dataclass(frozen=True)
class LoopBody:
    """A loop nest over ``vars`` (sizes ``sizes``) and, for reductions, ``rvars`` (``rsizes``) inside it.

    Instructions before a ``reduce`` run for every reduction index; a ``store`` whose index has no reduction variable runs once after it.
    """

    vars: tuple[sympy.Symbol, ...]
    sizes: tuple[sympy.Expr, ...]
    rvars: tuple[sympy.Symbol, ...]
    rsizes: tuple[sympy.Expr, ...]
    instrs: tuple[Instr, ...]

    @property
    def is_reduction(self) -> bool:
        return any(i.op == "reduce" for i in self.instrs)

    def walk(self) -> Iterator[Instr]:
        """All instructions, those inside masked blocks included."""
        yield from _walk(self.instrs)

    def loads(self) -> list[tuple[str, sympy.Expr]]:
        return [(i.args[0], i.args[1]) for i in self.walk() if i.op == "load"]

    def stores(self) -> list[tuple[str, sympy.Expr, str | None]]:
        return [(i.args[0], i.args[1], i.args[3]) for i in self.walk() if i.op == "store"]

    def map_exprs(self, fn: Callable[[sympy.Expr], sympy.Expr]) -> "LoopBody":
        """The same body with every index expression replaced by ``fn(expr)``."""
        return replace(self, instrs=_map_instrs(self.instrs, fn))

    def reindex(self, vars: Sequence[sympy.Symbol], sizes: Sequence[sympy.Expr], rvars: Sequence[sympy.Symbol],
                rsizes: Sequence[sympy.Expr], mapping: dict[sympy.Symbol, sympy.Expr]) -> "LoopBody":
        """Change of loop variables: each old variable becomes an expression over the new ones."""
        body = self.map_exprs(lambda e: e.xreplace(mapping))
        return replace(body, vars=tuple(vars), sizes=tuple(sizes), rvars=tuple(rvars), rsizes=tuple(rsizes))

    def rename(self, names: dict[str, str]) -> "LoopBody":
        """The same body with buffers renamed in loads and stores."""
        return replace(self, instrs=_rename(self.instrs, names))

    def __str__(self) -> str:
        head = ", ".join(f"{v}<{s}" for v, s in zip(self.vars + self.rvars, self.sizes + self.rsizes))
        return "\n".join([f"for {head}:"] + [f"  {_show(i)}" for i in self.instrs])


def _walk(instrs: Sequence[Instr]) -> Iterator[Instr]:
    for instr in instrs:
        if instr.op == "masked":
            yield from _walk(instr.args[1].instrs)
        yield instr


def _map_instrs(instrs: Sequence[Instr], fn: Callable[[sympy.Expr], sympy.Expr]) -> tuple[Instr, ...]:
    out = []
    for i in instrs:
        if i.op in ("load", "store"):
            i = i._replace(args=(i.args[0], fn(i.args[1]), *i.args[2:]))
        elif i.op in ("index_expr", "scalar"):
            i = i._replace(args=(fn(i.args[0]),))
        elif i.op == "indirect":
            i = i._replace(args=(*i.args[:2], fn(i.args[2]), i.args[3]))
        elif i.op == "masked":
            block = i.args[1]
            i = i._replace(args=(i.args[0], block._replace(instrs=_map_instrs(block.instrs, fn)), i.args[2]))
        out.append(i)
    return tuple(out)


def _rename(instrs: Sequence[Instr], names: dict[str, str]) -> tuple[Instr, ...]:
    out = []
    for i in instrs:
        if i.op in ("load", "store"):
            i = i._replace(args=(names.get(i.args[0], i.args[0]), *i.args[1:]))
        elif i.op == "masked":
            block = i.args[1]
            i = i._replace(args=(i.args[0], block._replace(instrs=_rename(block.instrs, names)), i.args[2]))
        out.append(i)
    return tuple(out)


def _show(i: Instr) -> str:
    def arg(a: Any) -> str:
        if isinstance(a, Ref):
            return f"%{a.id}" + (f".{a.part}" if a.part else "")
        if isinstance(a, Block):
            return "{" + "; ".join(_show(j) for j in a.instrs) + f"; %{a.result.id}}}"
        return str(a)
    dtype = "" if i.dtype is None else f": {str(i.dtype)[6:]}"
    return f"%{i.id}{dtype} = {i.op}({', '.join(map(arg, i.args))})"


class Recorder:
    """Handler that writes instructions down; equal pure instructions share one id (common subexpressions)."""

    def __init__(self, dtype_of: Callable[[str], torch.dtype], ranges: dict[sympy.Symbol, sympy.Expr] | None = None):
        self._dtype_of, self._ids, self._symbols = dtype_of, itertools.count(), itertools.count()
        self.ranges = {} if ranges is None else ranges
        self.notes: dict[Any, None] = {}
        self.reads: dict[tuple[str, sympy.Expr], None] = {}
        self._lists: list[list[Instr]] = [[]]
        self._memo: list[dict[Any, Ref]] = [{}]
        self._dtypes: dict[int, torch.dtype] = {}

    @property
    def instrs(self) -> tuple[Instr, ...]:
        return tuple(self._lists[0])

    def dtype(self, x: Ref) -> torch.dtype:
        return self._dtypes[x.id]

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """``make()`` run once per key; what a masked block makes stays inside it."""
        for memo in self._memo:
            if key in memo:
                return memo[key]
        value = self._memo[-1][key] = make()
        return value

    def _emit(self, op: str, args: tuple[Any, ...], dtype: torch.dtype | None, pure: bool = True) -> Ref:
        key = (op, args, dtype, tuple(map(type, args)))
        if pure:
            for memo in self._memo:
                if key in memo:
                    return memo[key]
        ref = Ref(next(self._ids))
        self._lists[-1].append(Instr(ref.id, op, args, dtype))
        if dtype is not None:
            self._dtypes[ref.id] = dtype
        if pure:
            self._memo[-1][key] = ref
        return ref

    def load(self, name: str, index: sympy.Expr) -> Ref:
        index = sympy.sympify(index)
        self.reads[name, index] = None
        return self._emit("load", (name, index), self._dtype_of(name))

    def store(self, name: str, index: sympy.Expr, value: Ref, mode: str | None) -> None:
        self._emit("store", (name, sympy.sympify(index), value, mode), None, pure=False)

    def reduce(self, kind: str, value: Ref, dtype: torch.dtype) -> Ref | tuple[Ref, Ref]:
        ref = self._emit("reduce", (kind, value), dtype)
        return (ref, Ref(ref.id, 1)) if kind == "welford" else ref

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Ref:
        # repr tells 0.0 from -0.0 and lets NaN equal itself in the memo
        return self._emit_constant(value, dtype)

    def _emit_constant(self, value: bool | int | float, dtype: torch.dtype) -> Ref:
        key = ("constant", repr(value), dtype)
        for memo in self._memo:
            if key in memo:
                return memo[key]
        ref = self._emit("constant", (value,), dtype, pure=False)
        self._memo[-1][key] = ref
        return ref

    def scalar(self, symbol: sympy.Symbol, dtype: torch.dtype) -> Ref:
        return self._emit("scalar", (symbol,), dtype)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Ref:
        return self._emit("index_expr", (sympy.sympify(expr),), dtype)

    def indirect(self, value: Ref, size: sympy.Expr, wraps: bool) -> sympy.Symbol:
        key = ("indirect", value, size, wraps)
        for memo in self._memo:
            if key in memo:
                return memo[key]
        symbol = sympy.Symbol(f"i{next(self._symbols)}", integer=True, nonnegative=True)
        self._emit("indirect", (value, symbol, sympy.sympify(size), wraps), torch.int64, pure=False)
        self.ranges[symbol] = sympy.sympify(size)
        self._memo[-1][key] = symbol
        return symbol

    def masked(self, mask: Ref, body: Callable[[], Ref], other: bool | int | float) -> Ref:
        self._lists.append([])
        self._memo.append({})
        try:
            result = body()
        finally:
            instrs = self._lists.pop()
            self._memo.pop()
        return self._emit("masked", (mask, Block(tuple(instrs), result), other), self.dtype(result), pure=False)

    def to_dtype(self, x: Ref, dtype: torch.dtype) -> Ref:
        return x if self.dtype(x) == dtype else self._emit("to_dtype", (x,), dtype)

    def bitcast(self, x: Ref, dtype: torch.dtype) -> Ref:
        return self._emit("bitcast", (x,), dtype)

    def random_bits(self, seed: Ref, position: Ref, draw: int) -> Ref:
        return self._emit("random_bits", (seed, position, draw), torch.int32)

    def valid(self, x: Ref, ok: Ref) -> Ref:
        return self._emit("valid", (x, ok), self.dtype(x))

    def where(self, cond: Ref, a: Ref, b: Ref) -> Ref:
        return self._emit("where", (cond, a, b), self.dtype(a))

    def unary(self, name: str, x: Ref) -> Ref:
        return self._emit(name, (x,), torch.bool if name in TO_BOOL else self.dtype(x))

    def binary(self, name: str, a: Ref, b: Ref) -> Ref:
        return self._emit(name, (a, b), torch.bool if name in TO_BOOL else self.dtype(a))


@lru_cache(maxsize=None)
def loop_vars(prefix: str, n: int) -> tuple[sympy.Symbol, ...]:
    """``p0, p1 ...`` for loop variables, ``r0 ...`` for reduction variables."""
    return tuple(sympy.Symbol(f"{prefix}{k}", integer=True, nonnegative=True) for k in range(n))


def record(fn: Callable[..., None], sizes: Sequence[sympy.Expr], rsizes: Sequence[sympy.Expr],
           dtype_of: Callable[[str], torch.dtype]) -> LoopBody:
    """Run ``fn(index)`` (or ``fn(index, rindex)`` when ``rsizes``) once, symbolically; a body to be executed ends in ``ops.store``."""
    vars, rvars = loop_vars("p", len(sizes)), loop_vars("r", len(rsizes))
    sizes, rsizes = tuple(map(sympy.sympify, sizes)), tuple(map(sympy.sympify, rsizes))
    recorder = Recorder(dtype_of, dict(zip(vars + rvars, sizes + rsizes)))
    with ops.use(recorder):
        fn(list(vars), list(rvars)) if rsizes else fn(list(vars))
    return LoopBody(vars, sizes, rvars, rsizes, recorder.instrs)


class MemDep(NamedTuple):
    """One access to memory: the buffer, the flat index, and the sizes of the loop variables p0, p1 ... it is over.

    The same buffer at two indices is two dependencies; ``indirect`` symbols in ``index`` stand for any position below their size.
    """

    name: str
    index: sympy.Expr
    sizes: tuple[sympy.Expr, ...]


@exercise("5.2")
def reads(fn: Callable[[list[sympy.Symbol]], Any], ranges: Sequence[sympy.Expr],
          dtype_of: Callable[[str], torch.dtype] = lambda name: torch.float32) -> set[MemDep]:
    """What ``fn(index)``, run over ``ranges``, loads; loads under a mask count (they may happen)."""
    # >>> 5.2
    body = record(fn, ranges, (), dtype_of)
    return {MemDep(name, index, body.sizes) for name, index in body.loads()}
    # <<< 5.2
