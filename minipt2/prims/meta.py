"""Shapes and strides: the arithmetic that meta rules share.

Strides follow eager, so that a graph's outputs have the memory format they have there (channels-last in, channels-last out).
Sizes and strides may be SymInts: what only chooses between equally right answers asks ``shapes.known``, so that no guard comes of it.
Upstream: ``TensorIterator.cpp`` (output strides), ``TensorUtils.cpp`` (``computeStride``), ``torch._prims_common``.
"""
from __future__ import annotations

import functools
from typing import Any, Sequence

import torch

from ..exercise import exercise
from ..shapes.known import at_least, known, memo, positive, same, same_all, symbolic
from ..shapes.layouts import channels_last, dense

Shape = tuple[int, ...]


def numel(shape: Sequence[int]) -> int:
    n = 1
    for size in shape:
        n = n * size
    return n


def as_many(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes have the same number of elements. Decides; sizes that both have are not part of the question."""
    if not symbolic(a, b):
        return numel(a) == numel(b)
    left, right = list(a), []
    for n in b:
        twin = next((i for i, m in enumerate(left) if same(n, m)), None)
        left.pop(twin) if twin is not None else right.append(n)
    return same(numel(left), numel(right)) or bool(numel(left) == numel(right))


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides; a dimension of size 0 counts as 1, as in eager."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (size if size.__class__ is int and size > 1 else positive(size))
    return tuple(reversed(strides))


def channels_last_strides(shape: Sequence[int]) -> Shape:
    """Strides of a 4-d (NHWC) or 5-d (NDHWC) channels-last tensor of logical shape N, C, *spatial."""
    return strides_in_order(shape, [1, *range(len(shape) - 1, 1, -1), 0])


def strides_in_order(shape: Sequence[int], fastest_first: Sequence[int]) -> Shape:
    """Dense strides where the dimensions vary in the given order, the fastest first."""
    strides, step = [1] * len(shape), 1
    for dim in fastest_first:
        strides[dim] = step
        step = step * positive(shape[dim])
    return tuple(strides)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill a block of memory without gaps or overlaps, in any order of dimensions."""
    if symbolic(shape, strides):
        return dense(shape, strides)
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides) if size != 1):
        if size == 0:
            return True
        if stride != expected:
            return False
        expected = expected * size
    return True


