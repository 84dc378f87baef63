"""The loop-level ops as C expressions: safe for NaN and infinity, and vectorised by gcc without ``-ffast-math``.

Python's meaning of ``//`` and ``%``, rounding to even, wrapping integers. Comparisons instead of ``fmaxf``, which stays scalar
while NaNs count. Upstream: ``torch._inductor.codegen.cpp.CppOverrides``.
"""
from __future__ import annotations

import math
from typing import Callable

import torch

from ...exercise import exercise

STORAGE = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "uint16_t", torch.float16: "uint16_t",
           torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int32_t", torch.int64: "int64_t", torch.uint8: "uint8_t",
           torch.uint16: "uint16_t", torch.uint32: "uint32_t", torch.uint64: "uint64_t", torch.bool: "uint8_t"}
"""How an element lies in memory."""
VALUE = {**STORAGE, torch.bfloat16: "float", torch.float16: "float", torch.bool: "_Bool"}
"""How it is held while computing."""
HALF = {torch.bfloat16: "bf16", torch.float16: "fp16"}
NEEDS_NONZERO = frozenset(("floordiv", "truncdiv", "fmod", "remainder"))
"""Integer ops whose divisor must be checked."""


def is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


@exercise("6.2")
def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number as a C constant of ``dtype``'s value type."""
    # >>> 6.2
    if dtype is torch.bool:
        return str(int(bool(value)))
    if not is_float(dtype):
        return _integer(int(value), dtype)
    double = dtype is torch.float64
    x = float(value)
    if not double:
        x = torch.tensor(x, dtype=torch.float32).item()
    if math.isnan(x):
        return '__builtin_nan("")' if double else '__builtin_nanf("")'
    if math.isinf(x):
        return ("-" if x < 0 else "") + ("__builtin_inf()" if double else "__builtin_inff()")
    return repr(x) if double else repr(x) + "f"
    # <<< 6.2


def _integer(value: int, dtype: torch.dtype) -> str:
    info = torch.iinfo(dtype)
    if value == info.min and info.min < 0 and info.bits >= 32:
        return f"(-{-(value + 1)}{'LL' if info.bits == 64 else ''} - 1)"
    suffix = ("ULL" if dtype is torch.uint64 else "LL") if info.bits == 64 else ("U" if dtype is torch.uint32 else "")
    return f"{value}{suffix}"


def load(text: str, dtype: torch.dtype) -> str:
    """The value of an element in memory."""
    return f"{HALF[dtype]}_load({text})" if dtype in HALF else text


def store(text: str, dtype: torch.dtype) -> str:
    """What to put in memory for a value, rounded to nearest even."""
    return f"{HALF[dtype]}_store({text})" if dtype in HALF else text


class C:
    """C expressions for ops on values of one dtype. ``C(dtype).op(name, *args)``; arguments are names or parenthesised text."""

    def __init__(self, dtype: torch.dtype):
        self.dtype, self.ctype = dtype, VALUE[dtype]
        self.float = is_float(dtype)
        self.f = "" if dtype is torch.float64 or not self.float else "f"

    def op(self, name: str, *args: str) -> str:
        """Expression for ``name`` of the op set; the result has the op's dtype. KeyError for an op that does not exist."""
        rule = (_FLOAT if self.float else _INT).get(name) or _ANY[name]
        return rule(self, *args)

    def wrap(self, expr: str) -> str:
        """Integer arithmetic wraps around and keeps its width."""
        return f"({self.ctype})({expr})"

    def unsigned(self, a: str, op: str, b: str) -> str:
        if self.dtype is torch.bool:
            return f"({a} {'&' if op == '*' else '|'} {b})"
        u = "uint64_t" if "64" in self.ctype else "uint32_t"
        return f"({self.ctype})(({u}){a} {op} ({u}){b})"


@exercise("6.2")
def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """Conversion as ``Tensor.to``: to bool by ``!= 0``, to integers towards zero, to a half type by rounding."""
    # >>> 6.2
    if target is torch.bool:
        return f"({text} != 0)"
    if target in HALF:
        value = text if VALUE[source] == "float" else f"(float){text}"
        return value if source is target else f"{HALF[target]}_load({HALF[target]}_store({value}))"
    if VALUE[source] == VALUE[target]:
        return text
    if is_float(source) and target in (torch.uint8, torch.int8, torch.int16, torch.uint16):
        return f"({VALUE[target]})(int32_t){text}"
    return f"({VALUE[target]}){text}"
    # <<< 6.2


def _call(fn: str) -> Callable[..., str]:
    return lambda c, *a: f"{fn}{c.f}({', '.join(a)})"


def _compare(sign: str) -> Callable[[C, str, str], str]:
    return lambda c, a, b: f"({a} {sign} {b})"


def _pow(c: C, a: str, b: str) -> str:
    simple = {"2.0f": f"({a} * {a})", "3.0f": f"({a} * {a} * {a})", "0.5f": f"sqrt{c.f}({a})", "-1.0f": f"(1 / {a})", "1.0f": a}
    return simple.get(b if b.endswith("f") else b + "f") or f"pow{c.f}({a}, {b})"


@exercise("6.2")
def _maximum(c: C, a: str, b: str) -> str:
    """The larger one, or NaN if one of both is."""
    # >>> 6.2
    return f"({a} > {b} || {a} != {a} ? {a} : {b})"
    # <<< 6.2


@exercise("6.2")
def _relu(c: C, a: str) -> str:
    """0 for what is below it; NaN stays."""
    # >>> 6.2
    return f"({a} < 0 ? 0 : {a})"
    # <<< 6.2


