"""What the dispatcher's schemas say about an ATen overload: what it writes, what it returns a view of, its functional twin.

Everything is computed from the schema once per overload and cached. Upstream: ``torch._functorch._aot_autograd.functional_utils`` and ``torchgen``'s
``FunctionalVariant`` grouping.
"""
from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any, Sequence

import torch
from torch import fx
from torch._ops import OpOverload

aten = torch.ops.aten

# No alias annotation in the schema, yet the running statistics are written when ``training`` is true.
_HIDDEN_WRITES = {"aten::native_batch_norm": (3, 4), "aten::cudnn_batch_norm": (3, 4)}
# The annotation says "view", the result is one, but nobody can tell from values: dropped after functionalisation.
ALIAS_ONLY = frozenset({aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.lift.default})
# Metadata of the tensor object itself changes; recorded as the functional view, which the object then names.
METADATA_OPS = {
    aten.t_.default: aten.t.default, aten.transpose_.default: aten.transpose.int,
    aten.squeeze_.default: aten.squeeze.default, aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims, aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.as_strided_.default: aten.as_strided.default,
}
# Storage itself is exchanged or resized: not expressible in a functional graph.
STORAGE_OPS = frozenset({"aten::set_", "aten::resize_", "aten::resize_as_", "aten::set_data", "inductor::resize_storage_bytes_"})

@dataclass(frozen=True)
class OpInfo:
    """Schema facts: positions count all arguments, positional first, in schema order."""

    writes: tuple[int, ...]
    """Arguments that are written in place (``out=`` ones too)."""
    view_of: int | None
    """The argument that the result aliases without writing, if any."""
    is_out: bool
    fresh_returns: tuple[int, ...]
    """Indices of returns that do not alias a written argument."""
    composite: bool
    random: bool
    arg_names: tuple[str, ...]


@functools.lru_cache(maxsize=None)
def info(op: OpOverload) -> OpInfo:
    schema = op._schema
    arguments = schema.arguments
    writes = tuple(i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write)
    writes += _HIDDEN_WRITES.get(schema.name, ()) if not writes else ()
    aliased = [r.alias_info for r in schema.returns]
    view_of = None
    if any(a is not None and not a.is_write for a in aliased):
        view_of = next(i for i, a in enumerate(arguments) if a.alias_info is not None)
    if schema.name == "aten::_unsafe_view":
        view_of = None
    fresh = tuple(i for i, a in enumerate(aliased) if a is None or not a.is_write)
    name = op.name()
    return OpInfo(
        writes=writes,
        view_of=view_of,
        is_out=any(a.is_out for a in arguments),
        fresh_returns=fresh,
        composite=torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"),
        random=torch.Tag.nondeterministic_seeded in op.tags,
        arg_names=tuple(a.name for a in arguments),
    )


def origin_of(meta: dict) -> dict:
    """The part of a node's ``meta`` that all which is made from it inherits: the user's lines, the checkpoint they are in, the captured node's name."""
    return {"stack": meta.get("stack", ()), **{key: meta[key] for key in ("checkpoint", "captured") if key in meta}}


def argument(node_args: tuple, node_kwargs: dict, op: OpOverload, index: int):
    """The value given for schema argument ``index``, or its default."""
    if index < len(node_args):
        return node_args[index]
    schema_arg = op._schema.arguments[index]
    return node_kwargs.get(schema_arg.name, schema_arg.default_value)


def tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among ``values``, lists within them included."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(tensors_in(value))
    return found


def count_writes(op: OpOverload, args: tuple, kwargs: dict) -> None:
    """Move the version counters of the lists of tensors that ``op`` writes: eager does so in the kernels for each, which fakes never reach."""
    given = [argument(args, kwargs, op, i) for i in info(op).writes]
    written = tensors_in([a for a in given if isinstance(a, (list, tuple))])
    torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])


def writes_now(op: OpOverload, args: tuple, kwargs: dict) -> tuple[int, ...]:
    """Positions of the arguments that this very call writes (batch norm writes statistics only when training)."""
    facts = info(op)
    if op._schema.name in _HIDDEN_WRITES:
        training = argument(args, kwargs, op, 5)
        return tuple(i for i in facts.writes if training and argument(args, kwargs, op, i) is not None)
    return facts.writes


def _types(op: OpOverload, keep_out: bool) -> list[str]:
    return [str(a.type) for a in op._schema.arguments if keep_out or not a.is_out]


@functools.lru_cache(maxsize=None)
def functional_variant(op: OpOverload) -> OpOverload | None:
    """The overload that returns what ``op`` would have written; ``None`` when ATen has none.

    ``add_.Tensor`` -> ``add.Tensor``, ``add.out`` -> ``add.Tensor``, ``_foreach_add_.List`` -> ``_foreach_add.List``.
    """
    namespace, base = op._schema.name.split("::")
    packets = getattr(torch.ops, namespace)
    wanted = _types(op, keep_out=False)
    names = [base] if info(op).is_out else [base.rstrip("_") if base.endswith("_") else f"{base}_functional"]
    if base.endswith("_") and not info(op).is_out:
        names.append(f"{names[0]}_functional")
    for name in names:
        packet = getattr(packets, name, None)
        if packet is None:
            continue
        overloads = [getattr(packet, o) for o in packet.overloads()]
        overloads.sort(key=lambda o: o._overloadname != op._overloadname)  # the one of the same name first
        for candidate in overloads:
            facts = info(candidate)
            if not facts.writes and facts.view_of is None and _types(candidate, True) == wanted:
                return candidate
    return None


def is_view(node: fx.Node) -> bool:
    """Whether ``node`` is an ATen view (or reads an element of a multi-output view)."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return is_view(node.args[0])
    return isinstance(node.target, OpOverload) and info(node.target).view_of is not None


def view_parent(node: fx.Node) -> fx.Node:
    """The node that a view node looks into."""
    if node.target is operator.getitem:
        return node.args[0]
    return argument(node.args, node.kwargs, node.target, info(node.target).view_of)


def storage_root(node: fx.Node) -> fx.Node:
    """The node whose storage ``node`` looks into: itself when it is no view."""
    while is_view(node):
        node = view_parent(node)
    return node
