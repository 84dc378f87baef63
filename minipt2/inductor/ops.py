"""The loop-level op set: what an ``inner_fn`` may say about one element of a loop nest.

``inner_fn(index)`` calls ``ops.load``, ``ops.add`` ... on opaque values. What a call *means* is decided by the handler
installed at that moment: record a body, count reads, print text, evaluate numbers. That is the define-by-run IR of the 2022
TorchInductor (upstream: ``torch._inductor.ops_handler`` and ``virtualized``).

Dtypes: a value carries a logical torch dtype. bfloat16 and float16 values are held and computed in float32; ``to_dtype`` and ``store``
round them. Indices are sympy expressions over loop variables; ``indirect`` turns a value into such a symbol.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import sympy
import torch

UNARY = (
    "abs neg exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma floor ceil round trunc sign signbit isnan isinf bitwise_not logical_not sigmoid relu"
).split()
BINARY = (
    "add sub mul div floordiv truncdiv fmod remainder pow atan2 maximum minimum fmax fmin eq ne lt le gt ge bitwise_and "
    "bitwise_or bitwise_xor shift_left shift_right copysign nextafter hypot logical_and logical_or"
).split()
TO_BOOL = frozenset("isnan isinf signbit logical_not logical_and logical_or eq ne lt le gt ge".split())
REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "welford")
"""Kinds for ``reduce``. ``welford`` yields (mean, m2); argmax/argmin yield int64 positions in the flattened reduction space, first wins; max/min propagate NaN."""

DTYPES = frozenset((torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int16, torch.int32, torch.int64,
                    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool))
"""What a loop can hold. Complex, quantised and 8-bit float tensors are left to eager kernels."""


class Ops:
    """Forwards every op to the handler on top of the stack. Use the module attribute ``ops``."""

    def __init__(self) -> None:
        self._stack: list[Any] = []

    @contextlib.contextmanager
    def use(self, handler: Any) -> Iterator[Any]:
        self._stack.append(handler)
        try:
            yield handler
        finally:
            self._stack.pop()

    def load(self, name: str, index: sympy.Expr) -> Any:
        return self._stack[-1].load(name, index)

    def store(self, name: str, index: sympy.Expr, value: Any, mode: str | None = None) -> None:
        """``mode``: None or ``"atomic_add"``."""
        return self._stack[-1].store(name, index, value, mode)

    def reduce(self, kind: str, value: Any, dtype: torch.dtype) -> Any:
        """Reduce ``value`` over all reduction variables; ``dtype`` is the accumulator's and result's."""
        return self._stack[-1].reduce(kind, value, dtype)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Any:
        return self._stack[-1].constant(value, dtype)

    def scalar(self, symbol: sympy.Symbol, dtype: torch.dtype) -> Any:
        """A number that is an argument of the call (int64 or float64)."""
        return self._stack[-1].scalar(symbol, dtype)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Any:
        """The number ``expr`` (an index expression) as a value."""
        return self._stack[-1].index_expr(expr, dtype)

    def indirect(self, value: Any, size: sympy.Expr, wraps: bool = True) -> sympy.Symbol:
        """Use an integer value as an index below ``size``, else IndexError; negative ones count from the end if it ``wraps``."""
        return self._stack[-1].indirect(value, size, wraps)

    def masked(self, mask: Any, body: Callable[[], Any], other: bool | int | float) -> Any:
        """``body()`` where ``mask`` holds, the number ``other`` elsewhere; loads in ``body`` happen only under the mask."""
        return self._stack[-1].masked(mask, body, other)

    def to_dtype(self, x: Any, dtype: torch.dtype) -> Any:
        return self._stack[-1].to_dtype(x, dtype)

    def bitcast(self, x: Any, dtype: torch.dtype) -> Any:
        return self._stack[-1].bitcast(x, dtype)

    def random_bits(self, seed: Any, position: Any, draw: int) -> Any:
        """31 random bits, as int32, at ``position`` of the stream ``draw`` of ``seed``: see ``prims.random``."""
        return self._stack[-1].random_bits(seed, position, draw)

    def valid(self, x: Any, ok: Any) -> Any:
        """``x``; the call fails with RuntimeError where the bool ``ok`` does not hold."""
        return self._stack[-1].valid(x, ok)

    def where(self, cond: Any, a: Any, b: Any) -> Any:
        return self._stack[-1].where(cond, a, b)

    @property
    def handler(self) -> Any:
        """The handler in force."""
        return self._stack[-1]

    @property
    def ranges(self) -> dict[sympy.Symbol, sympy.Expr]:
        """Exclusive upper bounds of the symbols in use, as far as the handler knows them; view maps simplify with them."""
        return self._stack[-1].ranges if self._stack else {}

    def note(self, origin: Any) -> None:
        """Say which node of the FX graph the following operations come from."""
        self._stack[-1].notes[origin] = None

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of ``make()``, made once per ``key`` in a recording: inlined closures are shared, not run again for each use."""
        return self._stack[-1].memo(key, make)


def _unary(name: str) -> Callable[[Ops, Any], Any]:
    return lambda self, x: self._stack[-1].unary(name, x)


def _binary(name: str) -> Callable[[Ops, Any, Any], Any]:
    return lambda self, a, b: self._stack[-1].binary(name, a, b)


for _name in UNARY:
    setattr(Ops, _name, _unary(_name))
for _name in BINARY:
    setattr(Ops, _name, _binary(_name))
ops = Ops()
