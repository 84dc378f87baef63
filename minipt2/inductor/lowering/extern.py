"""Calls of eager kernels: contractions, explicit fallbacks, and whatever lowering does not know.

Upstream: ``ExternKernelOut`` and ``FallbackKernel`` of ``torch._inductor.ir``.
"""
from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, Sequence

import torch
from torch import fx

from ... import trace
from ...prims import kind
from ...prims.core import Prim
from ...prims.kinds import pure
from ...prims.random import random_seed
from ..attention import attention, attention_backward
from ..ir import Buffer, Extern, Layout
from ..ir.buffers import tensor_refs
from ..products import product
from .order import dense
from .symbols import SYMBOLIC
from .tensors import NUMBERS, Stored

aten = torch.ops.aten
CONTRACTIONS: dict[str, Any] = {
    "mm": aten.mm.default, "bmm": aten.bmm.default, "addmm": aten.addmm.default, "baddbmm": aten.baddbmm.default,
    "convolution": aten.convolution.default, "convolution_backward": aten.convolution_backward.default, "cumsum": aten.cumsum.default,
}
ANY_STRIDES = frozenset((aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default))
"""Kernels whose result does not depend on the memory order of their operands."""
KEYWORDS = {"addmm": ("beta", "alpha"), "baddbmm": ("beta", "alpha")}

_SILENT_VIEWS = frozenset(("aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes"))
"""Operators whose results share memory although their schemas do not say so."""


@lru_cache(maxsize=None)
def out_variant(target: Any, device: str) -> Any:
    """The overload of ``target`` that writes into ``out=`` with a kernel of its own on ``device`` (a generated one only copies), or None."""
    if target is product:  # generated code computes it
        return target
    if not isinstance(target, torch._ops.OpOverload) or len(target._schema.returns) != 1:
        return None
    packet = target._overloadpacket
    name = "out" if target._overloadname == "default" else f"{target._overloadname}_out"
    if name not in packet.overloads():
        return None
    candidate = getattr(packet, name)
    same = [a.name for a in candidate._schema.arguments if not a.is_out] == [a.name for a in target._schema.arguments]
    outs = [a.name for a in candidate._schema.arguments if a.is_out]
    key = "CUDA" if device == "cuda" else "CPU"
    native = torch._C._dispatch_has_kernel_for_dispatch_key(candidate._schema.name + "." + candidate._schema.overload_name, key)
    return candidate if same and outs == ["out"] and native else None


def call(g: Any, node: fx.Node, name: str) -> Any:
    """An ``Extern`` for ``node``; returns what the node's users see: a Stored, a list of them, or a number known already."""
    target = CONTRACTIONS.get(name, node.target)
    args, kwargs = list(node.args), dict(node.kwargs)
    if name in KEYWORDS:
        for keyword in reversed(KEYWORDS[name]):
            kwargs[keyword] = args.pop()
    elif name in CONTRACTIONS:
        args, kwargs = args + list(kwargs.values()), {}
    val = node.meta.get("val")
    if isinstance(val, (bool, int, float)):
        return val
    if isinstance(val, SYMBOLIC):
        return g.symbols.number(val)
    if target is not CONTRACTIONS.get(name) and not _deliberate(node):
        trace.count("fallbacks")
        trace.artifact("fallback", str(target), node.meta.get("fallback", "no lowering"))
    fresh = _unaliased(target)
    refs = _arguments(g, node, fresh, (tuple(args), kwargs))
    return _emit(g, node, fresh, refs, val, row_major=fresh is not target)


def _deliberate(node: fx.Node) -> bool:
    """Calls that were chosen, not fallen back to: fused oneDNN operators, attention, packed products, checks of values, seeds."""
    return getattr(node.target, "namespace", "") in ("mkldnn", "onednn", "minipt2") or kind(node) in ("contraction", "effect") \
        or node.target in (random_seed, product, attention, attention_backward)


