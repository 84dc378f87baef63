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
