"""Raising, catching, and ``with`` blocks."""
from __future__ import annotations

from ..variables.base import ObservedException, Variable
from ..variables.constant import ConstantVariable
from ..variables.exceptions import observed
from .registry import op


def _instance(tx, value: Variable) -> Variable:
    """``raise Class`` means ``raise Class()``."""
    from ..variables.exceptions import ExceptionVariable

    if isinstance(value, ExceptionVariable):
        return value
    try:
        is_class = issubclass(value.python_type(), type)
    except TypeError:
        is_class = False
    if not is_class:
        if issubclass(value.python_type(), BaseException):
            return value
        raise observed(TypeError, "exceptions must derive from BaseException")
    return value.call(tx, [], {})


@op("RAISE_VARARGS")
def raise_varargs(tx, instr) -> None:
    if instr.arg == 0:
        handled = tx.being_handled()
        raise observed(RuntimeError, "No active exception to reraise") if handled is None else ObservedException(handled)
    cause = tx.pop() if instr.arg == 2 else None
    error = _instance(tx, tx.pop())
    if cause is not None:
        is_none = isinstance(cause, ConstantVariable) and cause.value is None
        error.setattr(tx, "__cause__", cause if is_none else _instance(tx, cause))
    raise ObservedException(error)


@op("RERAISE")
def reraise(tx, instr) -> None:
    raise ObservedException(tx.pop())


@op("PUSH_EXC_INFO")
def push_exc_info(tx, instr) -> None:
    from ..translator import Raised

    error = tx.pop()
    previous = tx.handled[-1].value if tx.handled else ConstantVariable(None)
    tx.stack += [previous, error]
    tx.handled.append(Raised(error, tx.raise_step))


@op("POP_EXCEPT")
def pop_except(tx, instr) -> None:
    tx.pop()
    tx.handled.pop()


@op("CHECK_EXC_MATCH")
def check_exc_match(tx, instr) -> None:
    wanted = tx.pop()
    types = _classes(tx, wanted)
    tx.push(ConstantVariable(issubclass(tx.stack[-1].python_type(), types)))


def _classes(tx, wanted: Variable) -> tuple[type, ...]:
    value = wanted.as_python_constant()
    types = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(t, type) and issubclass(t, BaseException) for t in types):
        raise observed(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return types


@op("BEFORE_WITH")
def before_with(tx, instr) -> None:
    tx.stack += tx.pop().enter_context(tx)


@op("WITH_EXCEPT_START")
def with_except_start(tx, instr) -> None:
    """exit, lasti, previous, exception -> the same and ``exit(type, exception, traceback)``."""
    exit_method, error = tx.stack[-4], tx.stack[-1]
    cls = tx.wrap_constant(error.python_type())
    tx.push(exit_method.call(tx, [cls, error, ConstantVariable(None)], {}))
