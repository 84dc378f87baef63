"""Operators on variables: arithmetic, comparisons, ``in``, ``is``, subscripts, formatting.

Order of answers, as in Python's own protocol: identity and membership by themselves; the left operand's ``binary``, the
right one's reflected; then folding of two constants. Upstream: ``torch/_dynamo/variables/builtin.py`` (binop handlers).
"""
from __future__ import annotations

import enum
import operator
from typing import Any

import torch

from .base import Variable, unsupported
from .constant import ConstantVariable
from .containers import const, constants, fold, observed
from .numbers import NumberVariable

INPLACE = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "truediv", "ifloordiv": "floordiv", "imod": "mod",
           "ipow": "pow", "iand": "and_", "ior": "or_", "ixor": "xor", "ilshift": "lshift", "irshift": "rshift",
           "imatmul": "matmul"}
SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and_": "&",
           "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "matmul": "@", "lt": "<", "le": "<=", "gt": ">",
           "ge": ">="}
MAX_FOLDED = 1 << 20


def binary_op(tx, op: str, a: Variable, b: Variable) -> Variable:
    """``a op b``; ``op`` is a name of the ``operator`` module. Raises Unsupported or the traced program's TypeError."""
    if op in ("is_", "is_not"):
        return const(is_same(tx, a, b) == (op == "is_"))
    if op == "contains":
        return const(contains(tx, a, b))
    if type(a) is ConstantVariable and type(b) is ConstantVariable:
        return fold_binary(op, a.value, b.value)
    if prefers_right(a, b):
        result = b.binary(tx, op, a, reverse=True)
        if result is not None:
            return result
    for left, right, reverse in ((a, b, False), (b, a, True)):
        result = left.binary(tx, op, right, reverse=reverse)
        if result is not None:
            return result
    if op in INPLACE:
        return binary_op(tx, INPLACE[op], a, b)
    known = constants(a, b)
    if known is not None:
        return fold_binary(op, *known)
    if op in ("eq", "ne"):
        return const(equal_by_identity(tx, a, b) == (op == "eq"))
    raise_or_break(op, a, b)


def prefers_right(a: Variable, b: Variable) -> bool:
    """Python asks the right operand first when its class is a proper subclass of the left one's."""
    from .lists import SizeVariable, TupleVariable
    from .user_objects import UserObjectVariable

    if isinstance(b, SizeVariable):
        return type(a) is TupleVariable
    return isinstance(b, UserObjectVariable) and isinstance(a, UserObjectVariable) and a.cls is not b.cls and issubclass(
        b.cls, a.cls)


def fold_binary(op: str, a: Any, b: Any) -> Variable:
    """Two constants; huge results (``"x" * 10**9``) are left to the real program."""
    if op in ("mul", "imul", "pow", "ipow", "lshift", "ilshift") and _too_big(op, a, b):
        unsupported("MP214", f"constant {op} with a very large result")
    return fold(getattr(operator, op), a, b)


def _too_big(op: str, a: Any, b: Any) -> bool:
    if op in ("mul", "imul"):
        lengths = [len(x) * abs(n) for x, n in ((a, b), (b, a)) if isinstance(x, (str, bytes, tuple)) and isinstance(n, int)]
        return any(n > MAX_FOLDED for n in lengths)
    return isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and abs(b) > 10_000


def raise_or_break(op: str, a: Variable, b: Variable) -> None:
    """The user's TypeError, where both operands are of kinds whose operators are all known here."""
    from .dicts import DictVariable
    from .lists import ListVariable, TupleVariable
    from .sets import SetVariable

    certain = (ConstantVariable, ListVariable, TupleVariable, DictVariable, SetVariable)
    if not isinstance(a, certain) or not isinstance(b, certain):
        unsupported("MP210", f"operator {op!r} on {a.describe()} and {b.describe()}")
    types = [v.python_type().__name__ for v in (a, b)]
    if op == "getitem":
        raise observed(TypeError, f"{types[0]!r} object is not subscriptable")
    raise observed(TypeError, f"unsupported operand type(s) for {SYMBOLS.get(op, op)}: {types[0]!r} and {types[1]!r}")


# -- identity and membership -------------------------------------------------------------------------------------------
def real_of(var: Variable) -> Any:
    """The real object behind a variable that has one with an identity (not a copy), else MISSING."""
    if var.mutable is not None:
        return MISSING if var.mutable.new else var.mutable.value
    real = getattr(var, "real", None)
    if real is not None:
        return real
    from .tensor import TensorVariable

    if isinstance(var, TensorVariable):
        return MISSING
    known = constants(var) if not getattr(var, "items", None) else None
    return MISSING if known is None else known[0]


MISSING = object()


