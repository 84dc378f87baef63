"""Metadata of whole families of operators in plain Python: pointwise, contractions, reductions, normalisations, pooling.

For these torch's own meta kernels are Python too, slower and behind seconds of imports. Dtypes are not computed but asked for: the
eager kernel runs once on operands of one element (``_probe``). What a rule finds irregular it leaves to the meta kernel, which
raises the right error. Upstream: ``torch._meta_registrations``.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from ..prims.meta import (_elementwise_strides, broadcast_shapes, channels_last_strides, contiguous_strides, is_channels_last, is_dense,
                          reduced_shape, wrap_dim, wrap_dims)
from ..shapes.known import SYMBOLIC, equal_all, positive, same, same_all, settled, symbolic
from .tensor import FakeMode, FakeTensor, common_device

aten = torch.ops.aten
Rule = Callable[[FakeMode, OpOverload, tuple, dict], Any]


class Irregular(Exception):
    """The operands are not what the rule knows; ask the meta kernel."""


def family_of(func: OpOverload) -> Rule | None:
    """The rule for ``func``, if it belongs to a family here."""
    found = _families.get(func)
    if found is None and _is_pointwise(func):
        found = _pointwise_in_place if func._schema.is_mutable else _pointwise
    return found


def family(*overloads: OpOverload) -> Callable[[Rule], Rule]:
    def put(fn: Rule) -> Rule:
        _families.update(dict.fromkeys(overloads, fn))
        return fn
    return put


_families: dict[OpOverload, Rule] = {}


def new(mode: FakeMode, shape: Sequence[int], like: FakeTensor, dtype: torch.dtype | None = None, strides: Sequence[int] | None = None,
         device: torch.device | None = None) -> FakeTensor:
    strides = contiguous_strides(shape) if strides is None else strides
    if symbolic(shape, strides):
        shape, strides = settled(shape), settled(strides)
    elem = torch.empty_strided(shape, strides, dtype=dtype or like.dtype, device="meta")
    return FakeTensor(mode, elem, device or like.fake_device)


# -- dtypes -----------------------------------------------------------------------------------------------------------
def _probe(func: OpOverload, args: tuple, kwargs: dict) -> torch.dtype:
    """The dtype of ``func``'s result: the eager kernel's answer on operands of one element. Raises ``Irregular`` where it refuses."""
    key = (func, *[_look(a) for a in args], *[(k, _look(v)) for k, v in kwargs.items()], torch.get_default_dtype())
    dtype = _dtypes.get(key)
    if dtype is None:
        real_args, real_kwargs = pytree.tree_map_only((torch.Tensor, *SYMBOLIC), _sample, (args, kwargs))
        try:
            dtype = _dtypes[key] = func(*real_args, **real_kwargs).dtype
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            raise Irregular from error
    return dtype


def _look(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim()
    return type(value) if isinstance(value, (bool, int, float, complex)) else PLAIN.get(type(value)) or repr(value)


PLAIN: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""What a symbolic number is when it has a value."""


def _sample(value: Any) -> Any:
    return torch.ones((1,) * value.dim(), dtype=value.dtype) if isinstance(value, torch.Tensor) else PLAIN[type(value)](1)


_dtypes: dict[tuple, torch.dtype] = {}


# -- pointwise --------------------------------------------------------------------------------------------------------
_UNTAGGED = frozenset(getattr(aten, f"{name}_backward").default for name in (
    "hardtanh", "leaky_relu", "elu", "softplus", "hardsigmoid", "hardswish", "mish", "softshrink", "hardshrink")) | {
    aten.masked_fill.Tensor, aten.masked_fill_.Scalar, aten.masked_fill_.Tensor, aten.floor_divide.default}
"""Pointwise operators that torch does not tag so."""
_ROW_MAJOR = frozenset((
    aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.pow.Scalar, aten.mvlgamma.default, aten.mse_loss_backward.default,
    aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default))
"""Pointwise operators that write into a new row-major tensor, however their operands lie."""


def _is_pointwise(func: OpOverload) -> bool:
    """One operand-shaped result, the same each time; ``out=`` variants write elsewhere."""
    tags, schema = func.tags, func._schema
    if (torch.Tag.pointwise not in tags and func not in _UNTAGGED) or torch.Tag.nondeterministic_seeded in tags or torch.Tag.inplace_view in tags or func.is_view:
        return False
    if len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor" or any("Tensor[]" in str(a.type) for a in schema.arguments):
        return False
    return not any(a.is_out or a.name in ("device", "memory_format") for a in schema.arguments)


