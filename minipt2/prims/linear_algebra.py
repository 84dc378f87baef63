"""Factorisations of matrices, which LAPACK does; what is made from them (determinants, inverses, solutions) are decompositions.

All work on the last two dimensions; leading ones are batches. Upstream: ``torch._prims.svd`` and ATen's ``linalg_*``.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from .core import TensorMeta, prim
from .meta import contiguous_strides, strides_in_order

T = TensorMeta


def _columns(x: TensorMeta, *last: int) -> TensorMeta:
    """A batch of matrices stored column by column, as LAPACK leaves them."""
    shape = (*x.shape[:-2], *last)
    order = [len(shape) - 2, len(shape) - 1, *range(len(shape) - 3, -1, -1)]
    return TensorMeta(shape, x.dtype, x.device, strides_in_order(shape, order))


def _rows(x: TensorMeta, shape: Sequence[int], dtype: torch.dtype | None = None) -> TensorMeta:
    return TensorMeta(tuple(shape), dtype or x.dtype, x.device, contiguous_strides(shape))


@prim("contraction", lambda x, upper: tuple(torch.linalg.cholesky_ex(x, upper=upper)))
def cholesky(x: T, upper: bool) -> tuple[T, T]:
    """(triangular factor, int32 info: 0, or the order of the first minor that is not positive) of symmetric matrices."""
    return _columns(x, *x.shape[-2:]), _rows(x, x.shape[:-2], torch.int32)


@prim("contraction", lambda x: tuple(torch.linalg.lu_factor_ex(x)))
def lu_factor(x: T) -> tuple[T, T, T]:
    """(both factors in one matrix, int32 row exchanges counted from 1, int32 info: 0, or the place of a zero pivot)."""
    return _columns(x, *x.shape[-2:]), _rows(x, (*x.shape[:-2], min(x.shape[-2:])), torch.int32), _rows(x, x.shape[:-2], torch.int32)


def _qr_ref(x: torch.Tensor, mode: str) -> Any:
    return tuple(torch.linalg.qr(x, mode))


@prim("contraction", _qr_ref)
def qr(x: T, mode: str) -> tuple[T, T]:
    """(orthonormal q, upper triangular r) with x = q @ r: ``reduced``, ``complete``, or ``r`` alone (q is empty)."""
    m, n = x.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    q = _rows(x, (0,)) if mode == "r" else _columns(x, m, k)
    return q, _columns(x, k, n)


@prim("contraction", lambda x: tuple(torch.geqrf(x)))
def geqrf(x: T) -> tuple[T, T]:
    """(r above the diagonal and Householder vectors below it, their factors)."""
    return _columns(x, *x.shape[-2:]), _rows(x, (*x.shape[:-2], min(x.shape[-2:])))


@prim("contraction", torch.linalg.householder_product)
def householder_product(x: T, tau: T) -> T:
    """The first columns of the product of the reflections whose vectors are the columns of x."""
    return _columns(x, *x.shape[-2:])


def _svd_ref(x: torch.Tensor, full: bool) -> Any:
    return tuple(torch.linalg.svd(x, full_matrices=full))


@prim("contraction", _svd_ref)
def svd(x: T, full: bool) -> tuple[T, T, T]:
    """(u, singular values in descending order, vh) with x = u @ diag(s) @ vh; u and vh are square if full."""
    m, n = x.shape[-2:]
    k = min(m, n)
    return _columns(x, m, m if full else k), _rows(x, (*x.shape[:-2], k)), _columns(x, n if full else k, n)


@prim("contraction", lambda x, upper: tuple(torch.linalg.eigh(x, "U" if upper else "L")))
def eigh(x: T, upper: bool) -> tuple[T, T]:
    """(eigenvalues in ascending order, eigenvectors as columns) of symmetric matrices, of which one triangle is read."""
    return _rows(x, x.shape[:-1]), _columns(x, *x.shape[-2:])


def _solve_ref(a: torch.Tensor, b: torch.Tensor, upper: bool, left: bool, unitriangular: bool) -> torch.Tensor:
    return torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unitriangular)


@prim("contraction", _solve_ref)
def solve_triangular(a: T, b: T, upper: bool, left: bool, unitriangular: bool) -> T:
    """x with a @ x = b (x @ a = b unless left) for triangular a with the batch sizes of b."""
    return _columns(b, *b.shape[-2:])


@prim("contraction", torch.linalg.matrix_exp)
def matrix_exp(x: T) -> T:
    """The exponential of square matrices."""
    return _rows(x, x.shape)
