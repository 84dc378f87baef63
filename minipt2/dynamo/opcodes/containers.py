"""Building, extending and unpacking tuples, lists, sets, dicts and slices."""
from __future__ import annotations

from ..variables.exceptions import observed
from ..variables.iterators import items_of
from .registry import op


@op("BUILD_TUPLE")
def build_tuple(tx, instr) -> None:
    tx.push(tx.tuple(tx.popn(instr.arg)))


@op("BUILD_LIST")
def build_list(tx, instr) -> None:
    tx.push(tx.list(tx.popn(instr.arg)))


@op("BUILD_SET")
def build_set(tx, instr) -> None:
    tx.push(new_set(tx, tx.popn(instr.arg)))


def new_set(tx, items):
    from ..variables.sets import SetVariable

    return tx.output.side_effects.track_new(SetVariable.from_items(tx, items))


@op("BUILD_MAP")
def build_map(tx, instr) -> None:
    flat = tx.popn(2 * instr.arg)
    tx.push(tx.dict(zip(flat[::2], flat[1::2])))


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(tx, instr) -> None:
    keys = tx.pop().as_python_constant()
    tx.push(tx.dict(zip(map(tx.wrap_constant, keys), tx.popn(instr.arg))))


@op("BUILD_SLICE")
def build_slice(tx, instr) -> None:
    from ..variables.lists import SliceVariable

    tx.push(SliceVariable(tx.popn(instr.arg)))


@op("LIST_APPEND")
def list_append(tx, instr) -> None:
    value = tx.pop()
    tx.stack[-instr.arg].call_method(tx, "append", [value], {})


@op("SET_ADD")
def set_add(tx, instr) -> None:
    value = tx.pop()
    tx.stack[-instr.arg].call_method(tx, "add", [value], {})


@op("MAP_ADD")
def map_add(tx, instr) -> None:
    key, value = tx.popn(2)
    tx.stack[-instr.arg].call_method(tx, "__setitem__", [key, value], {})


@op("LIST_EXTEND")
def list_extend(tx, instr) -> None:
    value = tx.pop()
    tx.stack[-instr.arg].call_method(tx, "extend", [value], {})


@op("SET_UPDATE")
def set_update(tx, instr) -> None:
    value = tx.pop()
    tx.stack[-instr.arg].call_method(tx, "update", [value], {})


@op("DICT_UPDATE", "DICT_MERGE")
def dict_update(tx, instr) -> None:
    value = tx.pop()
    target = tx.stack[-instr.arg]
    if instr.op == "DICT_MERGE":
        _no_duplicates(tx, target, value)
    target.call_method(tx, "update", [value], {})


def _no_duplicates(tx, target, value) -> None:
    """``f(**a, **b)`` with a key in both is a TypeError."""
    from ..variables.dicts import pairs_of

    have = {key.as_python_constant() for key, _ in pairs_of(tx, target)}
    for key, _ in pairs_of(tx, value):
        if key.as_python_constant() in have:
            raise observed(TypeError, f"got multiple values for keyword argument {key.as_python_constant()!r}")


@op("LIST_TO_TUPLE")
def list_to_tuple(tx, instr) -> None:
    tx.push(tx.tuple(tx.pop().iterate(tx)))


@op("UNPACK_SEQUENCE")
def unpack_sequence(tx, instr) -> None:
    items = items_of(tx, tx.pop())
    if len(items) != instr.arg:
        many = "too many values to unpack (expected {})" if len(items) > instr.arg else "not enough values to unpack (expected {}, got {})"
        raise observed(ValueError, many.format(instr.arg, len(items)))
    tx.stack.extend(reversed(items))


@op("UNPACK_EX")
def unpack_ex(tx, instr) -> None:
    before, after = instr.arg & 0xFF, instr.arg >> 8
    items = items_of(tx, tx.pop())
    if len(items) < before + after:
        raise observed(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    end = len(items) - after
    tx.stack.extend(reversed([*items[:before], tx.list(items[before:end]), *items[end:]]))


@op("GET_LEN")
def get_len(tx, instr) -> None:
    tx.push(tx.constant(tx.stack[-1].length(tx)))
