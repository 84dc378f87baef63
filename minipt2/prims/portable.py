"""Graphs, and records that hold graphs, as bytes that another process reads back.

``dumps(value)`` takes what compiled graphs are described with: plain data, dtypes and devices, ATen overloads and prims, operators of
torch and Python by name, small constant tensors by content, and ``fx.GraphModule``\\ s of such things. Everything else (a function of
the user's, a custom operator, a fake tensor, an object whose class is not ours) raises ``NotPortable``: what it means in another
process cannot be known. ``loads`` runs what the bytes say, as ``pickle`` does: read only what this user wrote.
Upstream: ``torch.fx._graph_pickler`` and ``AOTAutogradCache``'s checks of what is cacheable.
"""
from __future__ import annotations

import io
import operator
import pickle
import sys
import types
from contextvars import ContextVar
from typing import Any, Mapping

import torch
from torch import fx

from ..shapes.known import SYMBOLIC
from .core import TensorMeta
from .lazy import Graph, LazyGraphModule

LARGEST_CONSTANT = 1 << 20
"""Bytes of a constant tensor; larger ones are data, not part of a program."""
NAMESPACES = frozenset({"aten", "prims", "mkldnn", "minipt2"})
"""Operator libraries whose content a version of torch or of ours fixes."""
_ROOTS = frozenset({"torch", "minipt2", "builtins", "operator", "_operator", "math", "collections", "_codecs"})


class NotPortable(Exception):
    """Something that has no meaning outside this process."""


