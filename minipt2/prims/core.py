"""What a prim is, what it works on while a graph is expanded, and the recorder that turns calls into nodes.

A :class:`Prim` is called in two ways. On tensors it runs its eager reference. While a :class:`Recorder` is active it is called on
:class:`Value`\\ s, computes the result's metadata with its own pure-Python rule, and adds one node to the recorder's graph.
Upstream: ``torch._prims`` (``_make_prim``) and ``torch.fx.Proxy``.
"""
from __future__ import annotations

import inspect
import operator
import threading
from typing import Any, Callable, Iterable

import torch
from torch import fx

from ..shapes.known import key
from .lazy import Graph

Shape = tuple[int, ...]
Number = bool | int | float
"""Or a symbolic one, as sizes may be."""


class TensorMeta:
    """Shape, dtype, device and strides (in elements) of a strided tensor: all that a meta rule looks at and returns."""

    __slots__ = ("shape", "dtype", "device", "strides")
    layout = torch.strided

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device, strides: Shape):
        self.shape, self.dtype, self.device, self.strides = shape, dtype, device, strides

    @classmethod
    def of(cls, tensor: Any) -> "TensorMeta":
        """From anything with ``.shape``, ``.dtype``, ``.device`` and ``.stride()``."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device, tuple(tensor.stride()))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def numel(self) -> int:
        n = 1
        for size in self.shape:
            n = n * size
        return n

    def __repr__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)} strides {list(self.strides)} {self.device}"


class Value(TensorMeta):
    """A tensor that a rule computes with: its metadata and the node that makes it. ``+ - * /`` and comparisons are prims."""

    __slots__ = ("node",)

    def __init__(self, meta: TensorMeta, node: fx.Node):
        super().__init__(meta.shape, meta.dtype, meta.device, meta.strides)
        self.node = node


class Prim:
    """One operation of the closed set.

    ``kind`` is ``pointwise``, ``view``, ``reduction``, ``index``, ``contraction``, ``random`` or ``creation``; ``meta(*args)`` gives the
    :class:`TensorMeta` (or a tuple of them) of the result and raises ``ValueError`` on wrong use; ``ref(*args)`` computes it eagerly.
    Nodes of expanded graphs carry every parameter positionally, defaults included, and no keyword arguments.
    """

    def __init__(self, name: str, kind: str, meta: Callable[..., Any], ref: Callable[..., Any], doc: str):
        self.__name__ = self.name = name
        self.__qualname__, self.__module__ = name, "minipt2.prims"
        self.kind, self.meta, self.ref = kind, meta, ref
        self.doc = self.__doc__ = inspect.cleandoc(doc)
        self.signature = inspect.signature(meta)
        self.schema = f"{name}{self.signature}".replace("'", "")
        self.parameters = len(self.signature.parameters)
        self.simplify: Callable[..., Value | None] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != self.parameters:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        recorder = getattr(_active, "recorder", None)
        return self.ref(*args) if recorder is None else recorder.record(self, args)

    def __repr__(self) -> str:
        return f"prims.{self.name}"

    def __reduce__(self) -> Any:
        return _lookup, (self.name,)

    def __deepcopy__(self, memo: dict) -> "Prim":
        return self


TABLE: dict[str, Prim] = {}
_active = threading.local()


def _lookup(name: str) -> Prim:
    return TABLE[name]


def define(name: str, kind: str, meta: Callable[..., Any], ref: Callable[..., Any], doc: str) -> Prim:
    """Add one row to the table of prims."""
    if name in TABLE:
        raise ValueError(f"prim {name} is defined twice")
    TABLE[name] = Prim(name, kind, meta, ref, doc)
    return TABLE[name]


def prim(kind: str, ref: Callable[..., Any]) -> Callable[[Callable[..., Any]], Prim]:
    """Declare the decorated meta rule, with its name, signature and docstring, as a prim with reference ``ref``."""
    return lambda meta: define(meta.__name__, kind, meta, ref, meta.__doc__ or "")


class Recorder:
    """Builds a graph from calls of prims; simplifies and shares equal calls on the way (value numbering).

    ``origin`` is the meta of the node being rewritten: its user frames go to every node recorded meanwhile.
    Use as a context manager: prims called inside record here, in this thread.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.values: dict[fx.Node, Any] = {}
        self.known: dict[Any, Any] = {}
        self.origin: dict[str, Any] = {}

    def __enter__(self) -> "Recorder":
        self._outer = getattr(_active, "recorder", None)
        _active.recorder = self
        return self

    def __exit__(self, *exc: Any) -> None:
        _active.recorder = self._outer

    def record(self, prim: Prim, args: tuple[Any, ...]) -> Any:
        """One call of ``prim``: a simplification, an equal call already recorded, or a new node."""
        if prim.simplify is not None:
            simpler = prim.simplify(*args)
            if simpler is not None:
                return simpler
        if prim.kind == "random":
            return self.emit(prim, args, {}, prim.meta(*args))
        call = (prim, tuple([_key(a) for a in args]))
        result = self.known.get(call)
        if result is None:
            result = self.known[call] = self.emit(prim, args, {}, prim.meta(*args))
        return result

    def emit(self, target: Any, args: Iterable[Any], kwargs: dict[str, Any], meta: Any) -> Any:
        """A new node; ``meta`` is a TensorMeta, a tuple of them and None (read back by getitem nodes), or anything else (kept)."""
        node = self.graph.create_node(
            "call_function", target, tuple([to_node(a) for a in args]), {k: to_node(v) for k, v in kwargs.items()})
        node.meta.update(self.origin)
        return self.bind(node, meta)

    def bind(self, node: fx.Node, meta: Any) -> Any:
        """Give ``node`` its ``meta["val"]`` and return what rules see of it."""
        node.meta["val"] = meta
        if isinstance(meta, TensorMeta):
            result: Any = Value(meta, node)
        elif isinstance(meta, (tuple, list)):
            result = tuple([None if m is None else self.emit(operator.getitem, (node, i), {}, m) for i, m in enumerate(meta)])
        else:
            result = node
        self.values[node] = result
        return result


def recorder() -> Recorder:
    """The active recorder; rules use it to look at the producer of a value."""
    return _active.recorder


def producer(value: Value, prim: Prim) -> tuple[Any, ...] | None:
    """Arguments of the ``prim`` call that made ``value``, as values again; None when something else made it."""
    node = value.node
    if node.target is not prim:
        return None
    values = _active.recorder.values
    return tuple([values[a] if isinstance(a, fx.Node) else a for a in node.args])


def to_node(arg: Any) -> Any:
    """Values to their nodes, inside lists and tuples too."""
    if isinstance(arg, Value):
        return arg.node
    if isinstance(arg, (tuple, list)):
        return type(arg)([to_node(a) for a in arg])
    return arg


def _key(arg: Any) -> Any:
    """A hashable stand-in for an argument; 1, 1.0 and True, and 0.0 and -0.0, must not be taken for the same."""
    if isinstance(arg, Value):
        return arg.node
    if isinstance(arg, (tuple, list)):
        return tuple([_key(a) for a in arg])
    if isinstance(arg, float):
        return arg.hex()
    return arg.__class__, key(arg)
