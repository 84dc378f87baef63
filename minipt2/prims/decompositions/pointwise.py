"""Elementwise ATen operators: mostly one prim each, behind promotion and broadcasting. Upstream: ``torch._refs`` (elementwise sections)."""
from __future__ import annotations

import math
from typing import Any

import torch

from ...shapes.known import SYMBOLIC
from .. import ops as p
from ..core import Prim, Value
from ..meta import elementwise_strides, format_strides, is_dense, same_layout
from ..promote import LOW_PRECISION, Kind, computation_dtype, is_float, is_integer, result_dtype, to_float
from .registry import NoRule, broadcast_to, elementwise, full_like, number, prepare, rounded, rule

# ATen name (same as the prim's) -> one prim on promoted operands.
for _name in "abs neg sign bitwise_not".split():
    elementwise(_name)(getattr(p, _name))
for _name in ("exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
              "erf erfc erfinv lgamma digamma sigmoid").split():
    elementwise(_name, kind=Kind.INT_TO_FLOAT)(getattr(p, _name))
for _name in "isnan logical_not signbit".split():
    elementwise(_name, kind=Kind.BOOL)(getattr(p, _name))
for _name in "maximum minimum fmax fmin fmod remainder".split():
    elementwise(_name, f"{_name}.Tensor", f"{_name}.Scalar", operands=2)(getattr(p, _name))
for _name in "and or xor".split():
    elementwise(*[f"bitwise_{_name}.{kind}" for kind in ("Tensor", "Scalar", "Scalar_Tensor")], operands=2)(getattr(p, f"bitwise_{_name}"))
for _name, _prim in {"left": p.shift_left, "right": p.shift_right}.items():
    elementwise(f"bitwise_{_name}_shift.Tensor", f"bitwise_{_name}_shift.Tensor_Scalar", f"bitwise_{_name}_shift.Scalar_Tensor",
                f"__{_name[0]}shift__.Tensor", f"__{_name[0]}shift__.Scalar", operands=2)(_prim)
for _name in "and or xor".split():
    elementwise(f"__{_name}__.Tensor", f"__{_name}__.Scalar", operands=2)(getattr(p, f"bitwise_{_name}"))
for _name in "eq ne lt le gt ge".split():
    elementwise(f"{_name}.Tensor", f"{_name}.Scalar", operands=2, kind=Kind.BOOL)(getattr(p, _name))
for _name in "atan2 copysign copysign.Tensor copysign.Scalar".split():
    elementwise(_name, operands=2, kind=Kind.INT_TO_FLOAT)(getattr(p, _name.split(".")[0]))
elementwise("hypot", operands=2)(p.hypot)
elementwise("nextafter", operands=2)(p.nextafter)


def _keeping_integers(prim: Prim) -> Any:
    """floor and friends do nothing to integers."""
    return lambda x: x if is_integer(x.dtype) else prim(x)


for _name in "floor ceil round trunc".split():
    elementwise(_name, *(["fix"] if _name == "trunc" else []))(_keeping_integers(getattr(p, _name)))


@elementwise("round.decimals")
def round_decimals(x: Value, *, decimals: int) -> Value:
    if decimals == 0 or is_integer(x.dtype):
        return p.round(x) if is_float(x.dtype) else x
    scale = 10.0 ** abs(decimals)
    return p.round(x * scale) / scale if decimals > 0 else p.round(x / scale) * scale


@elementwise("relu")
def relu(x: Value) -> Value:
    return p.relu(x) if is_float(x.dtype) else p.maximum(x, 0)


@rule("positive", "conj_physical", "_conj", "resolve_conj", "resolve_neg", "real")
def identity(x: Value) -> Value:
    return x


@rule("isinf")
def isinf(x: Value) -> Value:
    if is_integer(x.dtype):
        return full_like(x, False, torch.bool)
    return p.isinf(x)


@rule("isposinf")
def isposinf(x: Value) -> Value:
    return full_like(x, False, torch.bool) if is_integer(x.dtype) else p.eq(x, math.inf)


