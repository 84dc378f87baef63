"""Solutions, inverses and determinants from factorisations. Upstream: ATen's ``linalg_*`` composites; ``torch._refs.linalg``."""
from __future__ import annotations

from typing import Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import broadcast_shapes, contiguous_strides, wrap_dim
from .contractions import matmul
from .indexing import tril, triu
from .registry import NoRule, broadcast_to, elementwise, full_like, number, rule
from .softmax import along
from .views import diagonal, slice_dim


def _batched(x: Value, batch: Sequence[int]) -> Value:
    return broadcast_to(x, (*batch, *x.shape[-2:]))


def transpose(x: Value) -> Value:
    return p.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def identity(like: Value, n: int) -> Value:
    """Identity matrices for the batch of ``like``."""
    shape = (*like.shape[:-2], n, n)
    row, column = (p.broadcast_in_dim(p.iota(n, 0, 1, torch.int64, like.device), shape, (len(shape) - k,)) for k in (2, 1))
    return p.convert(p.eq(row, column), like.dtype)


def solve_triangular(a: Value, b: Value, upper: bool, left: bool = True, unitriangular: bool = False) -> Value:
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return p.solve_triangular(_batched(a, batch), _batched(b, batch), upper, left, unitriangular)


@rule("linalg_solve_triangular", library=True)
def linalg_solve_triangular(a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Value:
    return solve_triangular(a, b, upper, left, unitriangular)


@rule("triangular_solve", library=True)
def triangular_solve(b: Value, a: Value, upper: bool = True, transposed: bool = False, unitriangular: bool = False) -> tuple[Value, Value]:
    """(solution, a)."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    system = transpose(a) if transposed else a
    return solve_triangular(system, b, upper != transposed, True, unitriangular), _batched(a, batch)


@rule("linalg_cholesky_ex", library=True)
def linalg_cholesky_ex(x: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    _unchecked(check_errors)
    return p.cholesky(x, upper)


def _unchecked(check_errors: bool) -> None:
    if check_errors:
        raise NoRule("an error that depends on the data")


@rule("cholesky_solve", "_cholesky_solve_helper", library=True)
def cholesky_solve(b: Value, factor: Value, upper: bool = False) -> Value:
    lower = transpose(factor) if upper else factor
    return solve_triangular(transpose(lower), solve_triangular(lower, b, False), True)


@rule("cholesky_inverse", library=True)
def cholesky_inverse(factor: Value, upper: bool = False) -> Value:
    return cholesky_solve(identity(factor, factor.shape[-1]), factor, upper)


@rule("linalg_lu_factor_ex", library=True)
def linalg_lu_factor_ex(x: Value, *, pivot: bool = True, check_errors: bool = False) -> tuple[Value, Value, Value]:
    _unchecked(check_errors or not pivot)
    return p.lu_factor(x)


def _order(pivots: Value, rows: int) -> Value:
    """Row i of the permuted matrix is row order[i] of the matrix: the exchanges, one after the other."""
    shape = (*pivots.shape[:-1], rows)
    last = len(shape) - 1
    place = p.broadcast_in_dim(p.iota(rows, 0, 1, torch.int64, pivots.device), shape, (last,))
    order = place
    for i in range(pivots.shape[-1]):
        other = p.convert(slice_dim(pivots, last, i, i + 1), torch.int64) - 1
        mine, theirs = slice_dim(order, last, i, i + 1), p.gather(order, last, other)
        order = p.where(p.eq(place, i), along(theirs, order), p.where(p.eq(place, along(other, order)), along(mine, order), order))
    return order


def _permuted(x: Value, order: Value) -> Value:
    """Rows of ``x`` in this order."""
    return p.gather(x, x.ndim - 2, p.broadcast_in_dim(order, (*order.shape, x.shape[-1]), tuple(range(order.ndim))))


def _inverse_order(order: Value) -> Value:
    return p.sort(order, order.ndim - 1, False)[1]


def _factors(lu: Value) -> tuple[Value, Value]:
    """(unit lower, upper) of both in one matrix."""
    m, n = lu.shape[-2:]
    k = min(m, n)
    lower = tril(slice_dim(lu, lu.ndim - 1, 0, k), -1)
    ones = full_like(lower, 1.0)
    return lower + triu(tril(ones)), triu(slice_dim(lu, lu.ndim - 2, 0, k))


@rule("lu_unpack", library=True)
def lu_unpack(lu: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Value, Value, Value]:
    """(permutation, lower, upper); what is not wanted is empty."""
    empty = p.full((0,), number(0, lu.dtype), lu.dtype, lu.device)
    lower, upper = _factors(lu) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, lower, upper
    m = lu.shape[-2]
    unit = identity(lu, m)
    return _permuted(unit, _inverse_order(_order(pivots, m))), lower, upper


@rule("linalg_lu", library=True)
def linalg_lu(x: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    _unchecked(not pivot)
    lu, pivots, _ = p.lu_factor(x)
    return lu_unpack(lu, pivots)


@rule("linalg_lu_solve", library=True)
def linalg_lu_solve(lu: Value, pivots: Value, b: Value, *, left: bool = True, adjoint: bool = False) -> Value:
    """x with A x = b (x A = b unless left; A transposed if adjoint), A = P L U."""
    if not left:
        return transpose(linalg_lu_solve(lu, pivots, transpose(b), left=True, adjoint=not adjoint))
    batch = broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    lu, b = _batched(lu, batch), _batched(b, batch)
    order = broadcast_to(_order(pivots, lu.shape[-1]), (*batch, lu.shape[-1]))
    if not adjoint:
        return solve_triangular(lu, solve_triangular(lu, _permuted(b, order), False, True, True), True)
    flipped = transpose(lu)
    half = solve_triangular(flipped, solve_triangular(flipped, b, False), True, True, True)
    return _permuted(half, _inverse_order(order))


@rule("_linalg_solve_ex", library=True)
def linalg_solve_ex(a: Value, b: Value, *, left: bool = True, check_errors: bool = False) -> tuple[Value, Value, Value, Value]:
    """(solution, factors, pivots, info)."""
    _unchecked(check_errors)
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    lu, pivots, info = p.lu_factor(a)
    columns = p.reshape(b, (*b.shape, 1)) if vector else b
    x = linalg_lu_solve(lu, pivots, columns, left=left or vector)
    return (p.reshape(x, x.shape[:-1]) if vector else x), lu, pivots, info


@rule("linalg_inv_ex", library=True)
def linalg_inv_ex(x: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    _unchecked(check_errors)
    lu, pivots, info = p.lu_factor(x)
    return linalg_lu_solve(lu, pivots, identity(x, x.shape[-1])), info


def _parity(pivots: Value, dtype: torch.dtype) -> Value:
    """1 for an even number of row exchanges, -1 for an odd one."""
    place = p.broadcast_in_dim(p.iota(pivots.shape[-1], 1, 1, torch.int64, pivots.device), pivots.shape, (pivots.ndim - 1,))
    moved = p.sum(p.convert(p.ne(p.convert(pivots, torch.int64), place), torch.int64), (pivots.ndim - 1,), False)
    return p.convert(1 - p.remainder(moved, 2) * 2, dtype)


def _by_columns(x: Value) -> Value:
    """Eager factors the transpose of row-major matrices, which LAPACK reads without a copy; the determinant is the same."""
    return transpose(x) if x.strides == contiguous_strides(x.shape) else x


@rule("_linalg_det", library=True)
def linalg_det(x: Value) -> tuple[Value, Value, Value]:
    """(determinant, factors, pivots)."""
    lu, pivots, _ = p.lu_factor(_by_columns(x))
    return p.prod(diagonal(lu, 0, -2, -1), (x.ndim - 2,), False) * _parity(pivots, x.dtype), lu, pivots


@rule("_linalg_slogdet", library=True)
def linalg_slogdet(x: Value) -> tuple[Value, Value, Value, Value]:
    """(sign, logarithm of the size, factors, pivots) of the determinant."""
    lu, pivots, _ = p.lu_factor(_by_columns(x))
    on = diagonal(lu, 0, -2, -1)
    sign = p.prod(p.sign(on), (x.ndim - 2,), False) * _parity(pivots, x.dtype)
    return sign, p.sum(p.log(p.abs(on)), (x.ndim - 2,), False), lu, pivots


@rule("linalg_qr", library=True)
def linalg_qr(x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    return p.qr(x, mode)


@rule("geqrf", library=True)
def geqrf(x: Value) -> tuple[Value, Value]:
    return p.geqrf(x)


@rule("linalg_householder_product", library=True)
def householder_product(x: Value, tau: Value) -> Value:
    return p.householder_product(x, tau)


@rule("_linalg_svd", library=True)
def linalg_svd(x: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> tuple[Value, Value, Value]:
    """(u, s, vh); u and vh are empty when not wanted."""
    if driver is not None or 0 in x.shape:
        raise NoRule("a chosen algorithm, or no elements")
    u, s, vh = p.svd(x, full_matrices)
    empty = p.full((0,), 0.0, x.dtype, x.device)
    return (u, s, vh) if compute_uv else (empty, s, empty)


@rule("_linalg_eigh", library=True)
def linalg_eigh(x: Value, uplo: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    values, vectors = p.eigh(x, uplo.upper() == "U")
    return values, vectors if compute_v else p.full((0,), 0.0, x.dtype, x.device)


@rule("linalg_matrix_exp", library=True)
def linalg_matrix_exp(x: Value) -> Value:
    return p.matrix_exp(x)


@elementwise("linalg_cross", operands=2, library=True)
def linalg_cross(a: Value, b: Value, *, dim: int = -1) -> Value:
    """Component i of the product: a[i+1] * b[i+2] - a[i+2] * b[i+1]."""
    dim = wrap_dim(dim, a.ndim)
    turn = lambda x, k: p.cat(tuple([slice_dim(x, dim, (i + k) % 3, (i + k) % 3 + 1) for i in range(3)]), dim)
    return turn(a, 1) * turn(b, 2) - turn(a, 2) * turn(b, 1)


@rule("trace", library=True)
def trace(x: Value) -> Value:
    on = diagonal(x)
    wide = on if on.dtype.is_floating_point else p.convert(on, torch.int64)
    return p.sum(wide, (0,), False)


@rule("_compute_linear_combination", library=True)
def linear_combination(x: Value, coefficients: Value) -> Value:
    """The first dimension of x contracted with the columns of coefficients."""
    n = x.shape[0]
    out = matmul(coefficients, p.reshape(x, (n, x.numel() // n)))
    return p.reshape(out, (coefficients.shape[0], *x.shape[1:]))


@rule("ormqr", library=True)
def ormqr(vectors: Value, tau: Value, other: Value, left: bool = True, transposed: bool = False) -> Value:
    """other times the product of the reflections that the columns of ``vectors`` tell: one after the other, nearest first."""
    if not left:
        return transpose(ormqr(vectors, tau, transpose(other), True, not transposed))
    lower, last = _factors(vectors)[0], vectors.ndim - 1
    k = tau.shape[-1]
    for i in range(k) if transposed else reversed(range(k)):
        v = slice_dim(lower, last, i, i + 1)
        scale = p.reshape(slice_dim(tau, last - 1, i, i + 1), (*tau.shape[:-1], 1, 1))
        share = matmul(transpose(v), other)
        other = other - matmul(v, share * along(scale, share))
    return other


@rule("linalg_pinv.atol_rtol_tensor", library=True)
def linalg_pinv(x: Value, *, atol: Value | None = None, rtol: Value | None = None, hermitian: bool = False) -> Value:
    """v @ diag(1 / s) @ u.T over the singular values above the larger of both tolerances."""
    if hermitian or 0 in x.shape:
        raise NoRule("the inverse of symmetric matrices, or of nothing")
    u, s, vh = p.svd(x, False)
    spread = lambda t: broadcast_to(p.reshape(p.convert(t, s.dtype), (*t.shape, 1)), s.shape)
    bounds = [spread(atol)] if atol is not None else []
    largest = along(slice_dim(s, s.ndim - 1, 0, 1), s)
    if rtol is not None:
        bounds.append(largest * spread(rtol))
    elif atol is None:
        bounds.append(largest * (torch.finfo(s.dtype).eps * max(x.shape[-2:])))
    else:  # the default relative one counts only where the absolute one is 0
        default = largest * (torch.finfo(s.dtype).eps * max(x.shape[-2:]))
        bounds.append(p.where(p.gt(bounds[0], 0.0), 0.0, default))
    bound = bounds[0] if len(bounds) == 1 else p.maximum(*bounds)
    inverse = p.where(p.gt(s, bound), p.reciprocal(s), 0.0)
    scaled = transpose(vh) * p.broadcast_in_dim(inverse, transpose(vh).shape, (*range(s.ndim - 1), s.ndim))
    return matmul(scaled, transpose(u))