def dumps(value: Any) -> bytes:
    """``value`` as bytes. Raises NotPortable."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise NotPortable(str(error)) from error
    return buffer.getvalue()


def loads(data: bytes, symbols: Mapping[str, Any] | None = None) -> Any:
    """What ``dumps`` was given; graphs come back as ``LazyGraphModule``. ``symbols``: by name, what symbolic numbers are made of now."""
    token = _symbols.set(symbols or {})
    try:
        return pickle.loads(data)
    finally:
        _symbols.reset(token)


_symbols: ContextVar[Mapping[str, Any]] = ContextVar("symbols")
_SCOPE = {"max": torch.sym_max, "min": torch.sym_min, "float": torch.sym_float, "int": torch.sym_int}


def _number(text: str) -> Any:
    return number(text, _symbols.get())


def text(expression: Any) -> str:
    """An expression of symbols as Python that ``number`` reads. Raises NotPortable for functions that Python has for known numbers only."""
    from ..shapes import python

    written = python(expression)
    if "math." in written:
        raise NotPortable(f"{written} of numbers that vary")
    return written


def number(text: str, symbols: Mapping[str, Any]) -> Any:
    """The number, or truth, that ``shapes.python`` wrote as ``text``."""
    return eval(text, {**_SCOPE, **symbols})


def named(target: Any) -> str:
    """A function of torch or Python as text that tells it from all others. Raises NotPortable for functions that anybody may change."""
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in NAMESPACES:
            raise NotPortable(f"{target} belongs to a library that is not torch's")
        return str(target)
    if getattr(target, "name", None) and type(target).__name__ == "Prim":
        return repr(target)
    owner = getattr(target, "__self__", getattr(target, "__objclass__", None))
    if owner is not None and not isinstance(owner, (type, types.ModuleType)):
        raise NotPortable(f"{target!r} belongs to an object")
    module = getattr(target, "__module__", None) or getattr(owner, "__module__", None) or getattr(owner, "__name__", "")
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, type)
    name = getattr(target, "__qualname__", "")
    known = not isinstance(target, types.FunctionType) or _resolves(target, module, name)
    if not isinstance(target, kinds) or module.partition(".")[0] not in _ROOTS or not known:
        raise NotPortable(f"{target!r} is no function of torch or Python")
    owner_name = getattr(owner, "__name__", "") if owner is not None and not isinstance(owner, types.ModuleType) else ""
    return f"{type(target).__name__} {module} {owner_name} {name} {target.__name__}"


def _resolves(target: Any, module: str, name: str) -> bool:
    """Whether ``target`` is what its module knows under its name (not one put in its place)."""
    found = sys.modules.get(module)
    if getattr(found, target.__name__, None) is target:
        return True
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is target


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch._ops.OpOverload):
            named(value)
            namespace, name = value._schema.name.split("::")
            return _overload, (namespace, name, value._overloadname)
        if isinstance(value, fx.GraphModule):
            return _graph_module, _rows(value)
        if isinstance(value, torch.Tensor):
            return _tensor(value)
        if isinstance(value, SYMBOLIC):
            return _number, (text(value.node.expr),)
        if isinstance(value, fx.Node):
            raise NotPortable("a node without its graph")
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            named(value)
            if value.__module__ == "torch" and getattr(torch, value.__name__, None) is value:
                return _of_torch, (value.__name__,)
        return NotImplemented


def _of_torch(name: str) -> Any:
    return getattr(torch, name)


def _overload(namespace: str, name: str, overload: str) -> Any:
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def _tensor(value: torch.Tensor) -> tuple:
    """By content: dtype, shape, strides, and the bytes in memory order of a copy."""
    plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu" and not value.requires_grad
    if not plain or value.is_quantized or value.is_conj() or value.is_neg() or value.numel() * value.element_size() > LARGEST_CONSTANT:
        raise NotPortable(f"a {type(value).__name__} of {tuple(value.shape)}")
    flat = value.detach().contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return _constant, (content, value.dtype, tuple(value.shape), tuple(value.stride()))


def _constant(content: bytes, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode(False), torch.no_grad():
        tensor = torch.empty_strided(shape, strides, dtype=dtype)
        if content:
            tensor.copy_(torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape))
        return tensor


# ------------------------------------------------------------------ graphs
class _Ref(tuple):
    """(position,): a node, in the arguments of a later one."""


def _meta(value: Any) -> Any:
    """Tensors of metadata as their shape, dtype, device and strides."""
    if isinstance(value, (torch.Tensor, TensorMeta)):
        if value.layout is not torch.strided:
            raise NotPortable("a tensor that is not strided")
        return TensorMeta.of(value)
    return type(value)(map(_meta, value)) if type(value) in (list, tuple) else value


def _rows(gm: fx.GraphModule) -> tuple[list[tuple], dict[str, Any], dict[str, Any]]:
    place = {node: _Ref((i,)) for i, node in enumerate(gm.graph.nodes)}
    rows, constants = [], {}
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            constants[node.target] = operator.attrgetter(node.target)(gm)
        elif node.op == "call_module":
            raise NotPortable("a call of a module")
        args, kwargs = fx.map_arg((node.args, node.kwargs), place.__getitem__)
        meta = {k: _meta(v) if k == "val" else v for k, v in node.meta.items()}
        rows.append((node.op, node.name, node.target, _plain(args), _plain(kwargs), meta))
    if any("." in name or not isinstance(c, torch.Tensor) for name, c in constants.items()):
        raise NotPortable("a constant that is no tensor")
    return rows, constants, dict(gm.meta)


def _plain(arg: Any) -> Any:
    """Immutable lists and dicts of fx as ordinary ones."""
    if type(arg) is _Ref:
        return arg
    if isinstance(arg, list) or type(arg) is tuple:
        return (list if isinstance(arg, list) else tuple)(map(_plain, arg))
    inside = (arg.start, arg.stop, arg.step) if isinstance(arg, slice) else arg if isinstance(arg, tuple) else ()
    if any(type(a) is _Ref for a in inside):
        raise NotPortable("a node inside a slice or a named tuple")
    return {k: _plain(v) for k, v in arg.items()} if isinstance(arg, dict) else arg


def _graph_module(rows: list[tuple], constants: dict[str, Any], meta: dict[str, Any]) -> LazyGraphModule:
    graph, nodes = Graph(), []
    for op, name, target, args, kwargs, node_meta in rows:
        node = graph.create_node(op, target, _nodes(args, nodes), _nodes(kwargs, nodes), name=name)
        node.meta = node_meta
        nodes.append(node)
    gm = LazyGraphModule(constants, graph)
    gm.meta.update(meta)
    return gm


def _nodes(arg: Any, nodes: list[fx.Node]) -> Any:
    if type(arg) is _Ref:
        return nodes[arg[0]]
    if type(arg) in (list, tuple):
        return type(arg)(_nodes(a, nodes) for a in arg)
    return {k: _nodes(v, nodes) for k, v in arg.items()} if isinstance(arg, dict) else arg
