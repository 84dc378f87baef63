"""Operations on the expressions of sizes: one rule each, with the usual cases (symbol times integer plus integer) first.

``combine(env, op, exprs, kinds)`` gives the expression of ``op``; ``env`` decides signs of dividends, as ``FloorDiv`` and ``Mod`` are
only for those that are not negative. Upstream: ``torch.fx.experimental.sym_node`` and ``torch.utils._sympy.functions``.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Callable

import sympy

from .expr import FloorDiv, Mod
from .functions import OPAQUE, RELATION_OF, opaque
from .poly import divide, expression, multiply, poly, reduced
from .quotients import quotient_in

if TYPE_CHECKING:
    from .env import ShapeEnv

Expr = sympy.Expr
CALLS: dict[str, Callable] = {
    **{name: row.call for name, row in OPAQUE.items()}, "lshift": operator.lshift, "rshift": operator.rshift, "not": operator.not_, "pos": operator.pos,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
"""What each operation does to plain numbers."""
_FLOAT_RESULT = {"truediv", "float", *[name for name, row in OPAQUE.items() if name not in ("add", "sub", "mul", "mod", "neg", "abs", "pow", "floordiv", "max", "min") and row.pytype is float]}
_INT_RESULT = {"floor", "ceil", "trunc", "round", "lshift", "rshift"}
_BOOL_RESULT = {*RELATION_OF, "not"}


def result_type(op: str, kinds: list[type]) -> type:
    if op in _BOOL_RESULT or op in ("and", "or") and kinds[0] is bool:
        return bool
    if op in _INT_RESULT:
        return int
    return float if op in _FLOAT_RESULT or float in kinds else int


def combine(env: "ShapeEnv", op: str, args: list[Any], kinds: list[type]) -> sympy.Basic:
    """The expression of ``op`` on expressions of the given Python types."""
    if op in RELATION_OF:
        return RELATION_OF[op](*args, evaluate=False)
    if op == "pos" or op in ("floor", "ceil", "trunc") and kinds[0] is int or op == "float" and kinds[0] is float:
        return args[0]
    if kinds[0] is bool and op in _LOGIC:
        return _LOGIC[op](*args, evaluate=False)
    args = [_number(a) if k is bool else a for a, k in zip(args, kinds)]
    if float in kinds or op in _FLOAT_RESULT:
        return _of_floats(env, op, args, kinds)
    rule = _RULES.get(op)
    return rule(env, *args) if rule is not None else OPAQUE[op].symbol(*args)


_LOGIC = {"and": sympy.And, "or": sympy.Or, "not": sympy.Not}


def _number(truth: sympy.Basic) -> Expr:
    return OPAQUE["truth"].symbol(truth)


# -- integers ------------------------------------------------------------------------------------------------------
def _floordiv(env: "ShapeEnv", a: Expr, b: Expr) -> Expr:
    p, q = poly(a), poly(b)
    exact = divide(p, q)
    if exact is not None:
        return expression(exact)
    p, q, factor = reduced(p, q)
    if factor != {(): 1}:
        return _floordiv(env, expression(p), expression(q))
    if env.evaluate(sympy.Lt(b, 0, evaluate=False)):
        return _floordiv(env, -a, -b)
    if not env.evaluate(sympy.Ge(a, 0, evaluate=False)):
        return -_floordiv(env, b - 1 - a, b)
    quotient = _tidy_quotient(env, a, b)
    return FloorDiv(a, b) if quotient is None else quotient


def _tidy_quotient(env: "ShapeEnv", a: Expr, b: Expr) -> Expr | None:
    """``a // b`` for a >= 0 and b > 0 as knowledge simplifies it; None where it does not, or would need numbers that nobody else knows."""
    image = expression(quotient_in(env.facts, env.facts.image(poly(a)), env.facts.image(poly(b))))
    if image.has(sympy.Dummy) or any(env.facts.bounds(poly(d.args[0]))[0] < 0 for d in image.atoms(FloorDiv)):
        return None
    return image


