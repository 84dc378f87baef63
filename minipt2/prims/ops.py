"""All prims under their names: ``from minipt2.prims import ops as p``, then ``p.exp(x)``."""
# ruff: noqa: F401
from .contractions import addmm, baddbmm, bmm, convolution, convolution_backward, mm
from .core import TABLE
from .reductions import all, amax, amin, any, argmax, argmin, cumsum, prod, sum, var_mean
from .structural import (broadcast_in_dim, cat, copy_strided, flip, full, gather, index, index_put, index_select, iota, pad, permute,
                         reshape, scatter, scatter_add, slice)
from .elementwise import (abs, acos, acosh, add, asin, asinh, atan, atan2, atanh, bitcast, bitwise_and, bitwise_not, bitwise_or,
                          bitwise_xor, ceil, convert, copysign, cos, cosh, digamma, div, eq, erf, erfc, erfinv, exp, exp2, expm1, floor,
                          floordiv, fmax, fmin, fmod, ge, gt, hypot, isfinite, isinf, isnan, le, lgamma, log, log10, log1p, log2,
                          logical_and, logical_not, logical_or, lt, maximum, minimum, mul, ne, neg, nextafter, pow, reciprocal, relu,
                          remainder, round, rsqrt, shift_left, shift_right, sigmoid, sign, signbit, sin, sinh, sqrt, sub, tan, tanh,
                          trunc, truncdiv, valid, where)
from .special import (airy_ai, bessel_i0e, bessel_i1e, bessel_j0, bessel_j1, bessel_k0e, bessel_k1e, bessel_y0, bessel_y1,
                      chebyshev_polynomial_t, chebyshev_polynomial_u, chebyshev_polynomial_v, chebyshev_polynomial_w, erfcx, frexp, gcd,
                      hermite_polynomial_h, hermite_polynomial_he, igamma, igammac, laguerre_polynomial_l, legendre_polynomial_p, ndtri, zeta)
from .ordering import cummax, cummin, cumprod, logcumsumexp, scatter_reduce, searchsorted, sort
from .linear_algebra import cholesky, eigh, geqrf, householder_product, lu_factor, matrix_exp, qr, solve_triangular, svd
from .pooling import max_pool, max_pool_backward, max_pool_positions
from .random import (bernoulli, bernoulli_number, binomial, multinomial, poisson, rand, randint, randn, random_bits, random_seed, randperm,
                     standard_gamma)