def is_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether every element is known to have a place of its own, with or without gaps. Decides nothing of symbols."""
    left = [d for d, n in enumerate(shape) if not same(n, 1)]
    reach: Any = 0
    while left:
        least = next((d for d in left if all(known(strides[d] <= strides[e]) for e in left)), None)
        if least is None or not known(strides[least] > reach):
            return False
        left.remove(least)
        reach = reach + strides[least] * (shape[least] - 1)
    return True


def dims_by_stride(strides: Sequence[int]) -> list[int]:
    """The dimensions as they lie in memory, the fastest first; of equal strides the last dimension first."""
    if not symbolic(strides):
        return sorted(range(len(strides)), key=lambda d: (strides[d], -d))

    def compare(a: int, b: int) -> int:
        return b - a if same(strides[a], strides[b]) else -1 if at_least(strides[b], strides[a]) else 1
    return sorted(range(len(strides)), key=functools.cmp_to_key(compare))


def same_layout(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two stride tuples place every element alike: strides of dimensions of size 1, or of empty tensors, don't matter."""
    if symbolic(shape, a, b):
        return any(same(n, 0) for n in shape) or all(same(n, 1) or same(s, t) for n, s, t in zip(shape, a, b))
    return a == b or any(n == 0 for n in shape) or all(n == 1 or s == t for n, s, t in zip(shape, a, b))


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether eager would call the layout channels-last (4-d and 5-d), ambiguous layouts counted as row-major."""
    return len(shape) in (4, 5) and channels_last(shape, strides, len(shape), exact=False)


def elementwise_strides(*xs: Any) -> Shape:
    """Strides of the result of an elementwise operation on ``xs`` (same-shape tensors; broadcast dimensions have stride 0).

    Dense operands that agree pass their layout on; otherwise dimensions are ordered by the first operand that tells them apart.
    """
    shape = xs[0].shape
    try:
        operands = tuple(dict.fromkeys([x.strides for x in xs]))
    except TypeError:  # SymInts
        operands = ()
        for x in xs:
            if not any(same_all(x.strides, o) for o in operands):
                operands += (x.strides,)
    return _elementwise_strides(tuple(shape), operands)


@memo
@exercise("4.2")
def _elementwise_strides(shape: Shape, operands: tuple[Shape, ...]) -> Shape:
    """``elementwise_strides`` of operands with these distinct strides."""
    # >>> 4.2
    row_major = contiguous_strides(shape)
    if all(same_layout(shape, s, row_major) for s in operands):
        return row_major
    if len(operands) == 1 and is_dense(shape, operands[0]) and not any(same(s, 0) for s in operands[0]):
        return operands[0]
    order = list(range(len(shape)))[::-1]
    for i in range(1, len(order)):
        j = i
        for k in range(i - 1, -1, -1):
            verdict = _compare(shape, operands, order[k], order[j])
            if verdict > 0:
                order[k], order[j] = order[j], order[k]
                j = k
            elif verdict < 0:
                break
    return strides_in_order(shape, order)
    # <<< 4.2


@exercise("4.2")
def _compare(shape: Shape, operands: tuple[Shape, ...], a: int, b: int) -> int:
    """Positive when dimension ``b`` should vary faster than ``a``, negative when not, 0 when no operand can tell."""
    # >>> 4.2
    for strides in operands:
        if same(strides[a], 0) or same(strides[b], 0) or (same(strides[a], strides[b]) and shape[a] <= shape[b]):
            continue
        return 1 if at_least(strides[a], strides[b]) else -1
    return 0
    # <<< 4.2


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """The common shape, aligned from the right; raises ``ValueError`` where sizes clash."""
    first = tuple(shapes[0])
    if all(same_all(first, s) for s in shapes[1:]):
        return first
    result = [1] * max(len(s) for s in shapes)
    for shape in shapes:
        offset = len(result) - len(shape)
        for i, size in enumerate(shape):
            so_far = result[offset + i]
            if same(so_far, 1):
                result[offset + i] = size
            elif not same(size, 1) and not same(size, so_far) and not size == so_far and not size == 1:
                if so_far != 1:
                    raise ValueError(f"shapes {[list(s) for s in shapes]} do not broadcast")
                result[offset + i] = size
    return tuple(result)


def view_strides(shape: Shape, strides: Shape, new_shape: Shape) -> Shape | None:
    """Strides that show the same memory in ``new_shape`` without a copy, or None when that needs a copy."""
    return _view_strides(tuple(shape), tuple(strides), tuple(new_shape))


@memo
@exercise("4.5")
def _view_strides(shape: Shape, strides: Shape, new_shape: Shape) -> Shape | None:
    """``view_strides``, remembered."""
    # >>> 4.5
    if same(numel(shape), 0):
        return strides if same_all(shape, new_shape) else contiguous_strides(new_shape)
    if not shape:
        return (1,) * len(new_shape)
    result = [0] * len(new_shape)
    view_dim = len(new_shape) - 1
    chunk_stride, chunk, view_chunk = strides[-1], 1, 1
    for dim in range(len(shape) - 1, -1, -1):
        chunk *= shape[dim]
        if dim and (same(shape[dim - 1], 1) or same(strides[dim - 1], chunk * chunk_stride)):
            continue
        while view_dim >= 0 and (not at_least(view_chunk, chunk) or same(new_shape[view_dim], 1)):
            result[view_dim] = view_chunk * chunk_stride
            view_chunk *= new_shape[view_dim]
            view_dim -= 1
        if not same(view_chunk, chunk) and view_chunk != chunk:
            return None
        if dim:
            chunk_stride, chunk, view_chunk = strides[dim - 1], 1, 1
    return tuple(result) if view_dim == -1 else None
    # <<< 4.5


def format_strides(x: Any, memory_format: torch.memory_format | None) -> Shape:
    """Strides of a copy of ``x`` in ``memory_format`` (None and ``preserve_format``: like ``x``, made dense)."""
    if memory_format is torch.contiguous_format:
        return contiguous_strides(x.shape)
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        return channels_last_strides(x.shape)
    return x.strides if is_dense(x.shape, x.strides) else elementwise_strides(x)


def wrap_dim(dim: int, ndim: int) -> int:
    """A possibly negative dimension as a non-negative one; raises ``IndexError`` when there is no such dimension."""
    span = max(ndim, 1)
    if not -span <= dim < span:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim % span


def wrap_dims(dims: int | Sequence[int] | None, ndim: int, empty_means_all: bool = True) -> Shape:
    """Reduction dimensions as a sorted tuple; None, and by default an empty list, means all."""
    if isinstance(dims, int):
        dims = (dims,)
    if dims is None or (len(dims) == 0 and empty_means_all):
        return tuple(range(ndim))
    if ndim == 0:
        return ()
    return tuple(sorted(wrap_dim(d, ndim) for d in dims))


def reduced_shape(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    """The shape after reducing ``dims`` (non-negative)."""
    if keepdim:
        return tuple([1 if i in dims else n for i, n in enumerate(shape)])
    return tuple([n for i, n in enumerate(shape) if i not in dims])


def sliced_shape(starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Shape:
    """The shape of a slice: start <= end, step >= 1."""
    return tuple([end - start if step == 1 else (end - start + (step - 1)) // step for start, end, step in zip(starts, ends, steps)])


def slice_bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Python's slice of positive step in a dimension of ``size``: first and last element, 0 <= start <= end <= size.

    Of symbols it is decided where they lie: results stay sums, which ``min`` and ``max`` would not. Of those that depend on data it cannot be.
    """
    if not symbolic((size, start, end)):
        start, end, _ = slice(start, end).indices(size)
        return start, max(start, end)
    start, end = _bound(start, 0, size), _bound(end, size, size)
    if known(end >= start):
        return start, end
    return start, torch.sym_max(start, end) if _depends_on_data(start, end) else end if at_least(end, start) else start


