"""Special functions: elementwise prims that nothing simpler expresses precisely. Compilers may leave them to their references.

Upstream: ``torch._prims`` (``bessel_j0``, ``erfcx``, ``zeta`` ...) and ``torch.special``.
"""
from __future__ import annotations

from typing import Any, Callable

import torch

from .core import TensorMeta, prim
from .elementwise import _tensors, binary, unary
from .meta import elementwise_strides

T = TensorMeta
_of = torch.special

bessel_j0 = unary("bessel_j0", _of.bessel_j0, "Bessel function of the first kind, order 0")
bessel_j1 = unary("bessel_j1", _of.bessel_j1, "Bessel function of the first kind, order 1")
bessel_y0 = unary("bessel_y0", _of.bessel_y0, "Bessel function of the second kind, order 0")
bessel_y1 = unary("bessel_y1", _of.bessel_y1, "Bessel function of the second kind, order 1")
bessel_i0e = unary("bessel_i0e", _of.i0e, "modified Bessel function of the first kind, order 0, times exp(-|x|)")
bessel_i1e = unary("bessel_i1e", _of.i1e, "modified Bessel function of the first kind, order 1, times exp(-|x|)")
bessel_k0e = unary("bessel_k0e", _of.scaled_modified_bessel_k0, "modified Bessel function of the second kind, order 0, times exp(x)")
bessel_k1e = unary("bessel_k1e", _of.scaled_modified_bessel_k1, "modified Bessel function of the second kind, order 1, times exp(x)")
airy_ai = unary("airy_ai", _of.airy_ai, "Airy function of the first kind")
erfcx = unary("erfcx", _of.erfcx, "exp(x * x) * erfc(x)")
ndtri = unary("ndtri", _of.ndtri, "the point below which the normal distribution holds the share x")
zeta = binary("zeta", _tensors(_of.zeta), "Hurwitz zeta function: the sum of (b + k) ** -a over k = 0, 1, ...")
igamma = binary("igamma", _tensors(torch.igamma), "regularised lower incomplete gamma function of shape a at b")
igammac = binary("igammac", _tensors(torch.igammac), "regularised upper incomplete gamma function of shape a at b")
gcd = binary("gcd", _tensors(torch.gcd), "greatest common divisor of integers, not negative")


def _polynomial(name: str, doc: str) -> Any:
    """x in the first place, the degree n (rounded towards 0) in the second."""
    fn: Callable[..., Any] = getattr(_of, name)
    return binary(name, _tensors(fn), doc)


chebyshev_polynomial_t = _polynomial("chebyshev_polynomial_t", "Chebyshev polynomial of the first kind of degree b at a")
chebyshev_polynomial_u = _polynomial("chebyshev_polynomial_u", "Chebyshev polynomial of the second kind of degree b at a")
chebyshev_polynomial_v = _polynomial("chebyshev_polynomial_v", "Chebyshev polynomial of the third kind of degree b at a")
chebyshev_polynomial_w = _polynomial("chebyshev_polynomial_w", "Chebyshev polynomial of the fourth kind of degree b at a")
hermite_polynomial_h = _polynomial("hermite_polynomial_h", "physicists' Hermite polynomial of degree b at a")
laguerre_polynomial_l = _polynomial("laguerre_polynomial_l", "Laguerre polynomial of degree b at a")
legendre_polynomial_p = _polynomial("legendre_polynomial_p", "Legendre polynomial of degree b at a")
hermite_polynomial_he = _polynomial("hermite_polynomial_he", "probabilists' Hermite polynomial of degree b at a")


@prim("pointwise", torch.frexp)
def frexp(x: T) -> tuple[T, T]:
    """(mantissa of size 0.5 to 1, int32 exponent): x = mantissa * 2 ** exponent."""
    strides = elementwise_strides(x)
    return TensorMeta(x.shape, x.dtype, x.device, strides), TensorMeta(x.shape, torch.int32, x.device, strides)
