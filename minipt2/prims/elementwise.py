"""Elementwise prims: same-shape tensors in, one tensor out; no promotion and no broadcasting.

A Python number may stand for one operand of a binary prim (and for a branch of ``where``) and is taken in the tensor's dtype.
Results in bfloat16 and float16 are rounded results of float32 arithmetic, as in eager kernels.
Upstream: the elementwise section of ``torch._prims``.
"""
from __future__ import annotations

import operator
from typing import Any, Callable

import torch

from ..shapes.known import equal_all
from .core import Number, Prim, TensorMeta, Value, define, prim
from .meta import elementwise_strides

T = TensorMeta


def _like(x: TensorMeta, dtype: torch.dtype) -> TensorMeta:
    return TensorMeta(x.shape, dtype, x.device, elementwise_strides(x))


def device_of(*operands: TensorMeta) -> torch.device:
    """Where the result is: a number on the CPU goes along with tensors elsewhere."""
    return next((x.device for x in operands if x.device.type != "cpu"), operands[0].device)


def unary(name: str, ref: Callable[..., Any], doc: str, dtype: torch.dtype | None = None) -> Prim:
    """A prim of one tensor; ``dtype`` is the result's, by default the operand's."""

    def meta(x: T) -> T:
        return _like(x, dtype or x.dtype)

    return define(name, "pointwise", meta, ref, doc)


def binary(name: str, ref: Callable[..., Any], doc: str, dtype: torch.dtype | None = None) -> Prim:
    """A prim of two tensors, or of a tensor and a number."""

    def meta(a: T | Number, b: T | Number) -> T:
        if not isinstance(a, TensorMeta):
            return _like(b, dtype or b.dtype)
        if not isinstance(b, TensorMeta):
            return _like(a, dtype or a.dtype)
        if a.dtype is not b.dtype or not equal_all(a.shape, b.shape):
            raise ValueError(f"prims.{name} takes tensors of one dtype and shape, got {a} and {b}")
        return TensorMeta(a.shape, dtype or a.dtype, device_of(a, b), elementwise_strides(a, b))

    return define(name, "pointwise", meta, ref, doc)


