"""Operators whose result, or its size, depends on data: a symbol for it where the mode has an environment to make one, else an error.

``FakeMode.environment`` is set by ``dynamo``. A size is at least zero and at most what its operands allow; a number is any number.
Upstream: ``torch._subclasses.fake_impls``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch
from torch._ops import OpOverload

from ..prims.meta import broadcast_shapes, contiguous_strides
from ..shapes.known import positive
from .families import new
from .tensor import DataDependent, DynamicShape, FakeMode, FakeTensor

if TYPE_CHECKING:
    from ..shapes import ShapeEnv

aten = torch.ops.aten


def number(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """``item()``: an int or float that nothing is known of. Raises ``DataDependent`` for other kinds, or without an environment."""
    dtype = args[0].dtype
    env = mode.environment and mode.environment()
    if env is None or dtype.is_complex or dtype is torch.bool:
        raise DataDependent(str(func))
    return env.unbacked(None, kind=float if dtype.is_floating_point else int)


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


RULES: dict[OpOverload, Callable] = {
    aten._local_scalar_dense.default: number, aten.nonzero.default: _nonzero, aten.masked_select.default: _masked_select,
    aten._unique2.default: _unique, aten.unique_dim.default: _unique, aten.unique_consecutive.default: _unique,
    aten.repeat_interleave.Tensor: _repeat_interleave,
}  # fmt: skip