@lru_cache(maxsize=None)
def _unaliased(target: Any) -> Any:
    """A view operator's copying twin: a buffer never shares memory with another one unknown to the memory plan."""
    if isinstance(target, Prim) and target.kind == "view":
        return _Cloned(target)
    schema = getattr(target, "_schema", None)
    if schema is not None and schema.name in _SILENT_VIEWS:
        return _Cloned(target)
    if schema is None or not any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        return target
    twin = getattr(getattr(torch.ops, target.namespace), schema.name.split("::")[1] + "_copy", None)
    overload = getattr(twin, target._overloadname, None) if twin is not None else None
    return overload if overload is not None else _Cloned(target)


class _Cloned:
    """Calls a view operator and copies what it returns."""

    def __init__(self, target: Any):
        self.target, self.__name__ = target, f"{target}_cloned"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.target(*args, **kwargs)
        copy = lambda t: t.clone(memory_format=torch.contiguous_format)
        return [copy(t) for t in result] if isinstance(result, (tuple, list)) else copy(result)


def _arguments(g: Any, node: fx.Node, target: Any, tree: Any) -> Any:
    """The call's arguments with every node replaced by a reference to memory, in the memory order the kernel needs."""

    def convert(n: Any) -> Any:
        if not isinstance(n, fx.Node):
            return g.symbols.number(n)
        tensor = g.env[n]
        if isinstance(tensor, NUMBERS) or tensor is None:
            return tensor
        if target in ANY_STRIDES:
            return g.reference(tensor)
        return g.reference(tensor, g.symbols.sizes(n.meta.get("layout") or n.meta["val"].stride()))

    return fx.node.map_aggregate(tree, convert)


def _emit(g: Any, node: fx.Node, target: Any, refs: Any, val: Any, row_major: bool) -> Any:
    args, kwargs = refs
    common = dict(target=target, args=args, kwargs=kwargs, stack=node.meta.get("stack", ()), origins=(node.name,),
                  random=not pure(node) and kind(node) != "effect", effect=kind(node) == "effect", mutates=_mutated(g, target, args, kwargs))
    nothing = Layout((), (), torch.float32, torch.device("cpu"))
    wanted = node.meta.get("layout")
    if isinstance(val, (tuple, list)):
        layouts = [_layout(g, v, wanted and wanted[k], row_major) if hasattr(v, "stride") else None for k, v in enumerate(val)]
        outputs = [Buffer(g.new_name(), layout) if use and layout else None for use, layout in zip(g.used(len(val)), layouts)]
        g.emit(Extern(g.new_name(), next(filter(None, layouts), nothing), outputs=outputs, **common))
        for buffer in outputs:
            g.declare(buffer)
        return [None if b is None else Stored(b.name, b.layout) for b in outputs]
    if not hasattr(val, "stride"):
        g.emit(Extern(g.new_name(), nothing, **common))
        return None
    layout = _layout(g, val, wanted, row_major)
    extern = Extern(g.new_name(), layout, out_variant=out_variant(target, layout.device.type), **common)
    g.emit(extern)
    return Stored(extern.name, layout)


def _layout(g: Any, val: Any, strides: Sequence[Any] | None, row_major: bool) -> Layout:
    sizes = g.symbols.sizes(val.shape)
    return Layout(sizes, dense(sizes, None) if row_major else g.symbols.sizes(strides or val.stride()), val.dtype, val.device)


def _mutated(g: Any, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """Buffers that the kernel writes into; closures that still read them are realised first."""
    names = []
    for k, name in _written(target):
        names += [ref.buffer for ref in tensor_refs(args[k] if k < len(args) else kwargs.get(name))]
    for name in names:
        g.realize_readers(name)
    return tuple(names)


@lru_cache(maxsize=None)
def _written(target: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of the arguments that ``target``'s schema says it writes into."""
    schema = getattr(target, "_schema", None)
    return () if schema is None else tuple([(k, a.name) for k, a in enumerate(schema.arguments)
                                            if a.alias_info is not None and a.alias_info.is_write])


def is_effect(node: fx.Node) -> bool:
    """Whether ``node`` must run even if nobody reads it: it draws random numbers, raises, or writes into an argument."""
    return not pure(node) or bool(_written(node.target))


def getitem(g: Any, node: fx.Node) -> Any:
    """One output of several."""
    return g.env[node.args[0]][node.args[1]]


BUILTINS = {operator.getitem: getitem}