def _tensors(fn: Callable[..., Any]) -> Callable[..., Any]:
    """For references that take no numbers: the number becomes a 0-d tensor of the other operand's dtype."""

    def ref(a: Any, b: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            a = torch.tensor(a, dtype=b.dtype, device=b.device)
        if not isinstance(b, torch.Tensor):
            b = torch.tensor(b, dtype=a.dtype, device=a.device)
        return fn(a, b)

    return ref


# Unary: name, reference, meaning.
abs = unary("abs", torch.abs, "|x|")
neg = unary("neg", torch.neg, "-x")
exp = unary("exp", torch.exp, "e to the power x")
exp2 = unary("exp2", torch.exp2, "2 to the power x")
expm1 = unary("expm1", torch.expm1, "e to the power x, minus 1, precise near 0")
log = unary("log", torch.log, "natural logarithm")
log1p = unary("log1p", torch.log1p, "natural logarithm of 1 + x, precise near 0")
log2 = unary("log2", torch.log2, "logarithm to base 2")
log10 = unary("log10", torch.log10, "logarithm to base 10")
sqrt = unary("sqrt", torch.sqrt, "square root; NaN below 0")
rsqrt = unary("rsqrt", torch.rsqrt, "1 over the square root")
reciprocal = unary("reciprocal", torch.reciprocal, "1 / x")
sin = unary("sin", torch.sin, "sine of an angle in radians")
cos = unary("cos", torch.cos, "cosine of an angle in radians")
tan = unary("tan", torch.tan, "tangent of an angle in radians")
asin = unary("asin", torch.asin, "inverse sine, in radians")
acos = unary("acos", torch.acos, "inverse cosine, in radians")
atan = unary("atan", torch.atan, "inverse tangent, in radians")
sinh = unary("sinh", torch.sinh, "hyperbolic sine")
cosh = unary("cosh", torch.cosh, "hyperbolic cosine")
tanh = unary("tanh", torch.tanh, "hyperbolic tangent")
asinh = unary("asinh", torch.asinh, "inverse hyperbolic sine")
acosh = unary("acosh", torch.acosh, "inverse hyperbolic cosine")
atanh = unary("atanh", torch.atanh, "inverse hyperbolic tangent")
erf = unary("erf", torch.erf, "error function")
erfc = unary("erfc", torch.erfc, "1 - erf(x), precise for large x")
erfinv = unary("erfinv", torch.erfinv, "inverse of erf")
lgamma = unary("lgamma", torch.lgamma, "logarithm of |gamma(x)|")
digamma = unary("digamma", torch.digamma, "derivative of lgamma")
floor = unary("floor", torch.floor, "largest whole number not above x")
ceil = unary("ceil", torch.ceil, "smallest whole number not below x")
round = unary("round", torch.round, "nearest whole number, halves to even")
trunc = unary("trunc", torch.trunc, "whole part, towards 0")
sign = unary("sign", torch.sign, "-1, 0 or 1; 0 for NaN")
sigmoid = unary("sigmoid", torch.sigmoid, "1 / (1 + exp(-x))")
relu = unary("relu", torch.relu, "x where x > 0 or NaN, else 0")
bitwise_not = unary("bitwise_not", torch.bitwise_not, "flips every bit; logical negation of bool")
signbit = unary("signbit", torch.signbit, "whether the sign bit is set (-0.0 too)", torch.bool)
isnan = unary("isnan", torch.isnan, "whether x is NaN", torch.bool)
isinf = unary("isinf", torch.isinf, "whether x is infinite", torch.bool)
isfinite = unary("isfinite", torch.isfinite, "whether x is neither infinite nor NaN", torch.bool)
logical_not = unary("logical_not", torch.logical_not, "whether x is 0", torch.bool)

# Binary.
add = binary("add", operator.add, "a + b")
sub = binary("sub", operator.sub, "a - b")
mul = binary("mul", operator.mul, "a * b")
div = binary("div", operator.truediv, "a / b, floating point only")
floordiv = binary("floordiv", _tensors(torch.floor_divide), "a / b rounded down")
truncdiv = binary("truncdiv", _tensors(lambda a, b: torch.div(a, b, rounding_mode="trunc")), "a / b rounded towards 0")
fmod = binary("fmod", _tensors(torch.fmod), "remainder with the sign of a (C's fmod)")
remainder = binary("remainder", _tensors(torch.remainder), "remainder with the sign of b (Python's %)")
pow = binary("pow", lambda a, b: (torch.pow if isinstance(a, torch.Tensor) else _tensors(torch.pow))(a, b), "a to the power b")
atan2 = binary("atan2", _tensors(torch.atan2), "angle of the point (b, a), in radians")
maximum = binary("maximum", _tensors(torch.maximum), "the larger; NaN when either is NaN")
minimum = binary("minimum", _tensors(torch.minimum), "the smaller; NaN when either is NaN")
fmax = binary("fmax", _tensors(torch.fmax), "the larger; the other one when one is NaN")
fmin = binary("fmin", _tensors(torch.fmin), "the smaller; the other one when one is NaN")
copysign = binary("copysign", _tensors(torch.copysign), "|a| with the sign of b")
nextafter = binary("nextafter", _tensors(torch.nextafter), "the next number after a in the direction of b")
hypot = binary("hypot", _tensors(torch.hypot), "square root of a*a + b*b without overflow")
bitwise_and = binary("bitwise_and", operator.and_, "a & b")
bitwise_or = binary("bitwise_or", operator.or_, "a | b")
bitwise_xor = binary("bitwise_xor", operator.xor, "a ^ b")
shift_left = binary("shift_left", operator.lshift, "a * 2**b; 0 when b is the bit width or more")
shift_right = binary("shift_right", operator.rshift, "arithmetic shift: a / 2**b rounded down")
eq = binary("eq", operator.eq, "a == b", torch.bool)
ne = binary("ne", operator.ne, "a != b", torch.bool)
lt = binary("lt", operator.lt, "a < b", torch.bool)
le = binary("le", operator.le, "a <= b", torch.bool)
gt = binary("gt", operator.gt, "a > b", torch.bool)
ge = binary("ge", operator.ge, "a >= b", torch.bool)
logical_and = binary("logical_and", _tensors(torch.logical_and), "both are not 0", torch.bool)
logical_or = binary("logical_or", _tensors(torch.logical_or), "either is not 0", torch.bool)


def _where_ref(cond: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    like = a if isinstance(a, torch.Tensor) else b
    return torch.where(cond, a, b).to(like.dtype)


@prim("pointwise", _where_ref)
def where(cond: T, a: T | Number, b: T | Number) -> T:
    """a where cond (bool) holds, else b; one of a and b may be a number."""
    tensors = [x for x in (a, b) if isinstance(x, TensorMeta)]
    if not tensors or cond.dtype is not torch.bool or any(not equal_all(x.shape, cond.shape) or x.dtype is not tensors[0].dtype for x in tensors):
        raise ValueError(f"prims.where takes a bool tensor and same-shape branches of one dtype, got {cond}, {a} and {b}")
    return TensorMeta(cond.shape, tensors[0].dtype, device_of(*tensors, cond), elementwise_strides(cond, *tensors))


def _valid_ref(x: torch.Tensor, ok: torch.Tensor) -> torch.Tensor:
    if not ok.all():
        raise RuntimeError(WRONG_VALUE)
    return x.clone()


WRONG_VALUE = "a tensor holds a value that the operator does not take"


@prim("pointwise", _valid_ref)
def valid(x: T, ok: T) -> T:
    """x; raises RuntimeError where ok (bool) does not hold: eager's checks of its operands' values."""
    if ok.dtype is not torch.bool or not equal_all(ok.shape, x.shape):
        raise ValueError(f"prims.valid takes a bool tensor of x's shape, got {x} and {ok}")
    return _like(x, x.dtype)


@prim("pointwise", lambda x, dtype: x.to(dtype))
def convert(x: T, dtype: torch.dtype) -> T:
    """x in another dtype: floats are rounded to nearest, towards 0 when to integers; to bool is x != 0."""
    return _like(x, dtype)


@prim("pointwise", lambda x, dtype: x.view(dtype))
def bitcast(x: T, dtype: torch.dtype) -> T:
    """The same bits read as another dtype of the same width."""
    if x.dtype.itemsize != dtype.itemsize:
        raise ValueError(f"prims.bitcast takes dtypes of one width, got {x.dtype} and {dtype}")
    return TensorMeta(x.shape, dtype, x.device, x.strides)


def _method(p: Prim, swapped: bool = False) -> Callable[..., Any]:
    return (lambda a, b: p(b, a)) if swapped else (lambda a, b: p(a, b))


# Rules are written with operators; on values they are the prims of that name.
for _name, _prim in dict(add=add, sub=sub, mul=mul, truediv=div, pow=pow).items():
    setattr(Value, f"__{_name}__", _method(_prim))
    setattr(Value, f"__r{_name}__", _method(_prim, swapped=True))
for _name, _prim in {"and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor, "lt": lt, "le": le, "gt": gt, "ge": ge}.items():
    setattr(Value, f"__{_name}__", _method(_prim))
Value.__neg__ = lambda a: neg(a)  # type: ignore[attr-defined]
