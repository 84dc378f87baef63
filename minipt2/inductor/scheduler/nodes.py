"""``Node``: one ``Computed`` buffer as the scheduler sees it: loop variables with their sizes, integer indices, accesses.

Two rewrites happen here, so that code generation meets only plain reductions: ``argmax``/``argmin`` become a maximum and then
the least position that attains it (NaN counts as the maximum), and ``welford`` becomes a mean and then the sum of squared distances to it.
Upstream: ``torch._inductor.scheduler.SchedulerNode`` and ``dependencies.ReadWrites``.
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import prod
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import torch

from ..ir import Block, Computed, Instr, Ref
from ..sizes import exact, hint, number
from .affine import Index, from_sympy, mergeable, split_point

INT_MAX = 2**31 - 1


class Access(NamedTuple):
    """One load, store or index value. ``mode`` is ``"load"``, ``"store"``, ``"atomic_add"`` or ``"value"`` (a number made of loop variables)."""

    buffer: str
    index: Index
    mode: str
    bytes: int
    """Size of one element."""


@dataclass
class Node:
    """``sizes`` maps loop variables (unique names) to sizes, outermost first; those in ``reduced`` are summed over."""

    buffer: Computed
    sizes: dict[str, Any]
    reduced: frozenset[str]
    body: tuple[Instr, ...]
    accesses: list[Access] = field(default_factory=list)
    mapping: dict[str, Index] = field(default_factory=dict)
    """What the variables of ``body`` have become; most attempts to fuse fail, so that bodies are rewritten only when read."""

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def instrs(self) -> tuple[Instr, ...]:
        """The body over the variables of ``sizes``."""
        if self.mapping:
            mapping, sizes = self.mapping, self.sizes
            self.body, self.mapping = map_indices(self.body, lambda e: e.subs(mapping, sizes)), {}
        return self.body

    def reads(self) -> set[str]:
        return {a.buffer for a in self.accesses if a.mode in ("load", "atomic_add")}

    @property
    def reduces(self) -> bool:
        return any(i.op == "reduce" for i in self.body)

    def apply(self, mapping: Mapping[str, Index], sizes: Mapping[str, Any]) -> "Node":
        """The node over other loop variables: each old one becomes an index over those of ``sizes``."""
        here = {v: mapping[v] for v in self.sizes if v in mapping}
        if not here:
            return self
        own: dict[str, Any] = {}
        for v, n in self.sizes.items():
            for u in sorted(here[v].terms, key=lambda t: -hint(here[v].terms[t])) if v in here else [v]:
                own[u] = sizes.get(u, n)
        reduced = frozenset(u for v in self.reduced for u in (here[v].terms if v in here else [v]))
        accesses = [a._replace(index=a.index.subs(here, own)) for a in self.accesses]
        combined = {v: e.subs(here, own) for v, e in self.mapping.items()} | {v: e for v, e in here.items() if v not in self.mapping}
        return Node(self.buffer, own, reduced, self.body, accesses, combined)


def make_node(buffer: Computed, item_bytes: Callable[[str], int], fresh: Iterator[int], welford: bool = False) -> Node:
    """Convert a ``Computed``, with ``welford`` reductions as they are if asked; loop variables are split where that makes its indices affine (``p0 % 16`` -> an inner variable)."""
    body = buffer.body
    names: dict[str, Index] = {}
    sizes: dict[str, Any] = {}
    reduced = set()
    for v, n in zip(body.vars + body.rvars, body.sizes + body.rsizes):
        if n == 1:
            names[v.name] = Index(0)
            continue
        new = f"{v.name[0]}{next(fresh)}"
        names[v.name], sizes[new] = Index.var(new), number(n)
        if v in body.rvars:
            reduced.add(new)
    names.update({i.args[1].name: Index.var(f"i{next(fresh)}") for i in walk(body.instrs) if i.op == "indirect"})
    instrs = map_indices(_name_indirects(body.instrs, names), lambda e: from_sympy(e).subs(names, sizes))
    position = _linear([v for v in sizes if v in reduced], sizes)
    instrs = expand_reductions(instrs, position, number(prod(sizes[v] for v in reduced)), welford and bool(reduced))
    if not reduced:  # a reduction over one element
        instrs = tuple(i._replace(op="to_dtype", args=i.args[1:]) if i.op == "reduce" else i for i in instrs)
    node = Node(buffer, sizes, frozenset(reduced), instrs)
    node.accesses = list(list_accesses(instrs, item_bytes))
    return _merge(_split(node, fresh))


def _merge(node: Node) -> Node:
    """Make one loop of neighbours that all accesses walk as one, so that differently shaped nests over the same memory look alike."""
    mapping: dict[str, Index] = {}
    for kind in (False, True):
        vars = [v for v in node.sizes if (v in node.reduced) == kind]
        for run in mergeable(vars, node.sizes, [a.index for a in node.accesses]):
            mapping.update({v: Index() for v in run[:-1]})
            node.sizes[run[-1]] = number(prod(node.sizes[v] for v in run))
    return node.apply(mapping, node.sizes) if mapping else node


def _name_indirects(instrs: Sequence[Instr], names: Mapping[str, Index]) -> tuple[Instr, ...]:
    """Symbols of indirect indices get names of their own, their sizes become numbers."""
    out = []
    for i in instrs:
        if i.op == "indirect":
            value, symbol, size, wraps = i.args
            i = i._replace(args=(value, next(iter(names[symbol.name].terms)), number(size), wraps))
        elif i.op == "masked":
            block = i.args[1]
            i = i._replace(args=(i.args[0], Block(_name_indirects(block.instrs, names), block.result), i.args[2]))
        out.append(i)
    return tuple(out)


def _linear(vars: Sequence[str], sizes: Mapping[str, Any]) -> Index:
    total, stride = Index(0), 1
    for v in reversed(vars):
        total, stride = total + Index(0, {v: stride}), stride * sizes[v]
    return total


def list_accesses(instrs: Sequence[Instr], item_bytes: Callable[[str], int]) -> Iterator[Access]:
    """Every load, store and index value of a body."""
    for i in walk(instrs):
        if i.op == "load":
            yield Access(i.args[0], i.args[1], "load", item_bytes(i.args[0]))
        elif i.op == "store":
            yield Access(i.args[0], i.args[1], i.args[3] or "store", item_bytes(i.args[0]))
        elif i.op == "index_expr":
            yield Access("", i.args[0], "value", 0)


def _split(node: Node, fresh: Iterator[int]) -> Node:
    """Split variables until every index is affine or no split helps."""
    for _ in range(16):
        point = next(filter(None, (_useful_split(node, a) for a in node.accesses)), None)
        if point is None:
            return node
        v, inner = point
        hi, lo = f"{v[0]}{next(fresh)}", f"{v[0]}{next(fresh)}"
        node = node.apply({v: Index(0, {hi: inner, lo: 1})}, {hi: exact(node.sizes[v], inner), lo: inner})
    return node


def _useful_split(node: Node, access: Access) -> tuple[str, Any] | None:
    if access.index.is_affine():
        return None
    point = split_point(access.index, node.sizes)
    if point is None or hint(point[1]) >= 8:
        return point
    # an innermost loop of a few iterations would cost more than a division in the index
    contiguous = any(a.mode == "store" and a.index.stride(point[0]) == 1 for a in node.accesses)
    return None if contiguous else point


def walk(instrs: Sequence[Instr]) -> Iterator[Instr]:
    """All instructions, those inside masked blocks included."""
    for i in instrs:
        if i.op == "masked":
            yield from walk(i.args[1].instrs)
        yield i


def map_indices(instrs: Sequence[Instr], fn: Callable[[Any], Any]) -> tuple[Instr, ...]:
    """The same instructions with every index replaced by ``fn(index)``."""
    out = []
    for i in instrs:
        if i.op in ("load", "store"):
            i = i._replace(args=(i.args[0], fn(i.args[1]), *i.args[2:]))
        elif i.op == "index_expr":
            i = i._replace(args=(fn(i.args[0]),))
        elif i.op == "masked":
            block = i.args[1]
            i = i._replace(args=(i.args[0], Block(map_indices(block.instrs, fn), block.result), i.args[2]))
        out.append(i)
    return tuple(out)


def expand_reductions(instrs: Sequence[Instr], position: Index, count: Any, welford: bool = False) -> tuple[Instr, ...]:
    """Rewrite ``argmax``, ``argmin`` and, unless they may stay, ``welford`` over ``count`` elements (``position``: the place of one) into
    sums and extrema."""
    if not any(i.op == "reduce" and i.args[0] in ("argmax", "argmin", "welford") for i in instrs):
        return tuple(instrs)
    fresh = itertools.count(1 + max(i.id for i in walk(instrs)))
    dtypes = {i.id: i.dtype for i in walk(instrs)}
    out: list[Instr] = []
    renamed: dict[Ref, Ref] = {}

    def emit(op: str, *args: Any, dtype: torch.dtype) -> Ref:
        out.append(Instr(next(fresh), op, args, dtype))
        return Ref(out[-1].id)

    for i in instrs:
        i = i._replace(args=tuple(renamed.get(a, a) if isinstance(a, Ref) else a for a in i.args))
        if i.op == "reduce" and i.args[0] == "welford" and not welford:
            mean, m2 = _welford(i, count, emit)
            renamed[Ref(i.id)], renamed[Ref(i.id, 1)] = mean, m2
        elif i.op == "reduce" and i.args[0] in ("argmax", "argmin"):
            renamed[Ref(i.id)] = _arg_extremum(i, dtypes[i.args[1].id], position, count, emit)
        else:
            out.append(i)
    return tuple(out)


def _welford(i: Instr, count: Any, emit: Callable[..., Ref]) -> tuple[Ref, Ref]:
    x, dtype = i.args[1], i.dtype
    total = emit("reduce", "sum", x, dtype=dtype)
    known = isinstance(count, int)
    mean = emit("div", total, emit("constant", float(count), dtype=dtype) if known else emit("index_expr", Index(count), dtype=dtype), dtype=dtype)
    distance = emit("sub", emit("to_dtype", x, dtype=dtype), mean, dtype=dtype)
    return mean, emit("reduce", "sum", emit("mul", distance, distance, dtype=dtype), dtype=dtype)


def _arg_extremum(i: Instr, dtype: torch.dtype, position: Index, count: Any, emit: Callable[..., Ref]) -> Ref:
    x = i.args[1]
    best = emit("reduce", i.args[0][3:], x, dtype=dtype)
    found = emit("eq", x, best, dtype=torch.bool)
    if dtype.is_floating_point:
        found = emit("logical_or", found, emit("isnan", x, dtype=torch.bool), dtype=torch.bool)
    itype = torch.int32 if isinstance(count, int) and count < INT_MAX else torch.int64
    none = emit("constant", INT_MAX if itype is torch.int32 else 2**63 - 1, dtype=itype)
    where = emit("where", found, emit("index_expr", position, dtype=itype), none, dtype=itype)
    first = emit("reduce", "min", where, dtype=itype)
    return first if itype is torch.int64 else emit("to_dtype", first, dtype=torch.int64)