def _operands(args: tuple, kwargs: dict) -> list[FakeTensor]:
    return [a for a in (*args, *kwargs.values()) if type(a) is FakeTensor]


def _pointwise(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    operands = _operands(args, kwargs)
    if not operands:  # numbers alone, torch.div(n, 2, rounding_mode="trunc"): what eager gives is as well known
        plain = [n.__class__ in (torch.SymInt, torch.SymFloat) and n.node.pytype(n) or n for n in args]
        return mode.constant(func(*plain, **kwargs))
    shapes = [tuple(x.shape) for x in operands]
    shape = _broadcast(shapes)
    dtype = _probe(func, args, kwargs)
    layouts: list[tuple[int, ...]] = []
    for x, own in zip(operands, shapes):
        layout = _spread(own, _as_read(func, x, dtype, operands), shape)
        if not any(same_all(layout, known) for known in layouts):
            layouts.append(layout)
    device = operands[0].fake_device if len(operands) == 1 else common_device(func, {i: x for i, x in enumerate(operands)})
    return new(mode, shape, operands[0], dtype, None if func in _ROW_MAJOR else _elementwise_strides(shape, tuple(layouts)), device)


def _as_read(func: OpOverload, x: FakeTensor, result: torch.dtype, operands: list[FakeTensor]) -> tuple[int, ...]:
    """Strides of ``x`` where the kernel reads it: on a CPU operands of another dtype than the common one are converted first, which
    makes them dense (and so an expanded operand has a say in the result's layout)."""
    if len(operands) == 1 or x.fake_device.type != "cpu" or (func is aten.where.self and x is operands[0]):
        return x.stride()
    common = result if result is not torch.bool else functools.reduce(torch.promote_types, [o.dtype for o in operands])
    return x.stride() if x.dtype is common else dense_strides(x)


@family(aten.threshold_backward.default, aten.leaky_relu_backward.default)
def _gated_gradient(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """Pointwise, but what the forward saw comes first where the order in memory is chosen."""
    return _pointwise(mode, func, (args[1], args[0], *args[2:]), kwargs)


def _pointwise_in_place(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    operands = _operands(args, kwargs)
    target = args[0]
    if not equal_all(_broadcast([tuple(x.shape) for x in operands]), target.shape):
        raise Irregular
    common_device(func, {i: x for i, x in enumerate(operands)})
    _probe(func, args, kwargs)
    return target


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*shapes)
    except ValueError as error:
        raise Irregular from error


def _spread(own: tuple[int, ...], strides: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an operand seen in the broadcast ``shape``."""
    if same_all(own, shape):
        return tuple(strides)
    missing = len(shape) - len(own)
    return (0,) * missing + tuple([0 if same(n, 1) and not same(wide, 1) else s for n, s, wide in zip(own, strides, shape[missing:])])


# -- results that look like an operand --------------------------------------------------------------------------------
def _like(position: int = 0, keep: bool = True) -> Rule:
    """The result has the shape of the operand at ``position``; ``keep``: its layout too, where that is dense."""
    def rule(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
        x = args[position]
        return new(mode, x.shape, x, _probe(func, args, kwargs), dense_strides(x) if keep else None)
    return rule


def dense_strides(x: FakeTensor) -> tuple[int, ...]:
    shape, strides = tuple(x.shape), tuple(x.stride())
    return strides if is_dense(shape, strides) else _elementwise_strides(shape, (strides,))


_families.update({func: _like(keep=False) for func in (
    aten._softmax.default, aten._log_softmax.default, aten.cumsum.default, aten.cumprod.default, aten._softmax_backward_data.default,
    aten._log_softmax_backward_data.default, aten.tril.default, aten.triu.default)})
_families[aten.flip.default] = _like()


@family(aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default, aten.bernoulli_.float, aten.normal_.default, aten.uniform_.default)
def _filled(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return args[0]


@family(aten.native_dropout.default)
def _dropout(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, _, train = args
    if not x.dtype.is_floating_point:
        raise Irregular
    strides = dense_strides(x)
    return new(mode, x.shape, x, None, strides), new(mode, x.shape, x, torch.bool, strides if train is not False else None)


# -- contractions -----------------------------------------------------------------------------------------------------
def _same_dtype(*xs: FakeTensor) -> None:
    if any(x.dtype != xs[0].dtype for x in xs[1:]):
        raise Irregular


@family(aten.mm.default, aten.bmm.default)
def _mm(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    a, b = args
    ndim = 2 if func is aten.mm.default else 3
    _same_dtype(a, b)
    if a.dim() != ndim or b.dim() != ndim or not equal_all(a.shape[:-2] + a.shape[-1:], b.shape[:-1]):
        raise Irregular
    return new(mode, (*a.shape[:-1], b.shape[-1]), a)


@family(aten.addmm.default, aten.baddbmm.default)
def _addmm(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    bias, a, b = args[:3]
    out = _mm(mode, aten.mm.default if func is aten.addmm.default else aten.bmm.default, (a, b), {})
    _same_dtype(bias, a)
    if not equal_all(_broadcast([tuple(bias.shape), tuple(out.shape)]), out.shape):
        raise Irregular
    return out


@family(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_attention(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    query, key, value = args[:3]
    _same_dtype(query, key, value)
    batch, heads, length, _ = query.shape
    stats = torch.float if query.dtype in (torch.bfloat16, torch.float16) else query.dtype
    if query.shape[3] != value.shape[3]:
        raise Irregular
    return new(mode, query.shape, query, None, dense_strides(query)), new(mode, (batch, heads, length), query, stats, _transposed((batch, length, heads)))


@family(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def _flash_attention_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    return tuple(new(mode, x.shape, x, None, _transposed((x.shape[0], x.shape[2], x.shape[1], x.shape[3]))) for x in args[1:4])


def _transposed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor of ``shape`` with dimensions 1 and 2 exchanged."""
    strides = list(contiguous_strides(shape))
    strides[1], strides[2] = strides[2], strides[1]
    return tuple(strides)


# -- reductions -------------------------------------------------------------------------------------------------------
@family(aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.sum.default, aten.mean.default, aten.any.default,
        aten.all.default, aten.any.dim, aten.all.dim, aten.argmax.default, aten.argmin.default,
        aten.prod.default, aten.prod.dim_int, aten.linalg_vector_norm.default, aten.norm.ScalarOpt_dim, aten.max.default, aten.min.default, aten.any.dims, aten.all.dims)
def _reduction(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x = args[0]
    dtype = _probe(func, args, kwargs)
    shape = _reduced(func, x, args, kwargs)
    return new(mode, shape, x, dtype)


@family(aten.var.correction, aten.std.correction)
def _deviation(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """Not probed: of one element the kernel would warn that there are no degrees of freedom."""
    x = args[0]
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise Irregular
    return new(mode, _reduced(func, x, args, kwargs), x, x.dtype.to_real())


@family(aten.var_mean.correction, aten.max.dim, aten.min.dim)
def _two_reductions(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x = args[0]
    shape = _reduced(func, x, args, kwargs)
    if func is aten.var_mean.correction and not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise Irregular
    second = x.dtype if func is aten.var_mean.correction else torch.int64
    first = x.dtype.to_real() if second is x.dtype else x.dtype
    return new(mode, shape, x, first), new(mode, shape, x, second)


def _reduced(func: OpOverload, x: FakeTensor, args: tuple, kwargs: dict) -> tuple[int, ...]:
    named = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
    by_name = any(a.name == "dim" for a in func._schema.arguments)
    dims, keepdim = named.get("dim"), named.get("keepdim", False)
    shape = tuple(x.shape)
    try:
        wrapped = wrap_dims(dims if by_name else None, len(shape), empty_means_all=func not in (aten.any.dims, aten.all.dims))
    except IndexError as error:
        raise Irregular from error
    if len(set(wrapped)) != len(wrapped):
        raise Irregular
    without_identity = func._schema.name.rpartition("::")[2] in ("max", "min", "amax", "amin", "argmax", "argmin")
    if without_identity and any(shape[d] == 0 for d in wrapped if d < len(shape)):
        raise Irregular
    return reduced_shape(shape, wrapped, keepdim)


# -- indexing and joining ---------------------------------------------------------------------------------------------
@family(aten.embedding.default)
def _embedding(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    weight, indices = args[:2]
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        raise Irregular
    return new(mode, (*indices.shape, weight.shape[1]), weight)


@family(aten.embedding_dense_backward.default)
def _embedding_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return new(mode, (args[2], args[0].shape[-1]), args[0])


@family(aten.cat.default)
def _cat(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    tensors, dim = args[0], args[1] if len(args) > 1 else 0
    first = tensors[0]
    shape = list(first.shape)
    if not 0 < first.dim() or not -first.dim() <= dim < first.dim() or any(t.dim() != first.dim() or t.dtype != first.dtype for t in tensors):
        raise Irregular
    dim = wrap_dim(dim, first.dim())
    for other in tensors[1:]:
        if not equal_all([n for i, n in enumerate(shape) if i != dim], [n for i, n in enumerate(other.shape) if i != dim]):
            raise Irregular
    shape[dim] = sum(t.shape[dim] for t in tensors)
    dtype = functools.reduce(torch.promote_types, [t.dtype for t in tensors])
    last = all(is_channels_last(tuple(t.shape), tuple(t.stride())) for t in tensors)
    device = common_device(func, {i: t for i, t in enumerate(tensors)})
    return new(mode, shape, first, dtype, channels_last_strides(shape) if last else None, device)


@family(aten.stack.default)
def _stack(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    tensors, dim = args[0], args[1] if len(args) > 1 else 0
    first = tensors[0]
    if not -first.dim() - 1 <= dim <= first.dim() or any(not equal_all(t.shape, first.shape) or t.dtype != first.dtype for t in tensors):
        raise Irregular
    shape = list(first.shape)
    dim = wrap_dim(dim, first.dim() + 1)
    if dim == first.dim():
        return new(mode, (*shape, len(tensors)), first, None, None, common_device(func, {i: t for i, t in enumerate(tensors)}))
    joined = _cat(mode, aten.cat.default, (tensors, dim), {})  # eager joins them along the dimension, then splits it
    strides = list(joined.stride())
    strides.insert(dim, strides[dim] * positive(shape[dim]))
    return new(mode, (*shape[:dim], len(tensors), *shape[dim:]), first, None, strides, joined.fake_device)


@family(aten.roll.default)
def _roll(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """On a CPU two pieces are joined for each dimension; channels-last pieces keep their format unless one is empty."""
    x, shifts, dims = (*args, ())[:3]
    if x.numel() == 0 or (dims and len(shifts) != len(dims)) or any(not -x.dim() <= d < x.dim() for d in dims):
        raise Irregular
    last = x.fake_device.type == "cpu" and dims and all(s % x.shape[d] for s, d in zip(shifts, dims)) \
        and is_channels_last(tuple(x.shape), tuple(x.stride()))
    return new(mode, x.shape, x, None, channels_last_strides(x.shape) if last else None)


def adjacent_index(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """Neighbouring dimensions of a contiguous tensor, which is what most indexing is."""
    x, indices = args
    first = next((k for k, i in enumerate(indices) if i is not None), len(indices))
    inner = [i for i in indices if i is not None]
    if not inner or not x.is_contiguous() or len(indices) > x.dim() or any(type(i) is not FakeTensor for i in indices[first : first + len(inner)]):
        raise Irregular
    if any(i.dtype not in (torch.int64, torch.int32) or not i.is_contiguous() for i in inner):
        raise Irregular
    lead = _broadcast([tuple(i.shape) for i in inner])
    return new(mode, (*x.shape[:first], *lead, *x.shape[first + len(inner):]), x)


@family(aten.topk.default)
def _topk(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, k, dim = (*args[:3], *(-1,)[max(len(args) - 2, 0):])
    if not x.dim() or not -x.dim() <= dim < x.dim() or not 0 <= k <= x.shape[dim]:
        raise Irregular
    shape = list(x.shape)
    shape[dim] = k
    return new(mode, shape, x), new(mode, shape, x, torch.int64)


@family(aten.gather.default)
def _gather(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, dim, index = args[:3]
    if index.dtype is not torch.int64 or index.dim() != x.dim() or not -x.dim() <= dim < x.dim() \
            or any(i != dim % x.dim() and n > m for i, (n, m) in enumerate(zip(index.shape, x.shape))):
        raise Irregular
    return new(mode, index.shape, x)


@family(aten.select_backward.default, aten.slice_backward.default)
def _scatter_into_zeros(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return new(mode, args[1], args[0])