def _mod(env: "ShapeEnv", a: Expr, b: Expr) -> Expr:
    if divide(poly(a), poly(b)) is not None:
        return sympy.S.Zero
    p, q, factor = reduced(poly(a), poly(b))
    if factor != {(): 1}:
        return expression(multiply(poly(_mod(env, expression(p), expression(q))), factor))
    if env.evaluate(sympy.Lt(b, 0, evaluate=False)):
        return -_mod(env, -a, -b)
    if not env.evaluate(sympy.Ge(a, 0, evaluate=False)):
        return b - 1 - _mod(env, -a - 1, b)
    known = env.facts.value(poly(Mod(a, b)))
    if known is not None:
        return sympy.Integer(known)
    return a if env.implied(sympy.Lt(a, b, evaluate=False)) else Mod(a, b)


def _extreme(kind: type) -> Callable:
    def rule(env: "ShapeEnv", a: Expr, b: Expr) -> Expr:
        larger = env.implied(sympy.Ge(a, b, evaluate=False))
        if larger is None and env.implied(sympy.Le(a, b, evaluate=False)):
            larger = False
        if larger is not None:
            return a if larger == (kind is sympy.Max) else b
        return kind(a, b, evaluate=False)

    return rule


def _pow(env: "ShapeEnv", a: Expr, b: Expr) -> Expr:
    return a**b if b.is_Integer and b >= 0 else sympy.Pow(a, b, evaluate=False)


_RULES: dict[str, Callable] = {
    "add": lambda env, a, b: a + b, "sub": lambda env, a, b: a - b, "mul": lambda env, a, b: a * b, "neg": lambda env, a: -a,
    "floordiv": _floordiv, "mod": _mod, "max": _extreme(sympy.Max), "min": _extreme(sympy.Min), "pow": _pow,
    "abs": lambda env, a: _extreme(sympy.Max)(env, a, -a),
    "lshift": lambda env, a, b: a * _pow(env, sympy.Integer(2), b), "rshift": lambda env, a, b: _floordiv(env, a, _pow(env, sympy.Integer(2), b)),
}  # fmt: skip


# -- floats --------------------------------------------------------------------------------------------------------
def _of_floats(env: "ShapeEnv", op: str, args: list[Expr], kinds: list[type]) -> Expr:
    if op in ("floor", "ceil", "trunc"):
        exact = _rounded(env, op, args[0])
        if exact is not None:
            return exact
    return OPAQUE[op].symbol(*args)


def _rounded(env: "ShapeEnv", op: str, e: Expr) -> Expr | None:
    """``floor(a / b)`` and the like of integers as integer division; for factors that are fractions of powers of two as well.

    Exact as long as the integers are below 2**53, as sizes are: the rounded quotient then never reaches the next integer.
    """
    ratio = _ratio(e)
    if ratio is None:
        return None
    a, b = ratio
    if op == "ceil" or op == "trunc" and not env.evaluate(sympy.Ge(a, 0, evaluate=False)):
        return -_floordiv(env, -a, b)
    return _floordiv(env, a, b)


def _ratio(e: Expr) -> tuple[Expr, Expr] | None:
    row = opaque(e)
    if row is None:
        return None
    if row is OPAQUE["float"]:
        return e.args[0], sympy.S.One
    if row is OPAQUE["truediv"]:
        a, b = (_integer(x) for x in e.args)
        return (a, b) if a is not None and b is not None and b.is_Integer and b > 0 else None
    if row is OPAQUE["mul"]:
        whole = next((_integer(x) for x in e.args if _integer(x) is not None), None)
        factor = next((x for x in e.args if x.is_Float), None)
        if whole is not None and factor is not None:
            top, bottom = float(factor).as_integer_ratio()
            return (whole * top, sympy.Integer(bottom)) if abs(top) < 2**20 and bottom < 2**20 else None
    return None


def _integer(e: Expr) -> Expr | None:
    """The integer that a float is made of."""
    if opaque(e) is OPAQUE["float"]:
        return e.args[0]
    if e.is_Float and float(e).is_integer():
        return sympy.Integer(int(e))
    return e if e.is_Integer or not e.is_Float and opaque(e) is None and e.is_integer else None
