"""The loop-level ops as Triton expressions: torch's meaning of NaN, of signed zeros, of integer division and of rounding.

Half-precision values are held in float32. Functions that only NVIDIA's device library has are called through ``libdevice``; ``HELPERS``
holds those that nobody has. Upstream: ``torch._inductor.codegen.triton.TritonOverrides`` and ``runtime.triton_helpers``.
"""
from __future__ import annotations

import math
import re
from typing import Any, Callable

import torch

STORAGE = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int8: "i8", torch.int16: "i16",
           torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
           torch.bool: "i1"}
"""How a signature names an element in memory."""
MEMORY = {d: "tl." + str(d)[6:] for d in STORAGE} | {torch.bool: "tl.int1"}
"""The element type in a kernel's text."""
VALUE = {**MEMORY, torch.bfloat16: "tl.float32", torch.float16: "tl.float32"}
"""How a value is held while computing."""
HALF = (torch.bfloat16, torch.float16)
_PLAIN = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.bool)
"""Dtypes whose numbers keep their type as bare literals."""


def number(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number as text, without its type; of a half type it is one of float32."""
    if dtype is torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:
        return str(int(value))
    x = float(value)
    if dtype is not torch.float64:
        x = torch.tensor(x, dtype=torch.float32).item()
    return repr(x) if math.isfinite(x) else f'float("{x}")'


def typed(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number of exactly ``dtype``'s value type, whatever stands beside it."""
    return f"tl.full([1], {number(value, dtype)}, {VALUE[dtype]})"


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number as an operand of something that is not a number."""
    if dtype not in _PLAIN:
        return typed(value, dtype)
    text = number(value, dtype)
    return f"({text})" if text.startswith("-") else text


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """Conversion as ``Tensor.to``: to bool by ``!= 0``, to integers towards zero, to a half type by rounding."""
    if source is target:
        return text
    if target is torch.bool:
        return f"({text} != 0)"
    if target in HALF:
        value = text if VALUE[source] == "tl.float32" else f"{text}.to(tl.float32)"
        return f"{value}.to({MEMORY[target]}).to(tl.float32)"
    if VALUE[source] == VALUE[target]:
        return text
    if source.is_floating_point and not target.is_floating_point and target.itemsize < 4:
        return f"{text}.to(tl.int32).to({VALUE[target]})"
    return f"{text}.to({VALUE[target]})"


def store(text: str, dtype: torch.dtype) -> str:
    """What to put in memory for a value, rounded to nearest even."""
    return f"{text}.to({MEMORY[dtype]})" if dtype in HALF else text


def expression(name: str, dtype: torch.dtype, *args: str) -> str:
    """Expression for ``name`` of the op set on values of ``dtype``. KeyError for an op that does not exist."""
    table = _FLOAT if dtype.is_floating_point else _BOOL if dtype is torch.bool and name in _BOOL else _INT
    rule = table.get(name) or _ANY[name]
    return rule(*args) if isinstance(rule, _Plain) else rule(dtype, *args)


class _Plain:
    """A rule that is a pattern: ``{0}`` and ``{1}`` stand for the arguments."""

    def __init__(self, pattern: str):
        self.pattern = pattern

    def __call__(self, *args: str) -> str:
        return self.pattern.format(*args)


def _call(fn: str, count: int = 1) -> _Plain:
    return _Plain(f"{fn}({', '.join(f'{{{k}}}' for k in range(count))})")


def _binary(sign: str) -> _Plain:
    return _Plain(f"({{0}} {sign} {{1}})")


def _pow(dtype: torch.dtype, a: str, b: str) -> str:
    simple = {"2.0": f"({a} * {a})", "3.0": f"({a} * {a} * {a})", "0.5": _sqrt(dtype, a), "(-1.0)": f"(1.0 / {a})", "1.0": a}
    return simple.get(b) or f"libdevice.pow({a}, {b})"


def _sqrt(dtype: torch.dtype, a: str) -> str:
    return f"libdevice.sqrt({a})" if dtype is torch.float64 else f"tl.sqrt_rn({a})"


def _signbit(dtype: torch.dtype, a: str) -> str:
    return f"({a}.to({'tl.int64' if dtype is torch.float64 else 'tl.int32'}, bitcast=True) < 0)"


def _sign(dtype: torch.dtype, a: str) -> str:
    return f"(({a} > 0).to({VALUE[dtype]}) - ({a} < 0).to({VALUE[dtype]}))"


def _shift(sign: str) -> Callable[[torch.dtype, str, str], str]:
    def rule(dtype: torch.dtype, a: str, b: str) -> str:
        bits = torch.iinfo(dtype).bits
        if b.isdigit() and int(b) < bits:
            return f"({a} {sign} {b})"
        outside = f"({a} < 0).to({VALUE[dtype]}) * -1" if sign == ">>" and dtype.is_signed else f"{a} * 0"
        return f"tl.where(({b} < 0) | ({b} >= {bits}), {outside}, {a} {sign} ({b} & {bits - 1}))"
    return rule


_ANY: dict[str, Any] = {
    **{n: _binary(s) for n, s in dict(eq="==", ne="!=", lt="<", le="<=", gt=">", ge=">=").items()},
    "logical_not": _Plain("({0} == 0)"), "logical_and": _Plain("(({0} != 0) & ({1} != 0))"), "logical_or": _Plain("(({0} != 0) | ({1} != 0))"),
    "where": _call("tl.where", 3),
    **{n: _binary(s) for n, s in dict(add="+", sub="-", mul="*").items()},
}
_FLOAT: dict[str, Any] = {
    "div": _binary("/"), "neg": _Plain("(-0.0 - {0})"), "abs": _call("tl.abs"), "sqrt": _sqrt, "rsqrt": _call("tl.rsqrt"),
    "reciprocal": _Plain("(1.0 / {0})"), "fast_exp": _call("libdevice.fast_expf"), "floor": _call("tl.floor"), "ceil": _call("tl.ceil"), "trunc": _call("libdevice.trunc"),
    "round": _call("libdevice.rint"), "sigmoid": _call("tl.sigmoid"), "relu": _Plain("tl.maximum({0}, 0.0, tl.PropagateNan.ALL)"), "pow": _pow,
    **{n: _call(f"tl.{n}") for n in "exp exp2 log log2 sin cos erf".split()},
    **{n: _call(f"libdevice.{n}") for n in "expm1 log1p log10 tan asin acos atan sinh cosh tanh asinh acosh atanh erfc erfinv lgamma".split()},
    **{n: _call(f"libdevice.{n}", 2) for n in "atan2 hypot nextafter copysign fmod".split()},
    **{n: _call(n) for n in ("digamma", "one_plus_erf", "one_plus_tanh")}, "sign": _sign, "signbit": _signbit, "isnan": _Plain("({0} != {0})"),
    "isinf": _Plain('(tl.abs({0}) == float("inf"))'),
    "floordiv": _call("floor_divide", 2), "truncdiv": _Plain("libdevice.trunc({0} / {1})"), "remainder": _call("python_remainder", 2),
    "maximum": _Plain("tl.maximum({0}, {1}, tl.PropagateNan.ALL)"), "minimum": _Plain("tl.minimum({0}, {1}, tl.PropagateNan.ALL)"),
    "fmax": _call("tl.maximum", 2), "fmin": _call("tl.minimum", 2),
}
_INT: dict[str, Any] = {
    "neg": _Plain("(0 - {0})"), "abs": _call("tl.abs"), "truncdiv": _binary("//"), "fmod": _binary("%"),
    "floordiv": _call("floor_divide_int", 2), "remainder": _call("python_remainder_int", 2), "pow": _call("integer_power", 2),
    "sign": _sign, **{n: _Plain("{0}") for n in ("floor", "ceil", "trunc", "round")},
    "signbit": _Plain("({0} < 0)"), "isnan": _Plain("({0} != {0})"), "isinf": _Plain("({0} != {0})"), "bitwise_not": _Plain("(~{0})"),
    "bitwise_and": _binary("&"), "bitwise_or": _binary("|"), "bitwise_xor": _binary("^"), "shift_left": _shift("<<"), "shift_right": _shift(">>"),
    "maximum": _call("tl.maximum", 2), "minimum": _call("tl.minimum", 2), "fmax": _call("tl.maximum", 2), "fmin": _call("tl.minimum", 2),
    "relu": _Plain("tl.maximum({0}, 0)"),
}
_BOOL: dict[str, Any] = {
    "add": _binary("|"), "mul": _binary("&"), "sub": _binary("^"), "maximum": _binary("|"), "minimum": _binary("&"), "fmax": _binary("|"),
    "fmin": _binary("&"), "bitwise_not": _Plain("({0} == 0)"), "logical_not": _Plain("({0} == 0)"), "relu": _Plain("{0}"), "abs": _Plain("{0}"),
}

HELPERS = {
    "floor_divide": '''
@triton.jit
def floor_divide(a, b):
    """``torch.floor_divide`` of floats: what fmod leaves is taken off first, so that the quotient is nearly whole."""
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1.0, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient * 0.0, a / b), whole)
    return tl.where(b == 0, a / b, whole)
''',
    "python_remainder": '''
@triton.jit
def python_remainder(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "floor_divide_int": '''
@triton.jit
def floor_divide_int(a, b):
    return a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to(tl.int32)
''',
    "python_remainder_int": '''
@triton.jit
def python_remainder_int(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "integer_power": '''
@triton.jit
def integer_power(a, b):
    """By squaring; to a negative power 1 and -1 stay, anything else is 0."""
    result = a * 0 + 1
    base = a
    rest = tl.where(b < 0, b & 1, b)
    for _ in range(6):
        result = tl.where((rest & 1) != 0, result * base, result)
        base = base * base
        rest = rest >> 1
    return tl.where((b < 0) & (a != 1) & (a != -1), a * 0, result)
''',
    "digamma": '''
@triton.jit
def digamma(a):
    """Reflection for negative arguments, recurrence up to 10, then the asymptotic series."""
    pi = 3.141592653589793
    reflected = a < 0
    x = tl.where(reflected, 1.0 - a, a)
    total = x * 0.0
    for _ in range(10):
        small = x < 10.0
        total = tl.where(small, total - 1.0 / x, total)
        x = tl.where(small, x + 1.0, x)
    s = 1.0 / (x * x)
    series = s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132)))))
    total = total + tl.log(x) - 0.5 / x - series
    fraction = a - libdevice.trunc(a)
    total = tl.where(reflected, tl.where(fraction == 0, float("nan"), total - pi / libdevice.tan(pi * fraction)), total)
    return tl.where(a == 0, libdevice.copysign(a * 0.0 + float("inf"), -0.0 - a), total)
''',
    "one_plus_erf": '''
@triton.jit
def one_plus_erf(a):
    """erfc(t) is 2 to a power that is smooth in t: a polynomial, fitted on [0, 4.2] and below zero beyond."""
    t = tl.abs(a)
    p = 4.0259996e-04 - 1.3401376e-05 * t
    p = 3.3064309e-02 + t * (-4.8392593e-03 + t * p)
    p = t * (-1.6279974 + t * (-9.1751558e-01 + t * (-1.5151886e-01 + t * p)))
    tail = tl.exp2(p)
    return tl.where(a < 0, tail, 2.0 - tail)
''',
    "one_plus_tanh": '''
@triton.jit
def one_plus_tanh(a):
    return libdevice.fast_dividef(2.0, 1.0 + tl.exp2(a * -2.8853900817779268))
''',
    "random_bits": '''
@triton.jit
def random_bits(seed, position, draw: tl.constexpr):
    """Neighbours in a thread share the four words of a counter: the compiler sees that their blocks are one."""
    block = position >> 2
    low = block.to(tl.uint32)
    high = (block.to(tl.int64) >> 32).to(tl.uint32)
    a, b, c, d = tl.philox(seed, low, high, low * 0 + draw, low * 0)
    word = position & 3
    bits = tl.where(word < 2, tl.where(word == 0, a, b), tl.where(word == 2, c, d))
    return (bits >> 1).to(tl.int32)
''',
    "halves": '''
@triton.jit
def halves(pairs, kind: tl.constexpr):
    """Both halves of each integer, side by side, as float32."""
    low = pairs.to(tl.int16).to(kind, bitcast=True)
    high = (pairs >> 16).to(tl.int16).to(kind, bitcast=True)
    return tl.interleave(low, high).to(tl.float32)
''',
    "nan_max": '''
@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, tl.PropagateNan.ALL)


@triton.jit
def nan_max(v, axis: tl.constexpr):
    return tl.reduce(v, axis, _nan_max)
''',
    "nan_min": '''
@triton.jit
def _nan_min(a, b):
    return tl.minimum(a, b, tl.PropagateNan.ALL)


@triton.jit
def nan_min(v, axis: tl.constexpr):
    return tl.reduce(v, axis, _nan_min)
''',
    "product": '''
@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def product(v, axis: tl.constexpr):
    return tl.reduce(v, axis, _times)
''',
    "welford": '''
@triton.jit
def _welford_merge(mean, m2, count, other_mean, other_m2, other_count):
    total = count + other_count
    share = tl.where(total == 0, 0.0, other_count / total)
    delta = other_mean - mean
    return mean + delta * share, m2 + other_m2 + delta * delta * count * share, total


@triton.jit
def welford(mean, m2, count, axis: tl.constexpr):
    return tl.reduce((mean, m2, count), axis, _welford_merge)
''',
    "pieces": '''
@triton.jit
def pieces(x):
    """A float32 number as ``a + b / 256 + c / 65536`` of bfloat16: what rounding leaves of it is exact, and so much larger than the smallest numbers."""
    a = x.to(tl.bfloat16)
    rest = (x - a.to(tl.float32)) * 256.0
    b = rest.to(tl.bfloat16)
    return a, b, ((rest - b.to(tl.float32)) * 256.0).to(tl.bfloat16)
''',
    "product_of_pieces": '''
@triton.jit
def product_of_pieces(u1, u2, u3, v1, v2, v3):
    """Small products first; those left out are below 2**-24 of the whole."""
    s = tl.dot(u1, v3)
    s = tl.dot(u2, v2, s)
    s = tl.dot(u3, v1, s) * 0.00390625
    s = tl.dot(u1, v2, s)
    s = tl.dot(u2, v1, s) * 0.00390625
    return tl.dot(u1, v1, s)
''',
}
"""Functions of our own by name; a module holds those that its kernels call."""


def helpers(text: str) -> str:
    """Definitions of the helpers that ``text`` calls."""
    return "\n".join(HELPERS[name] for name in HELPERS if re.search(rf"(?<![\w.]){name}\(", text))