@rule("isneginf")
def isneginf(x: Value) -> Value:
    return full_like(x, False, torch.bool) if is_integer(x.dtype) else p.eq(x, -math.inf)


@rule("isfinite")
def isfinite(x: Value) -> Value:
    return full_like(x, True, torch.bool) if is_integer(x.dtype) else p.isfinite(x)


def _scaled(x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else (p.mul(x, number(alpha, x.dtype)) if isinstance(x, Value) else x * alpha)


def _term(x: Any, alpha: Any, beside: Value) -> Any:
    """``alpha * x`` as eager adds it to ``beside``: on the CPU both numbers are rounded to half precision, their product is not."""
    if alpha == 1 or beside.dtype not in LOW_PRECISION or beside.device.type != "cpu" or isinstance(alpha, SYMBOLIC):
        return _scaled(x, alpha)
    x = x if isinstance(x, Value) else full_like(beside, x)
    return p.mul(x, rounded(alpha, beside.dtype))


@elementwise("add.Tensor", "add.Scalar", operands=2)
def add(a: Any, b: Any, alpha: Any = 1) -> Value:
    if isinstance(a, Value) and a.dtype is torch.bool:
        return p.logical_or(a, _scaled(b, alpha)) if isinstance(b, Value) else p.bitwise_or(a, bool(b * alpha))
    return p.add(a, _term(b, alpha, a))


@elementwise("sub.Tensor", "sub.Scalar", operands=2)
def sub(a: Any, b: Any, alpha: Any = 1) -> Value:
    return p.sub(a, _term(b, alpha, a))


@elementwise("rsub.Tensor", "rsub.Scalar", operands=2)
def rsub(a: Any, b: Any, alpha: Any = 1) -> Value:
    return p.sub(b, _term(a, alpha, a))


@elementwise("mul.Tensor", "mul.Scalar", operands=2, wide=True)
def mul(a: Any, b: Any) -> Value:
    if isinstance(a, Value) and a.dtype is torch.bool:
        return p.bitwise_and(a, b)
    return p.mul(a, b)


@elementwise("div.Tensor", "div.Scalar", operands=2, kind=Kind.INT_TO_FLOAT, wide=True)
def div(a: Any, b: Any) -> Value:
    return p.div(a, b)


@rule("div.Tensor_mode", "div.Scalar_mode", "divide.Tensor_mode")
def div_mode(a: Any, b: Any, *, rounding_mode: str | None) -> Value:
    if rounding_mode is None:
        return div(a, b)
    return (floor_divide if rounding_mode == "floor" else _trunc_divide)(a, b)


@elementwise("floor_divide", "floor_divide.Scalar", operands=2, wide=True)
def floor_divide(a: Any, b: Any) -> Value:
    return p.floordiv(a, b)


@elementwise(operands=2, wide=True)
def _trunc_divide(a: Any, b: Any) -> Value:
    return p.truncdiv(a, b)


@elementwise("remainder.Scalar_Tensor", operands=2)
def remainder(a: Any, b: Any) -> Value:
    return p.remainder(a, b)


def _int_power(x: Value, n: int) -> Value | None:
    """The powers that eager writes out."""
    return {0: lambda: full_like(x, 1), 1: lambda: x, 2: lambda: x * x, 3: lambda: x * x * x}.get(n, lambda: None)()


@rule("pow.Tensor_Scalar")
def pow_scalar(x: Value, exponent: Any) -> Value:
    dtype = result_dtype(x, exponent)
    if dtype is torch.bool:
        raise NoRule("pow of bool")
    if not is_float(dtype) and exponent < 0:
        raise NoRule("eager refuses a negative power of integers")
    x = p.convert(x, dtype)
    simple = _int_power(x, exponent) if exponent in (0, 1, 2) or (exponent == 3 and dtype not in (torch.bfloat16, torch.float16)) else None
    if simple is not None:
        return simple
    if is_float(dtype) and exponent in (0.5, -0.5, -1):
        return {0.5: p.sqrt, -0.5: p.rsqrt, -1: p.reciprocal}[exponent](x)
    return p.pow(x, number(exponent, dtype))


@elementwise("pow.Tensor_Tensor", "pow.Scalar", operands=2)
def pow(a: Any, b: Any) -> Value:
    return p.pow(a, b)


@elementwise("logical_and", operands=2, kind=Kind.BOOL)
def logical_and(a: Any, b: Any) -> Value:
    return p.logical_and(a, b)


@elementwise("logical_or", operands=2, kind=Kind.BOOL)
def logical_or(a: Any, b: Any) -> Value:
    return p.logical_or(a, b)


@elementwise("logical_xor", operands=2, kind=Kind.BOOL)
def logical_xor(a: Any, b: Any) -> Value:
    return p.bitwise_xor(p.convert(a, torch.bool), p.convert(b, torch.bool))


@rule("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(cond: Value, a: Any, b: Any) -> Value:
    dtype = result_dtype(a, b)
    tensors = [x for x in (a, b) if isinstance(x, Value)]
    cond = p.convert(cond, torch.bool)
    if not tensors:
        a = full_like(cond, a, dtype)
    cond, a, b = [x if isinstance(x, Value) else number(x, dtype)
                  for x in prepare([cond, *[p.convert(x, dtype) if isinstance(x, Value) else x for x in (a, b)]], None)]
    return p.where(cond, a, b)


@rule("clamp", "clamp.Tensor")
def clamp(x: Value, min: Any = None, max: Any = None) -> Value:
    """min(max(x, low), high); NaN in x stays."""
    bounds = [b for b in (min, max) if b is not None]
    dtype = computation_dtype(x, *bounds)
    if any(isinstance(b, float) and b != b for b in bounds):
        return full_like(x, math.nan, dtype)
    x, *bounds = prepare([x, *bounds], dtype)
    if min is not None:
        x = p.maximum(x, bounds[0])
    return x if max is None else p.minimum(x, bounds[-1])


@rule("clamp_min", "clamp_min.Tensor")
def clamp_min(x: Value, min: Any) -> Value:
    return clamp(x, min)


@rule("clamp_max", "clamp_max.Tensor")
def clamp_max(x: Value, max: Any) -> Value:
    return clamp(x, None, max)


@elementwise("addcmul", operands=3, opmath=True)
def addcmul(x: Value, a: Value, b: Value, *, value: Any = 1) -> Value:
    return x + _scaled(a, value) * b


@elementwise("addcdiv", operands=3, opmath=True)
def addcdiv(x: Value, a: Value, b: Value, *, value: Any = 1) -> Value:
    return x + _scaled(a, value) / b


@elementwise("lerp.Scalar", operands=2, opmath=True)
def lerp_scalar(a: Value, b: Value, weight: float) -> Value:
    """Measured from the nearer end, as eager does."""
    return a + (b - a) * to_float(weight) if abs(weight) < 0.5 else b - (b - a) * (1.0 - weight)


@elementwise("lerp.Tensor", operands=3, opmath=True)
def lerp_tensor(a: Value, b: Value, weight: Value) -> Value:
    return p.where(p.lt(p.abs(weight), 0.5), a + weight * (b - a), b - (b - a) * (1.0 - weight))


@elementwise("square")
def square(x: Value) -> Value:
    return x * x


@elementwise("ldexp.Tensor", operands=2, kind=Kind.INT_TO_FLOAT)
def ldexp(x: Value, exponent: Value) -> Value:
    return x * p.pow(2.0, exponent)


@elementwise("frac")
def frac(x: Value) -> Value:
    return x - p.trunc(x)


@elementwise("sgn")
def sgn(x: Value) -> Value:
    return p.sign(x)


@elementwise("deg2rad", kind=Kind.INT_TO_FLOAT)
def deg2rad(x: Value) -> Value:
    return x * (math.pi / 180)


@elementwise("rad2deg", kind=Kind.INT_TO_FLOAT)
def rad2deg(x: Value) -> Value:
    return x * (180 / math.pi)


@elementwise("logit", opmath=True, kind=Kind.INT_TO_FLOAT)
def logit(x: Value, eps: float | None = None) -> Value:
    if eps is not None:
        x = p.minimum(p.maximum(x, eps), 1.0 - eps)
    return p.log(x / (1.0 - x))


@elementwise("logaddexp", operands=2, kind=Kind.INT_TO_FLOAT, opmath=True)
def logaddexp(a: Value, b: Value) -> Value:
    larger = p.maximum(a, b)
    same_infinity = p.logical_and(p.isinf(a), p.eq(a, b))
    return p.where(same_infinity, a, larger + p.log1p(p.exp(-p.abs(a - b))))


@elementwise("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other", operands=2, kind=Kind.INT_TO_FLOAT, opmath=True)
def xlogy(a: Any, b: Any) -> Value:
    """a * log(b), but 0 where a is 0 and b is not NaN."""
    if not isinstance(b, Value):
        b = full_like(a, b)
    zero = p.eq(a if isinstance(a, Value) else full_like(b, a), 0)
    return p.where(p.isnan(b), math.nan, p.where(zero, 0.0, a * p.log(b)))


@elementwise("sinc", kind=Kind.INT_TO_FLOAT, opmath=True)
def sinc(x: Value) -> Value:
    scaled = x * math.pi
    return p.where(p.eq(x, 0), 1.0, p.sin(scaled) / scaled)


@rule("nan_to_num")
def nan_to_num(x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Value:
    if is_integer(x.dtype):
        return x
    info = torch.finfo(x.dtype)
    result = p.where(p.isnan(x), nan or 0.0, x)
    result = p.where(p.eq(x, math.inf), info.max if posinf is None else posinf, result)
    return p.where(p.eq(x, -math.inf), info.min if neginf is None else neginf, result)


@elementwise("heaviside", operands=2)
def heaviside(x: Value, values: Value) -> Value:
    zero = p.eq(x, 0)
    return p.where(zero, values, p.convert(p.gt(x, 0), x.dtype))


@rule("_to_copy")
def to_copy(x: Value, *, dtype: torch.dtype | None = None, layout: Any = None, device: torch.device | None = None, pin_memory: Any = None,
            non_blocking: bool = False, memory_format: torch.memory_format | None = None) -> Value:
    if (device is not None and torch.device(device) != x.device) or layout not in (None, torch.strided):
        raise NoRule("copy to another device or layout")
    x = p.convert(x, dtype or x.dtype)
    return clone(x, memory_format=memory_format)


@rule("clone")
def clone(x: Value, *, memory_format: torch.memory_format | None = None) -> Value:
    if memory_format in (None, torch.preserve_format):
        return x
    return contiguous(x, memory_format)


@rule("contiguous")
def contiguous(x: Value, memory_format: torch.memory_format = torch.contiguous_format) -> Value:
    strides = format_strides(x, memory_format)
    return x if same_layout(x.shape, x.strides, strides) else p.copy_strided(x, strides)


@rule("detach", "alias", "lift_fresh", "lift_fresh_copy", "lift")
def alias(x: Value) -> Value:
    return x


@rule("copy")
def copy(x: Value, src: Value, non_blocking: bool = False) -> Value:
    """``x.copy_(src)`` as a function: src in the dtype, shape and layout of x."""
    if src.device != x.device:
        raise NoRule("copy to another device")
    result = broadcast_to(p.convert(src, x.dtype), x.shape)
    wanted = x.strides if is_dense(x.shape, x.strides) else elementwise_strides(x)
    return result if same_layout(x.shape, result.strides, wanted) else p.copy_strided(result, wanted)


@rule("fill.Scalar", "fill.Tensor")
def fill(x: Value, value: Any) -> Value:
    return broadcast_to(p.convert(value, x.dtype), x.shape) if isinstance(value, Value) else full_like(x, value)