def is_same(tx, a: Variable, b: Variable) -> bool:
    """``a is b``. Literals compare by type and value; everything else by the identity of the user's objects."""
    if a is b:
        return True
    if isinstance(a, NumberVariable) or isinstance(b, NumberVariable):  # equal numbers are the same one, as with constants below
        return a.python_type() is b.python_type() and binary_op(tx, "eq", a, b).truth(tx)
    x, y = real_of(a), real_of(b)
    if x is MISSING or y is MISSING:
        return False
    if isinstance(x, (int, float, complex, str, bytes)) and not isinstance(x, (bool, enum.Enum)):
        return type(x) is type(y) and x == y
    if isinstance(x, (tuple, torch.Size, torch.device, torch.layout, torch.memory_format)):
        return x is y or (type(x) is type(y) and not isinstance(x, tuple) and x == y)
    if x is not y and a.mutable is not None and b.mutable is not None and a.source is not None and type(x) is type(y):
        tx.output.guard(a.source, "NOT_ALIAS", b.source)
    return x is y


def equal_by_identity(tx, a: Variable, b: Variable) -> bool:
    from .user_objects import UserObjectVariable

    for var in (a, b):
        if isinstance(var, UserObjectVariable) and not var.compared_by_identity():
            unsupported("MP210", f"comparison of {a.describe()} and {b.describe()}")
    return is_same(tx, a, b)


def contains(tx, container: Variable, item: Variable) -> bool:
    """``item in container``."""
    from .containers import ContainerVariable
    from .tensor import TensorVariable
    from .user_objects import UserObjectVariable

    if isinstance(container, ContainerVariable):
        return container.contains(tx, item)
    if isinstance(container, TensorVariable):
        unsupported("MP102", "membership test in a tensor needs its data", "use torch.isin")
    if isinstance(container, UserObjectVariable):
        if container.has_method(tx, "__contains__"):
            return container.call_method(tx, "__contains__", [item], {}).truth(tx)
        from .lists import TupleVariable

        return TupleVariable(container.iterate(tx)).contains(tx, item)
    known = constants(container, item)
    if known is not None:
        return fold(operator.contains, *known).truth(tx)
    if container.python_type() in (str, bytes):
        unsupported("MP210", f"membership of {item.describe()} in {container.describe()}")
    from .lists import TupleVariable

    return TupleVariable(container.iterate(tx)).contains(tx, item)


def unary_op(tx, op: str, a: Variable) -> Variable:
    """``neg``, ``pos``, ``invert``, ``not_``, ``abs``, ``index``."""
    if op in ("not_", "truth"):
        return const(a.truth(tx) == (op == "truth"))
    from .tensor import TensorVariable

    if isinstance(a, (TensorVariable, NumberVariable)):
        return a.unary(tx, op)
    known = constants(a)
    if known is not None:
        return fold(getattr(operator, op), *known)
    from .user_objects import UserObjectVariable

    if isinstance(a, UserObjectVariable):
        return a.call_method(tx, f"__{op}__", [], {})
    raise observed(TypeError, f"bad operand type for unary {op}: {a.python_type().__name__!r}")


# -- text --------------------------------------------------------------------------------------------------------------
def format_value(tx, value: Variable, conversion: str | None = None, spec: Variable | None = None) -> Variable:
    """One ``{...}`` of an f-string: ``conversion`` is None, "str", "repr" or "ascii"."""
    if conversion is not None:
        value = text(tx, value, {"str": str, "repr": repr, "ascii": ascii}[conversion])
    form = constants(spec)[0] if spec is not None else ""
    known = constants(value)
    if known is not None:
        return fold(format, known[0], form)
    return fold(format, text(tx, value, str).as_python_constant(), form)


def text(tx, value: Variable, how=str) -> Variable:
    """``str(value)`` or ``repr(value)``; breaks where it would need tensor data or an object's address."""
    from .exceptions import ExceptionVariable
    from .user_objects import UserObjectVariable

    known = constants(value)
    if known is not None and stable_text(known[0]):
        return fold(how, known[0])
    if isinstance(value, ExceptionVariable):
        return value.getattr(tx, "__str__" if how is str else "__repr__").call(tx, [], {})
    if isinstance(value, UserObjectVariable) and (method := value.text_method(how)):
        return value.call_method(tx, method, [], {})
    unsupported("MP215", f"text of {value.describe()}", "print or format tensors and objects outside the compiled code")


def stable_text(value: Any) -> bool:
    """Whether ``str(value)`` tells no address."""
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(stable_text(v) for v in value)
    if isinstance(value, dict):
        return all(stable_text(v) for pair in value.items() for v in pair)
    return not callable(value) or isinstance(value, type)
