"""Jumps, loops, returning and yielding."""
from __future__ import annotations

from ...exercise import exercise
from ..variables.base import ObservedException, unsupported
from ..variables.constant import ConstantVariable
from ..variables.iterators import iter_of
from .registry import op


@op("JUMP", "JUMP_NO_INTERRUPT")
def jump(tx, instr) -> None:
    tx.jump(instr.target)


@op("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def pop_jump_if(tx, instr) -> None:
    jump_if(tx, instr, instr.op == "POP_JUMP_IF_TRUE")


@exercise("1.3")
def jump_if(tx, instr, want: bool) -> None:
    """Follow the branch that the (Python) value on top decides; a tensor's value breaks the graph."""
    # >>> 1.3
    if tx.pop().truth(tx) is want:
        tx.jump(instr.target)
    # <<< 1.3


@op("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
@exercise("1.3")
def jump_if_or_pop(tx, instr) -> None:
    """As ``jump_if``, but a value that decides for the jump stays on the stack."""
    # >>> 1.3
    if tx.stack[-1].truth(tx) is (instr.op == "JUMP_IF_TRUE_OR_POP"):
        tx.jump(instr.target)
    else:
        tx.pop()
    # <<< 1.3


@op("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_none(tx, instr) -> None:
    from ..variables.builtin import binary_op

    is_none = binary_op(tx, "is_", tx.pop(), ConstantVariable(None)).as_python_constant()
    if is_none is (instr.op == "POP_JUMP_IF_NONE"):
        tx.jump(instr.target)


@op("GET_ITER")
def get_iter(tx, instr) -> None:
    tx.push(iter_of(tx, tx.pop()))


@op("FOR_ITER")
@exercise("1.3")
def for_iter(tx, instr) -> None:
    """Push the next item of the iterator on top; at its end pop it and leave the loop."""
    # >>> 1.3
    try:
        tx.push(tx.stack[-1].next(tx))
    except ObservedException as error:
        if not error.matches(StopIteration):
            raise
        tx.pop()
        tx.jump(instr.target)
    # <<< 1.3


@op("RETURN_VALUE")
def return_value(tx, instr) -> None:
    tx.returned = tx.pop()


@op("RETURN_GENERATOR")
def return_generator(tx, instr) -> None:
    """The call itself made the generator variable; its first ``next`` goes on here and pops a value."""
    tx.push(ConstantVariable(None))


@op("YIELD_VALUE")
def yield_value(tx, instr) -> None:
    tx.yielded = tx.pop()


@op("GET_YIELD_FROM_ITER")
def get_yield_from_iter(tx, instr) -> None:
    tx.push(iter_of(tx, tx.pop()))


@op("SEND")
def send(tx, instr) -> None:
    """``yield from``: pass a value to the inner iterator; at its end go on with what it returned."""
    from ..variables.generators import GeneratorVariable

    value = tx.pop()
    inner = tx.stack[-1]
    try:
        is_none = isinstance(value, ConstantVariable) and value.value is None
        if isinstance(inner, GeneratorVariable) and inner.started:
            tx.push(inner.send(tx, value))
        elif is_none:
            tx.push(inner.next(tx))
        else:
            tx.push(inner.call_method(tx, "send", [value], {}))
    except ObservedException as error:
        if not error.matches(StopIteration):
            raise
        end_of_inner(tx, instr, error)


def end_of_inner(tx, instr, error: ObservedException) -> None:
    """Go on behind ``yield from`` (``SEND`` is ``instr``) with what the inner iterator returned."""
    if instr.target.op != "END_SEND":
        tx.pop()
    tx.push(error.value.args[0] if getattr(error.value, "args", None) else ConstantVariable(None))
    tx.jump(instr.target)


@op("CLEANUP_THROW")
def cleanup_throw(tx, instr) -> None:
    """An exception thrown in at ``yield from`` (3.12): inner iterator, last sent value, exception -> None, returned value."""
    error = ObservedException(tx.pop())
    if not error.matches(StopIteration):
        raise error
    tx.popn(2)
    tx.stack += [ConstantVariable(None), error.value.getattr(tx, "value")]


@op("END_SEND")
def end_send(tx, instr) -> None:
    value = tx.pop()
    tx.pop()
    tx.push(value)


@op("CALL_INTRINSIC_1")
def call_intrinsic_1(tx, instr) -> None:
    """3.12's rarer operations; 3 turns StopIteration that leaves a generator into RuntimeError."""
    from ..variables.exceptions import ExceptionVariable

    if instr.arg != 3:
        unsupported("MP404", f"CALL_INTRINSIC_1 {instr.arg}")
    error = tx.pop()
    if issubclass(error.python_type(), StopIteration):
        error = ExceptionVariable(RuntimeError, [ConstantVariable("generator raised StopIteration")])
    tx.push(error)
