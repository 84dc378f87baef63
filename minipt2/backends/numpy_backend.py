"""``backend="numpy"``: any captured model on NumPy, inference and training, as the proof that the prims are enough to build on.

``lower(gm, xs)`` turns a graph of prims into a list of steps, each one NumPy function of ``numpy_rules``; calling the result runs them.
PyTorch appears at the boundary only, and where random numbers are drawn (so that they are eager's; counted as ``numpy_random``).
Upstream has no counterpart; a backend outside this package looks the same: see ``site/guides/backend.md``.
"""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import numpy as np
import torch
from torch import fx

from .. import trace
from ..errors import Unsupported
from ..aot_autograd.sizes import layouts
from ..exercise import exercise
from ..prims import Prim, copy_strided
from ..prims.kinds import pure
from ..shapes.known import symbolic
from .numpy_rules import rules

Array = np.ndarray
Run = Callable[[list], list]
DTYPES = {getattr(torch, name): np.dtype(name) for name in
          "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64".split()}
DTYPES[torch.bfloat16] = np.dtype("float32")  # NumPy has none: kept in float32, every result rounded


@exercise("9.5")
def lower(gm: fx.GraphModule, xs: Sequence[Any]) -> Run:
    """A function ``run(args: list[Tensor]) -> list[Tensor]`` that computes ``gm``, a graph of prims, with NumPy.

    Results have the strides that the graph records and share no memory with the inputs. ``xs`` (the example inputs) are not read: every
    node says its shape and dtype. Raises Unsupported with the list of everything in ``gm`` that there is no rule for.
    """
    # >>> 9.5
    _check(gm)
    look = layouts(gm)
    nodes = list(gm.graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    steps = [(i, _step(gm, node)) for i, node in enumerate(nodes) if node.op in ("call_function", "get_attr")]
    inputs = [i for i, node in enumerate(nodes) if node.op == "placeholder"]
    dying = _last_uses(nodes, place)
    results = nodes[-1].args[0]

    def run(args: list) -> list:
        env: list[Any] = [None] * len(nodes)
        for i, x in zip(inputs, args, strict=True):
            env[i] = _to_array(x)
        meta, given = look(args), dict(zip(inputs, args))
        with np.errstate(all="ignore"):
            for i, step in steps:
                env[i] = step(lambda n: env[place[n]], meta)
                for dead in dying.get(i, ()):
                    env[dead] = None
        returned = [_result(meta(r), env[place[r]], given.get(place[r])) if isinstance(r, fx.Node) else r for r in results]
        args.clear()
        return returned

    return run
    # <<< 9.5


def _check(gm: fx.GraphModule) -> None:
    """One error that names all that is missing, with the user's line of the first."""
    missing = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output", "get_attr") and not _known(n)]
    if missing:
        names = sorted({f"{n.target} ({n.meta.get('fallback', 'no rule')})" for n in missing})
        raise Unsupported("MP501", f"the numpy backend has no rule for {', '.join(names)}",
                          'compile with backend="inductor", which leaves to eager what it does not know', missing[0].meta.get("stack", ()))


def _known(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    dtypes = [v.dtype for v in _values(node) if v is not None]
    if node.op != "call_function" or not all(d in DTYPES for d in dtypes):
        return False
    return not pure(node) or (isinstance(node.target, Prim) and node.target.name in rules)


def _values(node: fx.Node) -> Sequence[Any]:
    """What ``node`` gives: tensors' metadata, one or several."""
    val = node.meta["val"]
    return val if isinstance(val, (tuple, list)) else (val,)


def _last_uses(nodes: list[fx.Node], place: dict[fx.Node, int]) -> dict[int, list[int]]:
    """Place of a node -> places of the values that nobody reads after it."""
    dying: dict[int, list[int]] = {}
    for node in nodes[:-1]:
        last = max(map(place.__getitem__, node.users), default=place[node])
        dying.setdefault(last, []).append(place[node])
    return dying


def _step(gm: fx.GraphModule, node: fx.Node) -> Callable[[Callable[[fx.Node], Any], Callable[[fx.Node], Any]], Any]:
    """The computation of one node, given functions from nodes to their values and to the metadata of these."""
    if node.op == "get_attr":
        constant = _to_array(getattr(gm, node.target))
        return lambda value, meta: constant
    if not isinstance(node.target, (Prim, torch._ops.OpOverload)):  # getitem, or arithmetic on sizes
        return lambda value, meta: node.target(*fx.map_arg(node.args, value))
    if not pure(node):
        return lambda value, meta: _as_eager(node, value, meta)
    fn, args = rules[node.target.name], tuple([_argument(a) for a in node.args])
    return lambda value, meta: _settle(node, fn(*fx.map_arg(args, value)))


def _argument(arg: Any) -> Any:
    """dtypes as NumPy knows them; everything else as it is."""
    return DTYPES[arg] if isinstance(arg, torch.dtype) else arg


def _settle(node: fx.Node, result: Any) -> Any:
    """Results as arrays of exactly the recorded shape and dtype: NumPy makes scalars of 0-d arrays, and wider types of mixed ones."""
    if isinstance(result, tuple):
        return tuple([r if meta is None else _exactly(node, r, meta) for r, meta in zip(result, node.meta["val"], strict=True)])
    return _exactly(node, result, node.meta["val"])


def _exactly(node: fx.Node, result: Any, meta: Any) -> Array:
    array = np.asarray(result, DTYPES[meta.dtype])
    if not symbolic(meta.shape) and array.shape != tuple(meta.shape):
        raise AssertionError(f"{node.format_node()}: NumPy gave shape {array.shape}, recorded {tuple(meta.shape)}")
    return _rounded(array) if meta.dtype is torch.bfloat16 else array


def _rounded(x: Array) -> Array:
    """float32 rounded to what bfloat16 can hold: to nearest, ties to even; NaN stays."""
    bits = np.array(x, order="C").view(np.uint32)
    up = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.where(np.isnan(x), x, (up & np.uint32(0xFFFF0000)).view(np.float32))


def _as_eager(node: fx.Node, value: Callable[[fx.Node], Any], meta: Callable[[fx.Node], Any]) -> Any:
    """Random numbers from PyTorch's own generator, and its assertions, in program order: the only kernels of PyTorch's that run here."""
    trace.count("numpy_random", node.meta["val"] is not None)
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda n: _to_tensor(value(n), meta(n)))
    drawn = node.target(*args, **kwargs)
    return tuple(map(_to_array, drawn)) if isinstance(drawn, (tuple, list)) else _to_array(drawn)


def _to_array(x: Any) -> Any:
    """A tensor as an array that may share its memory (no rule writes into its operands); numbers as they are."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x.detach().cpu().resolve_conj().resolve_neg()
    return (x.float() if x.dtype is torch.bfloat16 else x).numpy()


def _to_tensor(x: Any, meta: Any) -> Any:
    """A tensor of its own with the recorded dtype, device and strides; numbers as they are."""
    if not isinstance(x, np.ndarray):
        return x
    tensor = torch.from_numpy(np.require(x, requirements=("C", "W"))).reshape(tuple(meta.shape))
    return copy_strided.ref(tensor.to(meta.device, meta.dtype), tuple(meta.stride()))


def _result(meta: Any, value: Any, given: torch.Tensor | None) -> Any:
    """An input that is returned stays that very tensor."""
    return given if given is not None else _to_tensor(value, meta)
