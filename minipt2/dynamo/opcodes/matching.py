"""``match`` statements."""
from __future__ import annotations

import collections.abc

from ..variables.base import ObservedException
from ..variables.builtin import binary_op
from ..variables.constant import ConstantVariable
from .registry import op


@op("MATCH_SEQUENCE")
def match_sequence(tx, instr) -> None:
    cls = tx.stack[-1].python_type()
    tx.push(ConstantVariable(issubclass(cls, collections.abc.Sequence) and not issubclass(cls, (str, bytes, bytearray))))


@op("MATCH_MAPPING")
def match_mapping(tx, instr) -> None:
    tx.push(ConstantVariable(issubclass(tx.stack[-1].python_type(), collections.abc.Mapping)))


@op("MATCH_KEYS")
def match_keys(tx, instr) -> None:
    """subject, keys -> subject, keys, tuple of values or None."""
    subject, keys = tx.stack[-2:]
    values = []
    for key in keys.iterate(tx):
        if not binary_op(tx, "contains", subject, key).truth(tx):
            return tx.push(ConstantVariable(None))
        values.append(binary_op(tx, "getitem", subject, key))
    tx.push(tx.tuple(values))


@op("MATCH_CLASS")
def match_class(tx, instr) -> None:
    """subject, class, keyword names -> tuple of attributes or None; ``arg`` patterns are positional."""
    subject, cls_var, names_var = tx.popn(3)
    cls, names = cls_var.as_python_constant(), list(names_var.as_python_constant())
    if not issubclass(subject.python_type(), cls):
        return tx.push(ConstantVariable(None))
    values = []
    if instr.arg and cls in _SELF_MATCHING:
        values.append(subject)
    elif instr.arg:
        names = [*cls.__match_args__[: instr.arg], *names]
    try:
        values += [subject.getattr(tx, name) for name in names]
    except ObservedException as error:
        if not error.matches(AttributeError):
            raise
        return tx.push(ConstantVariable(None))
    tx.push(tx.tuple(values))


_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