_ANY: dict[str, Callable[..., str]] = {
    "eq": _compare("=="), "ne": _compare("!="), "lt": _compare("<"), "le": _compare("<="), "gt": _compare(">"), "ge": _compare(">="),
    "logical_not": lambda c, a: f"({a} == 0)", "logical_and": lambda c, a, b: f"(({a} != 0) & ({b} != 0))",
    "logical_or": lambda c, a, b: f"(({a} != 0) | ({b} != 0))", "logical_xor": lambda c, a, b: f"(({a} != 0) ^ ({b} != 0))",
    "where": lambda c, m, a, b: f"({m} ? {a} : {b})", "relu": _relu,
}

_FLOAT: dict[str, Callable[..., str]] = {
    "add": lambda c, a, b: f"({a} + {b})", "sub": lambda c, a, b: f"({a} - {b})", "mul": lambda c, a, b: f"({a} * {b})",
    "div": lambda c, a, b: f"({a} / {b})", "neg": lambda c, a: f"(-{a})", "abs": _call("__builtin_fabs"), "sqrt": _call("__builtin_sqrt"),
    "rsqrt": lambda c, a: f"(1 / __builtin_sqrt{c.f}({a}))", "reciprocal": lambda c, a: f"(1 / {a})",
    "floor": _call("__builtin_floor"), "ceil": _call("__builtin_ceil"), "trunc": _call("__builtin_trunc"), "round": _call("__builtin_rint"),
    "exp": _call("mp_exp"), "sigmoid": _call("mp_sigmoid"), "tanh": _call("mp_tanh"), "erf": _call("mp_erf"), "erfinv": _call("mp_erfinv"),
    "digamma": _call("mp_digamma"), "pow": _pow,
    **{n: _call(n) for n in "exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh asinh acosh atanh erfc lgamma "
                            "atan2 hypot nextafter fmod".split()},
    "sign": lambda c, a: f"(({c.ctype})({a} > 0) - ({c.ctype})({a} < 0))", "signbit": lambda c, a: f"(__builtin_signbit({a}) != 0)",
    "isnan": lambda c, a: f"({a} != {a})", "isinf": lambda c, a: f"(__builtin_fabs{c.f}({a}) == __builtin_inf{c.f}())",
    "isfinite": lambda c, a: f"(__builtin_fabs{c.f}({a}) < __builtin_inf{c.f}())",
    "copysign": _call("__builtin_copysign"), "floordiv": _call("mp_floordiv"), "truncdiv": lambda c, a, b: f"__builtin_trunc{c.f}({a} / {b})",
    "remainder": _call("mp_remainder"),
    # NaN-propagating, in forms that become vector compares and blends
    "maximum": _maximum, "minimum": lambda c, a, b: f"({a} < {b} || {a} != {a} ? {a} : {b})",
    "fmax": lambda c, a, b: f"({a} > {b} || {b} != {b} ? {a} : {b})", "fmin": lambda c, a, b: f"({a} < {b} || {b} != {b} ? {a} : {b})",
}

_INT: dict[str, Callable[..., str]] = {
    "add": lambda c, a, b: c.unsigned(a, "+", b), "sub": lambda c, a, b: c.unsigned(a, "-", b), "mul": lambda c, a, b: c.unsigned(a, "*", b),
    "neg": lambda c, a: c.unsigned("0", "-", a), "abs": lambda c, a: c.wrap(f"{a} < 0 ? 0u - ({'uint64_t' if '64' in c.ctype else 'uint32_t'}){a} : {a}"),
    "floordiv": lambda c, a, b: c.wrap(f"mp_floordiv_i({a}, {b})"), "truncdiv": lambda c, a, b: c.wrap(f"mp_truncdiv_i({a}, {b})"),
    "fmod": lambda c, a, b: c.wrap(f"mp_fmod_i({a}, {b})"), "remainder": lambda c, a, b: c.wrap(f"mp_remainder_i({a}, {b})"),
    "pow": lambda c, a, b: c.wrap(f"mp_pow_i({a}, {b})"), "sign": lambda c, a: c.wrap(f"({a} > 0) - ({a} < 0)"),
    **{n: (lambda c, a: a) for n in ("floor", "ceil", "trunc", "round")},
    "signbit": lambda c, a: f"({a} < 0)", "isnan": lambda c, a: "0", "isinf": lambda c, a: "0", "isfinite": lambda c, a: "1",
    "bitwise_not": lambda c, a: f"(!{a})" if c.dtype is torch.bool else c.wrap(f"~{a}"),
    "bitwise_and": lambda c, a, b: f"({a} & {b})", "bitwise_or": lambda c, a, b: f"({a} | {b})", "bitwise_xor": lambda c, a, b: f"({a} ^ {b})",
    "shift_left": lambda c, a, b: c.wrap(f"mp_shl({a}, {b}, {_bits(c)})"), "shift_right": lambda c, a, b: c.wrap(f"mp_shr({a}, {b}, {_bits(c)})"),
    "maximum": lambda c, a, b: f"({a} > {b} ? {a} : {b})", "minimum": lambda c, a, b: f"({a} < {b} ? {a} : {b})",
    "fmax": lambda c, a, b: f"({a} > {b} ? {a} : {b})", "fmin": lambda c, a, b: f"({a} < {b} ? {a} : {b})",
}


def _bits(c: C) -> int:
    return 8 if c.dtype is torch.bool else torch.iinfo(c.dtype).bits

