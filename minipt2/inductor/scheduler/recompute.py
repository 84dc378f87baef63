"""Compute a cheap intermediate again where it is read, instead of writing it to memory for its readers.

Before: ``t = x + bias``; ``q``, ``k``, ``v`` copy parts of ``t``. After: ``q``, ``k``, ``v`` are computed from ``x`` and ``bias``; ``t`` is
never stored. A reader's index into ``t`` is taken apart by the strides ``t`` is stored with, and what made ``t`` is written out at that place.
``inline_cheap`` runs before fusion; ``recompute`` after it, when it is known who ends up in which kernel (layer norm's backward
needs ``(x - mean) * rstd`` in a kernel over rows and in one over columns). Upstream decides this while lowering (``realize_hint``).
"""
from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any, Callable, Mapping, Sequence

from ..ir import Block, Instr, Ref
from ..sizes import exact, hint, nonnegative
from .affine import Index, quot, rem
from .costs import cost
from .fusion import Group
from .nodes import Access, Node, list_accesses, walk

BYTES_PER_UNIT = 0.5
"""Bytes of memory traffic that take as long as one addition's worth of computation on one element."""
MOST_INSTRUCTIONS = 200
"""Bodies do not grow beyond this."""


def inline_cheap(nodes: list[Node], kept: frozenset[str], writers: Counter[str]) -> list[Node]:
    """Before fusion: inline intermediates for whose readers reading the operands costs no more than the write saves.

    ``writers`` counts who fills each buffer, being given as an input included: what is filled twice may not be read later than it was.
    """
    made = {name: k for k, n in enumerate(nodes) if (name := single_store(n)) is not None and writers[name] == 1}
    readers: dict[str, list[int]] = defaultdict(list)
    for k, n in enumerate(nodes):
        for name in {a.buffer for a in n.accesses if a.mode == "load"}:
            readers[name].append(k)
    result = list(nodes)
    for name, k in made.items():  # producers come before their readers, so chains are inlined from the front
        if name in kept or not readers[name]:
            continue
        changed = _inlined_readers(name, result[k], {u: result[u] for u in readers[name]}, writers, stays=False)
        if changed is not None:
            for u, n in changed.items():
                result[u] = n
            for leaf in {a.buffer for a in result[k].accesses if a.mode == "load"}:
                readers[leaf] = sorted(set(readers[leaf]) - {k} | set(readers[name]))
            readers[name] = []
            result[k] = None  # type: ignore[call-overload]
    return [n for n in result if n is not None]


def recompute(groups: list[Group], kept: frozenset[str], writers: Counter[str]) -> list[Group]:
    """After fusion: inline what one kernel makes into the other kernels that read it, where that saves traffic."""
    current = {g.unit: g for g in groups}
    readers: dict[str, set[int]] = defaultdict(set)
    for g in groups:
        for a in g.accesses():
            if a.mode == "load":
                readers[a.buffer].add(g.unit)
    for unit in [g.unit for g in groups]:
        for node in current[unit].nodes:
            name = single_store(node)
            outside = readers[name] - {unit} if name is not None and name not in kept and writers[name] == 1 else set()
            if outside:
                _recompute_one(name, node, current, unit, outside, readers, writers)
    return [current[g.unit] for g in groups]


def _recompute_one(name: str, node: Node, current: dict[int, Group], unit: int, outside: set[int], readers: dict[str, set[int]],
                   writers: Counter[str]) -> None:
    for a in node.accesses:  # what is made here too, and not small, would have to be stored in its turn
        if a.mode == "load" and a.buffer in current[unit].written() and _bytes(a, node.sizes) * 8 > _bytes(node.accesses[-1], node.sizes):
            return
    units = {(u, k): n for u in outside for k, n in enumerate(current[u].nodes) if any(a.buffer == name for a in n.accesses)}
    touched = {key: {b for b in current[key[0]].touched()} for key in units}
    changed = _inlined_readers(name, node, units, writers, stays=name in readers and unit in readers[name], touched=touched)
    if changed is None:
        return
    for (u, k), n in changed.items():
        nodes = list(current[u].nodes)
        nodes[k] = n
        current[u] = replace(current[u], nodes=nodes)
    readers[name] -= outside
    for a in node.accesses:
        if a.mode == "load":
            readers[a.buffer] |= outside


def single_store(node: Node) -> str | None:
    """The one buffer a pointwise node stores to."""
    stores = [a for a in node.accesses if a.mode not in ("load", "value")]
    return stores[0].buffer if len(stores) == 1 and stores[0].mode == "store" and not node.reduces else None


def _inlined_readers(name: str, node: Node, units: Mapping[Any, Node], writers: Counter[str], stays: bool,
                     touched: Mapping[Any, set[str]] | None = None) -> dict[Any, Node] | None:
    """``units`` (nodes that read ``name``) with ``node`` inlined; None when that is impossible or saves nothing."""
    loads = [a for a in node.accesses if a.mode == "load"]
    if any(writers[a.buffer] > 1 for a in loads) or any(i.op == "indirect" for i in walk(node.instrs)):
        return None
    price = sum(cost(i.op, i.dtype) for i in walk(node.instrs) if i.op not in ("load", "store"))
    store = next(a for a in node.accesses if a.mode == "store")
    size = _bytes(store, node.sizes)
    gain = size if stays else size + sum(_bytes(a, node.sizes) for a in _distinct(loads))
    changed: dict[Any, Node] = {}
    for key, reader in units.items():
        new = inline(reader, node, store)
        if new is None:
            return None
        changed[key] = new
        known = touched[key] if touched is not None else set()
        before, after = _traffic(reader, known), _traffic(new, known)
        gain += before - after - price * _times(name, reader) * BYTES_PER_UNIT
    return changed if gain > 0 else None


