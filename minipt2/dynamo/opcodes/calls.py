"""Calls and the making of functions."""
from __future__ import annotations

from ..variables.base import Variable
from ..variables.functions import NestedFunctionVariable
from ..variables.iterators import items_of
from .registry import op


def _callee(tx) -> tuple[Variable, list[Variable]]:
    """The two cells below the arguments: NULL and a callable, or a method and its ``self``."""
    from ..translator import NULL

    first, second = tx.popn(2)
    if first is NULL:
        return second, []
    return first, [] if second is NULL else [second]


@op("CALL")
def call(tx, instr) -> None:
    args = tx.popn(instr.arg)
    fn, owner = _callee(tx)
    tx.push(fn.call(tx, owner + args, {}))


@op("CALL_KW")
def call_kw(tx, instr) -> None:
    n, names = instr.arg
    args = tx.popn(n)
    fn, owner = _callee(tx)
    split = n - len(names)
    tx.push(fn.call(tx, owner + args[:split], dict(zip(names, args[split:]))))


@op("CALL_FUNCTION_EX")
def call_function_ex(tx, instr) -> None:
    from ..variables.dicts import pairs_of

    kwargs = {}
    if instr.arg & 1:
        kwargs = {key.as_python_constant(): value for key, value in pairs_of(tx, tx.pop())}
    args = items_of(tx, tx.pop())
    fn, owner = _callee(tx)
    tx.push(fn.call(tx, owner + args, kwargs))


@op("MAKE_FUNCTION")
def make_function(tx, instr) -> None:
    from ..variables.dicts import pairs_of

    flags = instr.arg or 0
    code = tx.pop().as_python_constant()
    closure = tx.pop().iterate(tx) if flags & 8 else []
    annotations = tx.pop() if flags & 4 else None
    kwdefaults = {k.as_python_constant(): v for k, v in pairs_of(tx, tx.pop())} if flags & 2 else None
    defaults = tx.pop().iterate(tx) if flags & 1 else None
    fn = NestedFunctionVariable(code, tx.f_globals, defaults, kwdefaults, closure, annotations)
    tx.push(tx.output.side_effects.track_new(fn))
