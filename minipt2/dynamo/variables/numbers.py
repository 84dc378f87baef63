"""Numbers that are not known while tracing: sizes of inputs, ints and floats that vary, and what is computed from them.

Arithmetic and comparisons are done on ``torch.SymInt`` and its kin, whose node is ``minipt2.shapes``'s; a comparison stays open until
something needs its truth, which then is a guard. Whatever needs the number itself (a list index, a dict key, a string, a loop bound)
gets it, and the guard that it stays this one. Upstream: ``torch/_dynamo/variables/tensor.py`` (``SymNodeVariable``).
"""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Callable

import torch

from ... import shapes
from ..assumptions import expected_truth
from .base import NotConstant, Variable, open_questions, unsupported
from .constant import ConstantVariable
from .containers import BINARY_DUNDERS, BoundMethodVariable, fold

if TYPE_CHECKING:
    from ..emit import Emitter
    from ..translator import Translator

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
KINDS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
COMPARISONS = frozenset("lt le gt ge eq ne".split())
DIVISIONS = frozenset("truediv floordiv mod".split())
ARITHMETIC = frozenset("add sub mul pow".split()) | DIVISIONS | COMPARISONS
UNARY: dict[str, Callable] = {"neg": operator.neg, "pos": operator.pos, "abs": abs, "index": int, "int": int, "float": float, "floor": math.floor,
                              "ceil": math.ceil, "trunc": math.trunc, "round": round}  # fmt: skip
"""Special methods without arguments, by name, and the function that calls each."""


class NumberVariable(Variable):
    """``value`` is a SymInt, SymFloat or SymBool; with a ``source`` it is the number found there."""

    def __init__(self, value: Any, source: Any = None):
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return KINDS[type(self.value)]

    def describe(self) -> str:
        return f"number {self.value}"

    __repr__ = describe

    # -- as a Python value -----------------------------------------------------------------------------------------
    def is_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        """The number, guarded to stay it; asking whether there is one (``is_constant`` of something that holds this) changes nothing."""
        if open_questions:
            if open_questions[-1] is None or self.value.node.hint is None:
                raise NotConstant(self.describe())
            open_questions[-1].append(self)
            return self.value.node.hint
        return self.fix()

    def fix(self) -> Any:
        """The number; any other one is another compilation."""
        return self.python_type()(self.value)

    def as_proxy(self) -> Any:
        return bool(self.value) if isinstance(self.value, torch.SymBool) and not depends_on_data(self.value) else self.value

    def truth(self, tx: "Translator") -> bool:
        fact = self.value if isinstance(self.value, torch.SymBool) else self.value != 0
        try:
            return bool(fact)
        except shapes.UnknownSize as error:
            expected = expected_truth(tx)
            if expected is not None:
                tx.output.assume_fact(fact if expected else torch.sym_not(fact))
                return expected
            unsupported("MP101", f"a branch on {error.fact}, which depends on a tensor's data")

    def fixed(self) -> ConstantVariable:
        return ConstantVariable(self.fix())

    # -- operators -------------------------------------------------------------------------------------------------
    def binary(self, tx, op: str, other: Variable, reverse: bool = False) -> Variable | None:
        if isinstance(other, NumberVariable):
            value = other.value
        elif not isinstance(other, ConstantVariable):
            return None
        elif isinstance(other.value, (int, float)):
            value = other.value
        else:
            return ConstantVariable(op == "ne") if op in ("eq", "ne") else None
        if op not in ARITHMETIC:
            return None
        a, b = (value, self.value) if reverse else (self.value, value)
        if op in DIVISIONS and not b != 0:
            return None  # folding the numbers raises the user's ZeroDivisionError
        return computed(tx, getattr(operator, op), a, b)

    def unary(self, tx, op: str) -> Variable:
        from .operators import unary_op

        return op in UNARY and computed(tx, UNARY[op], self.value) or unary_op(tx, op, self.fixed())

    # -- attributes and methods ------------------------------------------------------------------------------------
    def getattr(self, tx, name: str) -> Variable:
        if hasattr(self.python_type(), name) and callable(getattr(self.python_type(), name)):
            return BoundMethodVariable(self, name)
        return self.fixed().getattr(tx, name)

    def call_method(self, tx, name, args, kwargs) -> Variable:
        from .operators import binary_op

        if name in BINARY_DUNDERS and len(args) == 1:
            return binary_op(tx, BINARY_DUNDERS[name], self, args[0])
        if (op := name.strip("_")) in UNARY and not args and not kwargs:
            return self.unary(tx, op)
        return self.fixed().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: "Emitter") -> None:
        if isinstance(self.value, torch.SymBool) and not depends_on_data(self.value):
            return cg.load_const(bool(self.value))
        cg.number(self.value)


def depends_on_data(value: Any) -> bool:
    """Whether nothing that the frame is called with tells a symbolic number: the graph computes it."""
    env = value.node.env
    return not all(env.sources[s] for s in value.node.expr.free_symbols)


def is_open(fact: torch.SymBool) -> bool:
    """Whether a fact depends on data and follows from nothing known."""
    return fact.node.hint is None and fact.node.env.implied(fact.node.expr) is None


def computed(tx, function: Callable, *values: Any) -> Variable | None:
    """What a function of Python numbers gives, some of them symbolic; None where that has no symbolic form."""
    values = [int(v) if isinstance(v, (bool, torch.SymBool)) else v for v in values]  # truth values count as numbers
    if not any(isinstance(v, SYMBOLIC) for v in values):
        return fold(function, *values)
    try:
        return tx.wrap_constant(shapes.call(function, *values))
    except KeyError:
        return None


def numbers(*variables: Variable) -> list[Any] | None:
    """The values of variables that are numbers, symbolic or not; None if one is something else."""
    values = [v.value if isinstance(v, (NumberVariable, ConstantVariable)) else None for v in variables]
    return values if all(isinstance(v, (int, float, *SYMBOLIC)) for v in values) else None
