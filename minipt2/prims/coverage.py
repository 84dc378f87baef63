"""``coverage()``: what becomes of each ATen overload, by torch's own dispatcher; ``core_aten()``: the overloads a graph can hold.

Two sets, as in PrimTorch. **Core ATen** is for backends that have a kernel for each operator: dense, functional, not broken up by
autograd, with a kernel on the CPU. **Prims** is what the rules in ``complete`` reduce it to. Never called to compile anything.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from .decompositions import complete, decompositions

FORWARD_MODE = "forward-mode differentiation and autograd's own bookkeeping"
OTHERS: tuple[tuple[str, str], ...] = (
    (r"sparse|coo|csr|csc|bsr|bsc|coalesce|^_?values|^_?indices|^(c?col|c?row|crow)_indices|spdiags|hspmm|_cslt|_nnz|_dim[IV]", "for sparse tensors"),
    (r"nested|jagged|to_padded_tensor", "for nested tensors"),
    (r"quantiz|qparams|^q_|qscheme|int4|int8|dyn_quant|int_repr|_scaled_mm|_scaled_grouped|moving_avg_obs", "for quantised tensors"),
    (r"mkldnn|cudnn|miopen|mps|nnpack|_grouped_mm|overrideable", "a vendor's library by name: passes call it, programs do not"),
    (r"^_test_|_foobar", "for PyTorch's own tests"),
    (r"_make_dual|_fw_primal|_unpack_dual|_has_same_storage|slice_inverse|_make_dep_token|_jvp$|_lazy_clone", FORWARD_MODE),
    (r"_pack_padded_sequence", "the size of its result depends on the data: a graph ends there"),
    (r"_functional_assert|_functional_sym|_assert|_print|_pin_memory|from_file|hash_tensor|_philox", "of the run time, not of a computation"),
)
"""What a name says of an overload that the dispatcher does not: pattern, reason."""
WITHOUT_RULE: tuple[tuple[str, str], ...] = (
    (r"^_fft_|^complex$|^polar$|^view_as_(complex|real)$|linalg_eig", "complex numbers, which prims leave to PyTorch's kernels"),
    (r"linalg_ldl|^cholesky$", "a factorisation that LAPACK checks while it runs: `linalg_cholesky_ex` and `linalg_lu_factor_ex` have rules"),
    (r"_ctc_loss_backward", "it walks alignments whose number depends on the data, as its forward does"),
    (r"segment_reduce", "segments are where data say"),
    (r"^_embedding_bag", "what it returns besides the bags depends on which of its paths runs; its gradients have rules"),
    (r"_dirichlet_grad|_standard_gamma_grad", "a series chosen element by element, tuned together with the sampler"),
    (r"histogram", "its bins are chosen by the data; with bins given there is a rule"),
    (r"_native_multi_head|_transformer_encoder|_transform_bias", "a fused path of `nn.Transformer` for inference, made of operators that have rules"),
    (r"^randint_like$", "its bound is a number in a tensor"),
)
"""Why an overload in scope has no rule: pattern of its name, reason."""
_OBJECTS = re.compile(r"Generator|Storage|Stream")


@lru_cache(None)
def out_of_scope(op: Any) -> str:
    """Why a functional graph of dense tensors never holds ``op``, or "" when it may. ``op`` is an ATen overload."""
    schema, name = op._schema, op.name()
    has = lambda key: torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    if schema.is_mutable:
        return "writes an argument: made functional before"
    if has("CompositeImplicitAutograd"):
        return "composite: autograd breaks it up before"
    if not any("Tensor" in str(r.type) for r in schema.returns):
        return "gives no tensor"
    for pattern, reason in OTHERS:
        if re.search(pattern, op._overloadpacket.__name__):
            return reason
    if _is_copy_of_view(op._overloadpacket.__name__):
        return "the copying twin of a view: graphs hold the view"
    if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(op.tags) and op not in complete:
        return "the size of its result depends on the data: a graph ends there"
    if not any(map(has, ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"))):
        return "has no kernel on the CPU"
    if any(_OBJECTS.search(str(a.type)) and "?" not in str(a.type) for a in schema.arguments) or "generator" in op._overloadname:
        return "takes an object of the process, not a value"
    if torch.Tag.generated in op.tags and op not in complete:
        return "a twin that torch generates for an operator of in-place meaning"
    return ""


def _is_copy_of_view(packet: str) -> bool:
    view = getattr(torch.ops.aten, packet.removesuffix("_copy"), None) if packet.endswith("_copy") else None
    returns = [r for o in (view.overloads() if view is not None else ()) for r in getattr(view, o)._schema.returns]
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def why_without_rule(op: Any) -> str:
    """Why ``op``, an overload in scope, has no rule; "" where nobody has said."""
    return next((reason for pattern, reason in WITHOUT_RULE if re.search(pattern, op._overloadpacket.__name__)), "")


def overloads() -> list[tuple[str, Any]]:
    """(name, overload) of all of ``torch.ops.aten``, sorted by name."""
    found = []
    for full_name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = full_name.partition("::")
        packet, _, overload_name = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload_name or "default", None) if namespace == "aten" else None
        if isinstance(op, torch._ops.OpOverload):
            found.append((name, op))
    return found


def core_aten() -> dict[str, Any]:
    """The canonical overloads by name: every one that may stand in a graph which ``aot_autograd`` hands to a compiler."""
    return {name: op for name, op in overloads() if not out_of_scope(op)}


@dataclass
class Coverage:
    """ATen overloads by what becomes of them."""

    decomposed: list[str] = field(default_factory=list)
    """Reduced to prims whatever the backend."""
    library: list[str] = field(default_factory=list)
    """Reduced to prims for a backend that has nothing else (``expand(gm, complete)``); PyTorch's kernel where there is a compiler."""
    fallback: dict[str, str] = field(default_factory=dict)
    """No rule: PyTorch's own kernel, counted. Overload -> why."""
    out_of_scope: dict[str, str] = field(default_factory=dict)
    """Overload -> why a functional graph never holds it."""
    backward: dict[str, bool] = field(default_factory=dict)
    """Overload -> whether it belongs to a backward pass (by its name)."""

    @property
    def core(self) -> int:
        """How many overloads are in scope."""
        return len(self.decomposed) + len(self.library) + len(self.fallback)

    @property
    def rate(self) -> float:
        """The share of the overloads in scope that reduce to prims."""
        return (len(self.decomposed) + len(self.library)) / self.core

    def __str__(self) -> str:
        backward = [name for name, is_backward in self.backward.items() if is_backward]
        missing = set(self.fallback) & set(backward)
        return (f"{self.core} overloads of core ATen: {len(self.decomposed)} reduce to prims, {len(self.library)} more where a backend has "
                f"nothing else, {len(self.fallback)} fall back ({self.rate:.1%} reduce; of the {len(backward)} backward ones "
                f"{len(backward) - len(missing)}); {len(self.out_of_scope)} out of scope")


def coverage(core_only: bool = False) -> Coverage:
    """Sort every overload of ``torch.ops.aten`` (``core_only``: those that torch itself tags core) by what becomes of it."""
    result = Coverage()
    for name, op in overloads():
        if core_only and torch.Tag.core not in op.tags:
            continue
        reason = out_of_scope(op)
        if reason:
            result.out_of_scope[name] = reason
            continue
        if op in complete:
            (result.decomposed if op in decompositions else result.library).append(name)
        else:
            result.fallback[name] = why_without_rule(op)
        result.backward[name] = "backward" in name
    return result