def _times(name: str, reader: Node) -> float:
    """How often ``reader`` would compute an element of ``name``: once an iteration, or once before its reduction, for each place it reads."""
    inside = any(a.buffer == name and not reader.reduced.isdisjoint(a.index.names()) for a in reader.accesses)
    total = float(len({a.index for a in reader.accesses if a.buffer == name}))
    for v, n in reader.sizes.items():
        total *= 1 if v in reader.reduced and not inside else hint(n)
    return total


def _traffic(node: Node, known: set[str]) -> float:
    return sum(_bytes(a, node.sizes) for a in _distinct(node.accesses) if a.mode == "load" and a.buffer not in known)


def _distinct(accesses: Sequence[Access]) -> list[Access]:
    return list({(a.buffer, a.index): a for a in accesses}.values())


def _bytes(access: Access, sizes: Mapping[str, Any]) -> float:
    total = float(access.bytes)
    for v in access.index.names():
        total *= hint(sizes.get(v, 1))
    return total


def inline(reader: Node, node: Node, store: Access) -> Node | None:
    """``reader`` with every load of what ``node`` stores replaced by its computation; None where an index would need a division."""
    if len(reader.instrs) + len(node.instrs) > MOST_INSTRUCTIONS:
        return None
    dims = _dims(store.index, node.sizes)
    if dims is None:
        return None
    builder = _Inliner(reader, node, store, dims)
    instrs = builder.rewrite(reader.instrs)
    if instrs is None:
        return None
    sizes = {a.buffer: a.bytes for a in (*reader.accesses, *node.accesses)}
    return replace(reader, body=instrs, mapping={}, accesses=list(list_accesses(instrs, sizes.__getitem__)))


def _dims(index: Index, sizes: Mapping[str, Any]) -> list[tuple[str, Any, Any]] | None:
    """(variable, stride, size), outermost first, of an index that gives each element a place of its own."""
    if set(index.terms) != set(sizes):
        return None
    dims = sorted(((v, c, sizes[v]) for v, c in index.terms.items()), key=lambda d: -hint(d[1]))
    for (_, outer, _), (_, inner, n) in zip(dims, dims[1:]):
        if not nonnegative(inner) or exact(outer, inner) is None or not nonnegative(outer - inner * n):
            return None
    return dims if not dims or nonnegative(dims[-1][1]) else None


class _Inliner:
    def __init__(self, reader: Node, node: Node, store: Access, dims: list[tuple[str, Any, Any]]):
        self.reader, self.node, self.store, self.dims = reader, node, store, dims
        self.next = 1 + max(i.id for i in walk(reader.instrs))
        self.refs: dict[Ref, Ref] = {}

    def rewrite(self, instrs: Sequence[Instr]) -> tuple[Instr, ...] | None:
        out: list[Instr] = []
        for i in instrs:
            if i.op == "load" and i.args[0] == self.store.buffer:
                if not self.place(i, out):
                    return None
                continue
            if i.op == "masked":
                inner = self.rewrite(i.args[1].instrs)
                if inner is None:
                    return None
                i = i._replace(args=(i.args[0], Block(inner, self.refs.get(i.args[1].result, i.args[1].result)), i.args[2]))
            out.append(i._replace(args=tuple(self.refs.get(a, a) if isinstance(a, Ref) else a for a in i.args)))
        return tuple(out)

    def place(self, load: Instr, out: list[Instr]) -> bool:
        """The node's instructions at the element that ``load`` reads."""
        rest, mapping = load.args[1] + Index(-self.store.index.const), {}
        sizes = self.reader.sizes
        for k, (v, stride, _) in enumerate(self.dims):
            mapping[v] = quot(rest, stride, sizes)
            rest = rem(rest, stride, sizes) if k + 1 < len(self.dims) or stride != 1 else Index()
        plain = load.args[1].is_affine()
        if plain and not all(m.is_affine() for m in mapping.values()):
            return False
        own: dict[Ref, Ref] = {}
        self.copy(self.node.instrs, out, own, lambda e: e.subs(mapping, sizes))
        value = next(i.args[2] for i in self.node.instrs if i.op == "store")
        self.refs[Ref(load.id)] = own[value]
        return True

    def copy(self, instrs: Sequence[Instr], out: list[Instr], own: dict[Ref, Ref], move: Callable[[Index], Index]) -> None:
        for i in instrs:
            if i.op == "store":
                continue
            args = []
            for a in i.args:
                if isinstance(a, Block):
                    inner: list[Instr] = []
                    self.copy(a.instrs, inner, own, move)
                    a = Block(tuple(inner), own[a.result])
                args.append(own.get(a, a) if isinstance(a, Ref) else move(a) if isinstance(a, Index) else a)
            own[Ref(i.id)] = Ref(self.next)
            out.append(Instr(self.next, i.op, tuple(args), i.dtype))
            self.next += 1
