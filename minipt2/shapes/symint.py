"""``Node``: what stands behind ``torch.SymInt``, ``SymFloat`` and ``SymBool``; torch and Python call its methods as they compute with sizes.

In: arithmetic on symbolic numbers, from Python (through torch's operator methods of SymInt) and from C++ (shape rules of meta kernels).
Out: other nodes; where a plain bool or int is asked for, the environment answers and takes note of the fact. Nodes are immutable and
unique per expression, and results are remembered per pair of operands, so that asking again costs a dict lookup.
Upstream: ``torch.fx.experimental.sym_node``.
"""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Callable

import sympy
import torch

from .functions import OPAQUE
from .known import SYMBOLIC, plain
from .layouts import channels_last, contiguous, dense

if TYPE_CHECKING:
    from .env import ShapeEnv



class Node:
    """An expression with its environment. ``pytype``: int, float or bool; ``hint``: its value now, None if that depends on data."""

    __slots__ = ("_expr", "_constant", "env", "pytype", "hint", "_memo", "_seen")

    def __init__(self, expr: sympy.Basic, env: "ShapeEnv", pytype: type, hint: Any):
        self._expr, self.env, self.pytype, self.hint = expr, env, pytype, hint
        self._constant = not expr.free_symbols
        self._memo: dict[Any, Any] = {}
        self._seen = env.version

    @property
    def expr(self) -> sympy.Basic:
        """The expression, with sizes that turned out to be equal or known written as one."""
        if self._seen != self.env.version:
            self._seen, self._expr = self.env.version, self.env.replace(self._expr)
            self._constant = not self._expr.free_symbols
            if self._constant and self.hint is None:  # what depended on data turned out to be one number
                self.hint = self.env.hint(self._expr)
        return self._expr

    def like(self, expr: sympy.Basic, pytype: type) -> "Node":
        """The node of another expression in the same environment."""
        return self.env.node(expr, pytype)

    # -- kinds -----------------------------------------------------------------------------------------------------
    def is_int(self) -> bool:
        return self.pytype is int

    def is_float(self) -> bool:
        return self.pytype is float

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return not self.is_constant()

    def is_constant(self) -> bool:
        return self._constant if self._seen == self.env.version else not self.expr.free_symbols

    def has_hint(self) -> bool:
        return self.hint is not None

    @property
    def shape_env(self) -> "ShapeEnv":
        """The environment and the hint under the names by which torch's own Python meta kernels ask for them (``statically_known_true``, ``guard_or_false``)."""
        return self.env

    @property
    def _hint(self) -> Any:
        return self.hint

    def maybe_as_int(self) -> int | None:
        return int(self.expr) if self.pytype is int and self.expr.is_Integer else None

    def maybe_as_float(self) -> float | None:
        return self.hint if self.pytype is float and self.is_constant() else None

    def maybe_as_bool(self) -> bool | None:
        return self.hint if self.pytype is bool and self.is_constant() else None

    def clone(self) -> "Node":
        return self

    def str(self) -> str:
        return self.env.text(self.expr)

    _graph_repr = __str__ = __repr__ = str

    # -- other numbers ---------------------------------------------------------------------------------------------
    def wrap_int(self, num: int) -> "Node":
        return self.env.constant(num)

    def wrap_float(self, num: float) -> "Node":
        return self.env.constant(num)

    def wrap_bool(self, num: bool) -> "Node":
        return self.env.constant(num)

    # -- what decides ----------------------------------------------------------------------------------------------
    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        """The truth of a fact. It is taken note of, unless it follows from earlier ones. Raises ``UnknownSize``."""
        if self.pytype is not bool:
            return bool(self.ne(self.wrap_int(0)).guard_bool(file, line))
        return self.env.evaluate(self.expr)

    def guard_int(self, file: str = "", line: int = 0) -> int:
        """The number itself: from now on the size is that number."""
        return self.env.specialize(self)

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return self.env.specialize(self)

    int_ = guard_int
    bool_ = guard_bool

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        """A fact that the program relies on (``torch._check``)."""
        return self.env.expect(self.expr)

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        return self.env.implied(self.expr) is True

    def guard_or_false(self, file: str = "", line: int = 0) -> bool:
        """Asked by code that goes on rightly either way: a guess that later sizes prove wrong costs a copy, a guard costs a compilation."""
        return self.env.implied(self.expr) is True

    guard_size_oblivious = guard_or_false

    def guard_or_true(self, file: str = "", line: int = 0) -> bool:
        return self.env.implied(self.expr) is not False

    # -- arithmetic ------------------------------------------------------------------------------------------------
    def _do(self, op: str, *others: "Node") -> "Node":
        key = (op, *others)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self.env.apply(op, self, *others)
        return found

    def sym_sum(self, args: list["Node"]) -> "Node":
        total = args[0]
        for other in args[1:]:
            total = total.add(other)
        return total

    def sym_ite(self, then: "Node", other: "Node") -> "Node":
        return then if self.guard_bool() else other

    def is_integer(self) -> "Node":
        return self.eq(self.floor().sym_float())

    def round(self, ndigits: int | None = None) -> "Node":
        if self.pytype is int:
            return self
        return self._do("round") if ndigits is None else self._do("round_to", self.wrap_int(ndigits))

    # -- what C++ asks of sizes and strides ------------------------------------------------------------------------
    def is_contiguous(self, sizes: list, strides: list) -> "Node":
        return self._layout(contiguous, sizes, strides)

    def is_non_overlapping_and_dense(self, sizes: list, strides: list) -> "Node":
        return self._layout(dense, sizes, strides)

    def is_non_overlapping_and_dense_indicator(self, sizes: list, strides: list) -> "Node":
        return self.wrap_int(int(self._layout(dense, sizes, strides).hint))

    def is_channels_last_contiguous_2d(self, sizes: list, strides: list) -> "Node":
        return self._layout(lambda a, b: channels_last(a, b, 4, exact=True), sizes, strides)

    def is_channels_last_contiguous_3d(self, sizes: list, strides: list) -> "Node":
        return self._layout(lambda a, b: channels_last(a, b, 5, exact=True), sizes, strides)

    def is_channels_last_strides_2d(self, sizes: list, strides: list) -> "Node":
        return self._layout(lambda a, b: channels_last(a, b, 4, exact=False), sizes, strides)

    def is_channels_last_strides_3d(self, sizes: list, strides: list) -> "Node":
        return self._layout(lambda a, b: channels_last(a, b, 5, exact=False), sizes, strides)

    def _layout(self, question: Callable, sizes: list, strides: list) -> "Node":
        return self.wrap_bool(question([plain(n) for n in sizes], [plain(n) for n in strides]))


