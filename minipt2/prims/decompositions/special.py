"""Special functions: a prim each, or a formula of simpler ones. Upstream: ``torch._refs.special``, ``torch._decomp`` (``mvlgamma``, ``logit_backward``)."""
from __future__ import annotations

import math
from functools import partial
from typing import Any

from .. import ops as p
from ..core import Value
from ..promote import Kind, to_float
from .pointwise import add, relu
from .registry import elementwise, full_like, rule
from .views import chunk

_FLOAT = Kind.INT_TO_FLOAT
_special = partial(elementwise, kind=_FLOAT, library=True)
_formula = partial(elementwise, kind=_FLOAT, opmath=True, library=True)

for _name in "bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai erfcx ndtri".split():
    _special(f"special_{_name}")(getattr(p, _name))
_special("special_i0e")(p.bessel_i0e)
_special("special_i1e")(p.bessel_i1e)
_special("special_scaled_modified_bessel_k0")(p.bessel_k0e)
_special("special_scaled_modified_bessel_k1")(p.bessel_k1e)
for _name in ("chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
              "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p").split():
    _special(*[f"special_{_name}{kind}" for kind in ("", ".n_scalar", ".x_scalar")], operands=2)(getattr(p, _name))
_special("special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar", operands=2)(p.zeta)
_special("igamma", operands=2)(p.igamma)
_special("igammac", operands=2)(p.igammac)
elementwise("gcd", operands=2, library=True)(p.gcd)


def _shifted(letter: str) -> None:
    """A shifted Chebyshev polynomial is the plain one at 2x - 1."""
    name, plain = f"special_shifted_chebyshev_polynomial_{letter}", getattr(p, f"chebyshev_polynomial_{letter}")

    @_special(name, f"{name}.n_scalar", f"{name}.x_scalar", operands=2)
    def apply(x: Any, n: Any) -> Value:
        return plain(x * 2 - 1, n)


for _letter in "tuvw":
    _shifted(_letter)


@_formula("i0", "special_modified_bessel_i0")
def i0(x: Value) -> Value:
    return p.bessel_i0e(x) * p.exp(p.abs(x))


@_formula("special_i1", "special_modified_bessel_i1")
def i1(x: Value) -> Value:
    return p.bessel_i1e(x) * p.exp(p.abs(x))


@_formula("special_modified_bessel_k0")
def k0(x: Value) -> Value:
    return p.bessel_k0e(x) * p.exp(-x)


@_formula("special_modified_bessel_k1")
def k1(x: Value) -> Value:
    return p.bessel_k1e(x) * p.exp(-x)


@_formula("special_spherical_bessel_j0")
def spherical_bessel_j0(x: Value) -> Value:
    return p.where(p.isinf(x), 0.0, p.where(p.eq(x, 0.0), 1.0, p.sin(x) / x))


@_formula("special_log_ndtr")
def log_ndtr(x: Value) -> Value:
    """log of the share of the normal distribution below x; far below the mean by erfcx, which does not underflow."""
    scaled = x * math.sqrt(0.5)
    return p.where(p.lt(x, -1.0), p.log(p.erfcx(-scaled) * 0.5) - scaled * scaled, p.log1p(p.erfc(scaled) * -0.5))


@_formula("special_entr")
def entr(x: Value) -> Value:
    """-x log x; 0 at 0, -inf below."""
    inside = p.where(p.gt(x, 0.0), -x * p.log(x), p.where(p.eq(x, 0.0), x, -math.inf))
    return p.where(p.isnan(x), x, inside)


@_formula("special_xlog1py", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar", operands=2)
def xlog1py(a: Any, b: Any) -> Value:
    """a * log1p(b), but 0 where a is 0 and b is not NaN."""
    if not isinstance(b, Value):
        b = full_like(a, b)
    zero = p.eq(a if isinstance(a, Value) else full_like(b, a), 0)
    return p.where(p.isnan(b), math.nan, p.where(zero, 0.0, a * p.log1p(b)))


@_formula("logaddexp2", operands=2)
def logaddexp2(a: Value, b: Value) -> Value:
    larger = p.maximum(a, b)
    same_infinity = p.logical_and(p.isinf(a), p.eq(a, b))
    return p.where(same_infinity, a, larger + p.log1p(p.exp2(-p.abs(a - b))) * (1 / math.log(2)))


@rule("polygamma", library=True)
def polygamma(n: int, x: Value) -> Value:
    """The n-th derivative of digamma."""
    return digamma_derivative(x, n)


@elementwise(kind=_FLOAT, opmath=True)
def digamma_derivative(x: Value, n: int) -> Value:
    if n == 0:
        return p.digamma(x)
    return p.zeta(to_float(n + 1), x) * (math.factorial(n) * (-1.0) ** (n + 1))


@_formula("mvlgamma")
def mvlgamma(x: Value, dims: int) -> Value:
    """Logarithm of the multivariate gamma function: a sum of lgamma at steps of one half."""
    total = p.lgamma(x) + dims * (dims - 1) * math.log(math.pi) / 4
    for k in range(1, dims):
        total = total + p.lgamma(x - k / 2)
    return total


@elementwise("lcm", operands=2, library=True)
def lcm(a: Value, b: Value) -> Value:
    divisor = p.gcd(a, b)
    safe = p.where(p.eq(divisor, 0), 1, divisor)
    return p.abs(p.truncdiv(a, safe) * b)


@rule("frexp.Tensor", library=True)
def frexp(x: Value) -> tuple[Value, Value]:
    return p.frexp(x)


@elementwise("angle", kind=_FLOAT, library=True)
def angle(x: Value) -> Value:
    """0 or pi: the angle of a real number; NaN stays."""
    return p.where(p.isnan(x), x, p.where(p.lt(x, 0.0), math.pi, full_like(x, 0.0)))


@elementwise("logit_backward", operands=2, opmath=True, library=True)
def logit_backward(grad: Value, x: Value, eps: float | None = None) -> Value:
    """Outside [eps, 1 - eps] the gradient is 0; without eps it is NaN outside [0, 1]."""
    low, high = (0.0, 1.0) if eps is None else (eps, 1.0 - eps)
    inside = p.logical_and(p.ge(x, low), p.le(x, high))
    return p.where(inside, grad / (x * (1.0 - x)), math.nan if eps is None else 0.0)


@elementwise("celu", opmath=True, library=True)
def celu(x: Value, alpha: float = 1.0) -> Value:
    return p.where(p.gt(x, 0.0), x, p.expm1(x / to_float(alpha)) * to_float(alpha))


@rule("_add_relu.Tensor", "_add_relu.Scalar", library=True)
def add_relu(a: Value, b: Any, alpha: Any = 1) -> Value:
    return relu(add(a, b, alpha=alpha))


@elementwise("rrelu_with_noise_backward", operands=3, opmath=True, library=True)
def rrelu_with_noise_backward(grad: Value, x: Value, noise: Value, lower: float, upper: float, training: bool, is_result: bool) -> Value:
    """In training the noise tells the slope of each element; else the slope is the mean of the bounds."""
    if training and upper - lower > 1e-6:
        return grad * noise
    return p.where(p.gt(x, 0.0), grad, grad * ((lower + upper) / 2))


@rule("glu_jvp", library=True)
def glu_jvp(out: Value, x: Value, dx: Value, dim: int) -> Value:
    """Forward derivative of a * sigmoid(b): da * s + out * (1 - s) * db."""
    _, b = chunk(x, 2, dim)
    da, db = chunk(dx, 2, dim)
    s = p.sigmoid(b)
    return da * s + out * (1.0 - s) * db