def _bound(at: Any, default: Any, size: Any) -> Any:
    if at is None:
        return default
    if at.__class__ is int and at >= 2**62:
        return size
    if _depends_on_data(at, size):
        return _clamped(at, size)
    if at < 0:
        at = at + size
        return at if at_least(at, 0) else 0
    return at if at_least(size, at) else size


def _depends_on_data(*numbers: Any) -> bool:
    return any(isinstance(n, torch.SymInt) and n.node.hint is None for n in numbers)


def _clamped(at: Any, size: Any) -> Any:
    """``at``, counted from the end where it is negative, between 0 and ``size``: as one expression."""
    if known(at >= 0):
        return at if known(at <= size) else torch.sym_min(at, size)
    at = at if known(at <= size) else torch.sym_min(at, size)
    at = at if known(at >= -size) else torch.sym_max(at, -size)
    return at + size - size * ((at + size + 1) // (size + 1))  # the quotient is 0 where at is negative, else 1


def split_sizes(total: Any, size: Any) -> list[Any]:
    """The sizes of the parts when ``total`` is cut into pieces of ``size``."""
    if same(total, size) or size == 0 or total == 0:
        return [total]
    count = int((total + (size - 1)) // size)
    return [size] * (count - 1) + [total - size * (count - 1)]


def diagonal_length(rows: Any, columns: Any, offset: int) -> Any:
    """How long a diagonal is: at least 0."""
    return torch.sym_max(torch.sym_min(rows + min(offset, 0), columns - max(offset, 0)), 0)


def infer_size(shape: Sequence[int], total: int) -> Shape:
    """``shape`` with its one -1 replaced so that it holds ``total`` elements."""
    shape = tuple(shape)
    if -1 not in shape:
        return shape
    rest = numel([n for n in shape if n != -1])
    if rest == 0:
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension is ambiguous")
    return tuple([total // rest if n == -1 else n for n in shape])