class AsWritten(Node):
    """A node whose expression stays what it was: of a fact that is checked, and that would follow from itself."""

    __slots__ = ()

    @property
    def expr(self) -> sympy.Basic:
        return self._expr

    def is_constant(self) -> bool:
        return self._constant

    def like(self, expr: sympy.Basic, pytype: type) -> Node:
        return AsWritten(expr, self.env, pytype, self.env.hint(expr))


def _method(op: str) -> Callable:
    def method(self: Node, other: Node | None = None) -> Node:
        key = (op, other)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._do(op) if other is None else self._do(op, other)
        return found

    return method


_METHODS = {
    "add": "add", "sub": "sub", "mul": "mul", "mod": "mod", "neg": "neg", "abs": "abs", "floordiv": "floordiv", "int_floordiv": "floordiv",
    "truediv": "truediv", "int_truediv": "truediv", "float_truediv": "truediv", "pow": "pow", "pow_by_natural": "pow", "float_pow": "pow",
    "sym_min": "min", "sym_max": "max", "sym_float": "float", "sym_int": "trunc", "trunc": "trunc", "floor": "floor", "ceil": "ceil",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lshift": "lshift", "rshift": "rshift", "pos": "pos",
    "and_": "and", "or_": "or", "sym_and": "and", "sym_or": "or", "sym_not": "not",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "sym_sqrt": "sqrt", **{f"sym_{name}": name for name in OPAQUE if f"{name}" in dir(math)},
}  # fmt: skip
for _name, _op in _METHODS.items():
    if not hasattr(Node, _name):
        setattr(Node, _name, _method(_op))

_OPERATORS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.mod: "mod", operator.neg: "neg", operator.pos: "pos", abs: "abs",
    operator.abs: "abs", operator.floordiv: "floordiv", operator.truediv: "truediv", operator.pow: "pow", pow: "pow", float: "float", int: "trunc",
    math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", max: "max", min: "min", torch.sym_max: "max", torch.sym_min: "min",
    torch.sym_float: "float", torch.sym_int: "trunc", torch.sym_not: "not", operator.not_: "not", operator.and_: "and", operator.or_: "or",
    operator.xor: "xor", operator.lshift: "lshift", operator.rshift: "rshift", round: "round",
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    **{getattr(math, name): name for name in OPAQUE if hasattr(math, name) and name not in ("pow",)},
}  # fmt: skip


def call(function: Callable, *args: Any) -> Any:
    """What a function of numbers (``operator.add``, ``math.sqrt``, ``max`` of two …) gives for numbers some of which are symbolic.

    Like calling it, but never decides anything, whereas Python's own ``max`` or ``math.sqrt`` would ask for the number.
    Raises KeyError for a function that has no symbolic form.
    """
    op = _OPERATORS[function]
    env = next(a.node.env for a in args if isinstance(a, SYMBOLIC))
    first, *others = [a.node if isinstance(a, SYMBOLIC) else env.constant(a) for a in args]
    return plain(first._do(op, *others))
