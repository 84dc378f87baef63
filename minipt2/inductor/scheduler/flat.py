"""``Flat``: the bodies of a fused group as one list of instructions over the group's loop nest.

What one node stores and another loads at the same index becomes a plain reference, common subexpressions are shared, stores to
buffers that nobody outside reads disappear. Every value has a level (does it change with the reduction variables?) and a stage
(how many reductions must be complete before it can be computed): softmax has stages 0 (maximum), 1 (sum), 2 (quotient).
Upstream: what ``torch._inductor.codegen`` kernels do with CSE and ``store_buffer_names``; compare ``cpp.CppKernel``.
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Iterator, Sequence

import torch

from ..ir import Block, Instr, Ref
from .affine import Index
from .align import Domain
from .nodes import Node, walk


@dataclass
class Flat:
    """``instrs`` in order; ``inner`` holds ids of values that change with the reduction variables; ``stage`` by id."""

    domain: Domain
    instrs: list[Instr]
    inner: set[int] = field(default_factory=set)
    stage: dict[int, int] = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """Number of passes over the reduction variables (1 for a pointwise group)."""
        return 1 + max((self.stage[i.id] for i in self.instrs if i.op == "store"), default=0)

    def by_id(self) -> dict[int, Instr]:
        return {i.id: i for i in self.instrs}


def flatten(nodes: Sequence[Node], domain: Domain, removed: set[str]) -> Flat:
    """One body for all ``nodes``; ``removed`` names buffers that live only here."""
    builder = _Builder(removed)
    for node in nodes:
        builder.add(node)
    flat = Flat(domain, _reachable(builder.out))
    _analyse(flat)
    return flat


class _Builder:
    def __init__(self, removed: set[str]):
        self.removed = removed
        self.out: list[Instr] = []
        self.memo: dict[Any, Ref] = {}
        self.stored: dict[tuple[str, Index], Ref] = {}
        self.dtypes: dict[int, torch.dtype | None] = {}
        self.ids = itertools.count()

    def add(self, node: Node) -> None:
        self.refs: dict[Ref, Ref] = {}
        self.symbols: dict[str, Index] = {}
        for i in node.instrs:
            self.place(i, self.out, self.memo)

    def place(self, i: Instr, out: list[Instr], memo: dict[Any, Ref]) -> None:
        args = tuple(self.refs.get(a, a) if isinstance(a, Ref) else self.index(a) if isinstance(a, Index) else a for a in i.args)
        if i.op == "load" and (args[0], args[1]) in self.stored:
            self.define(i, self.convert(self.stored[args[0], args[1]], i.dtype, out, memo))
        elif i.op == "store":
            self.stored[args[0], args[1]] = args[2]
            if args[0] not in self.removed:
                out.append(Instr(next(self.ids), "store", args, None))
        elif i.op == "masked":
            self.define(i, self.emit(i.op, (args[0], self.block(args[1], memo), args[2]), i.dtype, out, None))
        elif i.op == "indirect":
            self.indirect(i, args, out, memo)
        else:
            self.define(i, self.emit(i.op, args, i.dtype, out, memo))

    def index(self, index: Index) -> Index:
        return index.subs(self.symbols, {}) if self.symbols else index

    def define(self, i: Instr, ref: Ref) -> None:
        self.refs[Ref(i.id)] = ref
        self.refs[Ref(i.id, 1)] = Ref(ref.id, 1)

    def convert(self, ref: Ref, dtype: torch.dtype, out: list[Instr], memo: dict[Any, Ref]) -> Ref:
        return ref if self.dtypes[ref.id] == dtype else self.emit("to_dtype", (ref,), dtype, out, memo)

    def emit(self, op: str, args: tuple[Any, ...], dtype: torch.dtype | None, out: list[Instr], memo: dict[Any, Ref] | None) -> Ref:
        key = (op, dtype, repr(args) if op == "constant" else args, tuple(map(type, args)))
        if memo is not None and key in memo:
            return memo[key]
        ref = Ref(next(self.ids))
        out.append(Instr(ref.id, op, args, dtype))
        self.dtypes[ref.id] = dtype
        if memo is not None:
            memo[key] = ref
        return ref

    def indirect(self, i: Instr, args: tuple[Any, ...], out: list[Instr], memo: dict[Any, Ref]) -> None:
        """The symbol of an indirect index is named after the instruction that defines it."""
        value, symbol, size, wraps = args
        key = ("indirect", value, size, wraps)
        if key not in memo:
            memo[key] = Ref(next(self.ids))
            out.append(Instr(memo[key].id, "indirect", (value, f"i{memo[key].id}", size, wraps), i.dtype))
            self.dtypes[memo[key].id] = i.dtype
        self.symbols[symbol] = Index.var(f"i{memo[key].id}")
        self.define(i, memo[key])

    def block(self, block: Block, memo: dict[Any, Ref]) -> Block:
        inner: list[Instr] = []
        own = dict(memo)  # what is known outside is known inside, not the other way round
        for i in block.instrs:
            self.place(i, inner, own)
        return Block(tuple(inner), self.refs[block.result])


def uses(i: Instr) -> Iterator[int]:
    """Ids of the values an instruction reads, those read inside its block included."""
    for a in i.args:
        if isinstance(a, Ref):
            yield a.id
        elif isinstance(a, Block):
            for j in a.instrs:
                yield from uses(j)
            yield a.result.id
        elif isinstance(a, Index):
            for name in a.names():
                if name[0] == "i":
                    yield int(name[1:])


def _reachable(instrs: list[Instr]) -> list[Instr]:
    """Drop values that no store needs."""
    needed: set[int] = set()
    out = []
    for i in reversed(instrs):
        if i.op == "store" or i.id in needed:
            out.append(i)
            needed.update(uses(i))
    return out[::-1]


def _analyse(flat: Flat) -> None:
    reduced = flat.domain.reduced
    for i in flat.instrs:
        used = list(uses(i))
        stage = max((flat.stage.get(u, 0) for u in used), default=0)
        if i.op == "reduce":
            flat.stage[i.id] = stage + 1
            continue
        flat.stage[i.id] = stage
        touches = any(n in reduced for j in walk([i]) for a in j.args if isinstance(a, Index) for n in a.names())
        if touches or any(u in flat.inner for u in used):
            flat.inner.add(i.id)

