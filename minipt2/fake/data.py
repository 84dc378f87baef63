"""Operators whose result, or its size, depends on data: a symbol for it where the mode has an environment to make one, else an error.

``FakeMode.environment`` is set by ``dynamo``. A size is at least zero and at most what its operands allow; a number is any number.
Upstream: ``torch._subclasses.fake_impls``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch
from torch._ops import OpOverload

from ..prims.meta import broadcast_shapes, contiguous_strides
from ..shapes.known import equal_all, positive
from .families import new
from .tensor import DataDependent, DynamicShape, FakeMode, FakeTensor

if TYPE_CHECKING:
    from ..shapes import ShapeEnv

aten = torch.ops.aten


def number(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """``item()``: an int, float or bool that nothing is known of. Raises ``DataDependent`` for other kinds, or without an environment."""
    dtype = args[0].dtype
    if dtype is torch.bool:
        return truth(mode, func, args, kwargs)
    env = mode.environment and mode.environment()
    if env is None or dtype.is_complex:
        raise DataDependent(str(func))
    return env.unbacked(None, kind=float if dtype.is_floating_point else int)


def truth(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """A bool that nothing is known of, as whether a number, 0 or 1, is not 0. Raises ``DataDependent`` without an environment."""
    env = mode.environment and mode.environment()
    if env is None:
        raise DataDependent(str(func))
    return env.unbacked(0, 1) != 0


def _size(mode: FakeMode, func: OpOverload, most: Any, least: int = 0) -> Any:
    """A size between ``least`` and ``most``."""
    env: "ShapeEnv | None" = mode.environment and mode.environment()
    if env is None:
        raise DynamicShape(str(func))
    if isinstance(most, int):
        return env.unbacked(least, most)
    size = env.unbacked(least)
    if most is not None:
        env.assume((size <= most).node.expr)
    return size


def _numel(shape: Sequence[Any]) -> Any:
    total: Any = 1
    for n in shape:
        total = total * n
    return total


def _nonzero(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x = args[0]
    n = _size(mode, func, _numel(x.shape))
    return new(mode, (n, x.dim()), x, torch.int64, (1, positive(n)))


def _masked_select(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, mask = args
    return new(mode, (_size(mode, func, _numel(broadcast_shapes(x.shape, mask.shape))),), x)


def _unique(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    """``_unique2(x, sorted, inverse, counts)`` and ``unique_consecutive(x, inverse, counts, dim)`` of all elements, ``unique_dim`` of one dimension."""
    given = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    given.update(zip([a.name for a in func._schema.arguments], args), **kwargs)
    x, dim = given["self"], given.get("dim")
    several = _numel(x.shape) if dim is None else x.shape[dim]
    n = _size(mode, func, several, int(isinstance(several, int) and several > 0))
    if dim is None:
        shape, order, inverse = (n,), None, x.shape
    else:
        dim %= x.dim()
        shape, inverse = tuple(n if d == dim else m for d, m in enumerate(x.shape)), (x.shape[dim],)
        order = _moved_to_front(shape, dim)
    wanted = (given["return_inverse"], given["return_counts"]) if dim is None else (True, True)
    more = [new(mode, size if asked else (0,), x, torch.int64) for size, asked in zip((inverse, (n,)), wanted)]
    return (new(mode, shape, x, None, order), *more)


def _moved_to_front(shape: Sequence[Any], dim: int) -> tuple:
    """Strides of rows along ``dim`` that were stacked."""
    rest = [d for d in range(len(shape)) if d != dim]
    packed = contiguous_strides(tuple(shape[d] for d in (dim, *rest)))
    strides = dict(zip((dim, *rest), packed))
    return tuple(strides[d] for d in range(len(shape)))


def _repeat_interleave(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    repeats = args[0]
    size = kwargs.get("output_size", args[1] if len(args) > 1 else None)
    return new(mode, (_size(mode, func, None) if size is None else size,), repeats)


def mask_indices(mode: FakeMode, func: OpOverload, indices: Sequence[Any]) -> list[Any]:
    """Boolean indices as the positions of what they select: one index for each of their dimensions, all of one unknown size."""
    out: list[Any] = []
    for i in indices:
        if i is not None and i.dtype in (torch.bool, torch.uint8):
            n = _size(mode, func, _numel(i.shape))
            out += [new(mode, (n,), i, torch.int64) for _ in range(i.dim())]
        else:
            out.append(i)
    return out


def _bincount(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, weights, least = (*args, *(None, 0)[len(args) - 1:])[:3]
    weights, least = kwargs.get("weights", weights), kwargs.get("minlength", least)
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    return new(mode, (_size(mode, func, None, least),), x, dtype)


def _ctc_loss(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    """Losses, and the sums over alignments for the backward, of which there are as many as the longest target has gaps and letters."""
    log_probs, targets, lengths = args[0], args[1], args[3]
    if isinstance(lengths, torch.Tensor):
        longest = _size(mode, func, targets.shape[1] if targets.dim() == 2 else targets.shape[0])
    else:
        longest = max(lengths, default=0)
    batch = log_probs.shape[1]
    return new(mode, (batch,), log_probs), new(mode, (batch, log_probs.shape[0], 2 * longest + 1), log_probs)


def _ctc_loss_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return new(mode, args[1].shape, args[1])


def _lstsq(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    """Sums of squared residuals exist where there are more equations than unknowns and, for drivers that tell ranks, the rank is full."""
    a, b = args[:2]
    driver = kwargs.get("driver") or ("gelsy" if a.fake_device.type == "cpu" else "gels")
    (*batch, m, n), real = a.shape, a.dtype.to_real()
    vector = b.dim() == 1 or b.dim() == a.dim() - 1 and equal_all(b.shape, a.shape[:-1])
    columns = 1 if vector else b.shape[-1]
    tall = torch.sym_max(m, n)
    *steps, _, _ = contiguous_strides((*batch, columns, tall))
    solution = new(mode, (*batch, n), a, None, (*steps, 1)) if vector else new(mode, (*batch, n, columns), a, None, (*steps, 1, positive(tall)))
    ranks = driver in ("gelsd", "gelss")
    residuals: tuple = (*batch, columns) if driver != "gelsy" and m > n else (0,)
    if ranks and m > n:
        if batch:  # not all of full rank: another number of dimensions
            raise DynamicShape(str(func))
        residuals = (_size(mode, func, columns),)
    rank = new(mode, (0,) if driver == "gels" else batch, a, torch.int64)
    values = (*batch, torch.sym_min(m, n)) if ranks else (0,)
    return solution, new(mode, residuals, a, real), rank, new(mode, values, a, real)


RULES: dict[OpOverload, Callable] = {
    aten.bincount.default: _bincount,
    aten._ctc_loss.default: _ctc_loss, aten._ctc_loss.Tensor: _ctc_loss, aten.linalg_lstsq.default: _lstsq,
    aten._ctc_loss_backward.default: _ctc_loss_backward, aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
    aten._local_scalar_dense.default: number, aten.nonzero.default: _nonzero, aten.masked_select.default: _masked_select,
    aten._unique2.default: _unique, aten.unique_dim.default: _unique, aten.unique_consecutive.default: _unique,
    aten.repeat_interleave.Tensor: _repeat_interleave,
}  # fmt: skip
