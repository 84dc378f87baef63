"""A captured graph as text that two processes agree on: everything about it that decides what the compiler makes of it.

Stricter than ``inductor.fingerprint``, which sees functional graphs of known operators: what is captured may hold anything, and what
has no meaning outside this process raises ``prims.portable.NotPortable``.
Upstream: ``torch._functorch._aot_autograd.autograd_cache`` (``AOTAutogradCachePickler``, ``check_cacheable``).
"""
from __future__ import annotations

import operator
from typing import Any, Sequence

import torch
from torch import fx

from ..config import config
from ..fake import FakeTensor
from ..inductor.precision import precisions
from ..shapes.known import SYMBOLIC, symbolic
from ..prims.portable import LARGEST_CONSTANT, NotPortable, named

_LITERALS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format)
_DEVICES = ("cpu", "cuda")


def graph_key(gm: fx.GraphModule, examples: Sequence[Any]) -> list[str]:
    """Parts of a cache key: the graph, its inputs, torch's modes and every setting. Raises NotPortable.

    Symbols go by name, whatever they are worth now, with all that is known of them.
    """
    return [*map(_node(gm), gm.graph.nodes), *_inputs(examples), *_known(examples), repr(state()), config.identity()]


def state() -> list[Any]:
    """Torch's switches that tracing, the choice of kernels or results depend on. Raises NotPortable under somebody's modes."""
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        raise NotPortable("a mode that may change what any operator means")
    flags = [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), torch.is_autocast_cache_enabled(),
             torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
             torch.utils.deterministic.fill_uninitialized_memory, precisions(),
             torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark,
             torch.backends.cudnn.deterministic, torch.backends.mkldnn.deterministic, torch.backends.mha.get_fastpath_enabled(),
             str(torch.get_default_device())]
    flags += [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES]
    flags += [getattr(torch.backends.cuda, f"{n}_sdp_enabled")() for n in ("flash", "mem_efficient", "math", "cudnn")]
    return flags


# ------------------------------------------------------------------ nodes
def _node(gm: fx.GraphModule) -> Any:
    def text(node: fx.Node) -> str:
        if node.op == "call_module":
            raise NotPortable("a call of a module")
        target = named(node.target) if node.op == "call_function" else node.target
        meta = f"{node.meta.get('static')} {node.meta.get('source')} {node.meta.get('impure')} {node.meta.get('checkpoint')}"
        content = _content(operator.attrgetter(node.target)(gm)) if node.op == "get_attr" else ""
        return f"{node.name} = {node.op} {target} {_text(node.args)} {_text(node.kwargs)} {meta} {node.meta.get('stack')} {content}"
    return text


def _text(arg: Any) -> str:
    kind = type(arg)
    if kind in _LITERALS:
        return repr(arg)
    if kind in SYMBOLIC:
        return f"symbolic {arg}"
    if isinstance(arg, fx.Node):
        return f"%{arg.name}"
    if isinstance(arg, (list, tuple)) and (kind in (list, tuple, torch.Size) or kind.__module__.startswith("torch.fx")):
        return f"{kind.__name__}({', '.join(map(_text, arg))})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{_text(k)}: {_text(v)}" for k, v in arg.items()) + "}"
    if isinstance(arg, slice):
        return f"slice({_text(arg.start)}, {_text(arg.stop)}, {_text(arg.step)})"
    return named(arg)


def _content(value: Any) -> str:
    if type(value) is not torch.Tensor or value.requires_grad or value.layout is not torch.strided or value.device.type != "cpu":
        raise NotPortable("a constant that is no plain tensor")
    if value.numel() * value.element_size() > LARGEST_CONSTANT:
        raise NotPortable("a large constant")
    flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy().tobytes().hex() if flat.numel() else ""
    return f"{_tensor(value)} {content}"


# ------------------------------------------------------------------ inputs
def _known(examples: Sequence[Any]) -> list[str]:
    """What has been decided about symbols so far: rules may rely on it."""
    env = environment(examples)
    return [] if env is None else [*map(str, env.guards()), *[str(r.fact) for r in env.asserted]]


def environment(examples: Sequence[Any]) -> Any:
    """The ``ShapeEnv`` of the symbols among a graph's inputs; None if there are none."""
    return next((e.node.env for e in examples if isinstance(e, SYMBOLIC)), None)


def _inputs(examples: Sequence[Any]) -> list[str]:
    """Each input, and which of them share a storage or are views of one another's base."""
    places: dict[int, int] = {}
    bases: dict[int, int] = {}
    texts = []
    for example in examples:
        if not isinstance(example, torch.Tensor):
            texts.append(_text(example))
            continue
        storage = places.setdefault(example.untyped_storage()._cdata, len(places))
        base = bases.setdefault(id(example._base), len(bases)) if example._is_view() else None
        texts.append(f"{_tensor(example)} in {storage} base {base} leaf {example.is_leaf} same {bases.setdefault(id(example), len(bases))}")
    return texts


def _tensor(value: torch.Tensor) -> str:
    if type(value) not in (torch.Tensor, torch.nn.Parameter, FakeTensor) or value.layout is not torch.strided:
        raise NotPortable(f"a {type(value).__name__} of layout {value.layout}")
    sizes = (*value.shape, *value.stride(), value.storage_offset())
    nbytes = None if symbolic(sizes) else value.untyped_storage().nbytes()
    parts = (value.dtype, value.dim(), *sizes, nbytes, value.device, value.requires_grad,
             value.is_conj(), value.is_neg(), value.is_inference(), isinstance(value, torch.nn.Parameter))
    return repr(parts)
