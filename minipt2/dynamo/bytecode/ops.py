"""Factories for new code: each returns a list of canonical instructions, right on every CPython that minipt2 supports.

    code = [*ops.callable(ops.load_global("print")), *ops.load_const("hello"), *ops.call(1), *ops.return_value()]

A stack comment ``a, b -> c`` reads with the top of the stack at the right.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence

from .decode import DIALECT
from .instructions import Handler, Instruction, Position

Code = list[Instruction]


def _op(name: str, arg: Any = None, flag: int = 0) -> Code:
    return [Instruction(name, arg, flag=flag)]


def _jump(name: str, target: Instruction) -> Code:
    return [Instruction(name, target=target)]


# ---- variables ---------------------------------------------------------------------------------------------------


def load_fast(name: str) -> Code:
    """-> value. From 3.12 on the variable must be bound; see ``load_fast_check``."""
    return _op("LOAD_FAST", name)


def load_fast_check(name: str) -> Code:
    """-> value; raises ``UnboundLocalError`` when it isn't bound."""
    return _op("LOAD_FAST" if DIALECT.version < (3, 12) else "LOAD_FAST_CHECK", name)


def store_fast(name: str) -> Code:
    return _op("STORE_FAST", name)


def delete_fast(name: str) -> Code:
    return _op("DELETE_FAST", name)


def load_const(value: Any) -> Code:
    return _op("LOAD_CONST", value)


def load_global(name: str, push_null: bool = False) -> Code:
    """-> value; with ``push_null`` -> what ``call`` wants for a callable."""
    return _op("LOAD_GLOBAL", name, int(push_null))


def store_global(name: str) -> Code:
    return _op("STORE_GLOBAL", name)


def delete_global(name: str) -> Code:
    return _op("DELETE_GLOBAL", name)


def load_deref(name: str) -> Code:
    """-> what the cell of a cell or free variable holds."""
    return _op("LOAD_DEREF", name)


def store_deref(name: str) -> Code:
    return _op("STORE_DEREF", name)


def load_closure(name: str) -> Code:
    """-> the cell itself."""
    return _op("LOAD_CLOSURE", name)


def make_cell(name: str) -> Code:
    return _op("MAKE_CELL", name)


def prologue(cellvars: Sequence[str] = (), freevars: Sequence[str] = ()) -> Code:
    """What a function's code begins with: its closure, its cells, ``RESUME``."""
    closure = _op("COPY_FREE_VARS", len(freevars)) if freevars else []
    return [*closure, *(i for name in cellvars for i in make_cell(name)), *_op("RESUME", 0)]


# ---- the stack ---------------------------------------------------------------------------------------------------


def pop_top() -> Code:
    return _op("POP_TOP")


def copy(depth: int = 1) -> Code:
    """Push the ``depth``-th value from the top again; 1 duplicates the top."""
    return _op("COPY", depth)


def swap(depth: int) -> Code:
    """Exchange the top with the ``depth``-th value from the top; 1 does nothing."""
    return _op("SWAP", depth) if depth > 1 else []


def rotate_down(depth: int) -> Code:
    """a, b, …, z -> z, a, b, …: the top goes under the ``depth - 1`` values below it."""
    return [i for d in range(depth, 1, -1) for i in swap(d)]


def rotate_up(depth: int) -> Code:
    """a, b, …, z -> b, …, z, a: the ``depth``-th value from the top comes up."""
    return [i for d in range(2, depth + 1) for i in swap(d)]


def nop() -> Code:
    return _op("NOP")


def label() -> Instruction:
    """Something to jump to: put it into the list where the jump should land."""
    return Instruction("NOP")


# ---- attributes, items, operators --------------------------------------------------------------------------------


def load_attr(name: str) -> Code:
    return _op("LOAD_ATTR", name)


def store_attr(name: str) -> Code:
    """value, owner ->"""
    return _op("STORE_ATTR", name)


def delete_attr(name: str) -> Code:
    return _op("DELETE_ATTR", name)


def binary_subscr() -> Code:
    """container, key -> container[key]"""
    return _op("BINARY_SUBSCR")


def store_subscr() -> Code:
    """value, container, key ->"""
    return _op("STORE_SUBSCR")


def delete_subscr() -> Code:
    """container, key ->"""
    return _op("DELETE_SUBSCR")


def binary_op(symbol: str) -> Code:
    """left, right -> left ``symbol`` right; ``+=`` and its kin work in place."""
    return _op("BINARY_OP", symbol)


def compare_op(symbol: str) -> Code:
    return _op("COMPARE_OP", symbol)


def is_op(invert: bool = False) -> Code:
    return _op("IS_OP", int(invert))


def contains_op(invert: bool = False) -> Code:
    """item, container -> item in container"""
    return _op("CONTAINS_OP", int(invert))


def unary_not() -> Code:
    return _op("UNARY_NOT")


def unary_negative() -> Code:
    return _op("UNARY_NEGATIVE")


def unary_invert() -> Code:
    return _op("UNARY_INVERT")


# ---- containers --------------------------------------------------------------------------------------------------


def build_tuple(n: int) -> Code:
    return _op("BUILD_TUPLE", n)


def build_list(n: int) -> Code:
    return _op("BUILD_LIST", n)


def build_set(n: int) -> Code:
    return _op("BUILD_SET", n)


def build_map(n: int) -> Code:
    """k1, v1, …, kn, vn -> dict"""
    return _op("BUILD_MAP", n)


def build_const_key_map(keys: tuple) -> Code:
    """v1, …, vn -> dict"""
    return [*load_const(keys), *_op("BUILD_CONST_KEY_MAP", len(keys))]


def build_slice(n: int = 2) -> Code:
    return _op("BUILD_SLICE", n)


def build_string(n: int) -> Code:
    return _op("BUILD_STRING", n)


def list_append(depth: int = 1) -> Code:
    return _op("LIST_APPEND", depth)


def list_extend(depth: int = 1) -> Code:
    """list, …, iterable -> list, …; with ``depth`` 1 the list is just below."""
    return _op("LIST_EXTEND", depth)


def set_update(depth: int = 1) -> Code:
    return _op("SET_UPDATE", depth)


def dict_update(depth: int = 1) -> Code:
    return _op("DICT_UPDATE", depth)


def list_to_tuple() -> Code:
    return _op("LIST_TO_TUPLE")


def unpack_sequence(n: int) -> Code:
    """sequence -> vn, …, v1: the first item on top."""
    return _op("UNPACK_SEQUENCE", n)


def format_value(conversion: int = 0, with_spec: bool = False) -> Code:
    """value[, spec] -> text; conversion 1 ``str``, 2 ``repr``, 3 ``ascii``."""
    return _op("FORMAT_VALUE", conversion | 4 * with_spec)


# ---- calls -------------------------------------------------------------------------------------------------------


def push_null() -> Code:
    return _op("PUSH_NULL")


def callable(load: Code) -> Code:
    """Make what ``load`` pushes ready to be called: its arguments and ``call`` or ``call_function_ex`` come after."""
    return [*push_null(), *load] if DIALECT.null_first else [*load, *push_null()]


def call(n: int, names: Sequence[str] = ()) -> Code:
    """callable(f) or method(m), a1, …, an -> result. ``names`` are the keywords of the last arguments; ``n`` counts all."""
    return _op("CALL_KW", (n, tuple(names))) if names else _op("CALL", n)


def call_function(n: int, names: Sequence[str] = ()) -> Code:
    """f, a1, …, an -> result, for a plain ``f`` under its arguments; ``callable`` and ``call`` make shorter code."""
    depth = n + 2 if DIALECT.null_first else n + 1
    return [*push_null(), *rotate_down(depth), *call(n, names)]


def load_method(name: str) -> Code:
    """owner -> method, ready for arguments and ``call``."""
    return _op("LOAD_METHOD", name)


def call_function_ex(has_kwargs: bool = False) -> Code:
    """callable(f), args[, kwargs] -> result"""
    return _op("CALL_FUNCTION_EX", int(has_kwargs))


def make_function(defaults: bool = False, kwdefaults: bool = False, annotations: bool = False, closure: bool = False) -> Code:
    """[defaults], [kwdefaults], [annotations], [tuple of cells], code -> function"""
    return _op("MAKE_FUNCTION", defaults | kwdefaults << 1 | annotations << 2 | closure << 3)


def return_value() -> Code:
    return _op("RETURN_VALUE")


def import_name(name: str) -> Code:
    """level, names -> module"""
    return _op("IMPORT_NAME", name)


# ---- control flow ------------------------------------------------------------------------------------------------


def jump(target: Instruction) -> Code:
    return _jump("JUMP", target)


def jump_if(target: Instruction, when: bool) -> Code:
    """value ->; jump when its truth is ``when``."""
    return _jump("POP_JUMP_IF_TRUE" if when else "POP_JUMP_IF_FALSE", target)


def jump_if_none(target: Instruction, when: bool = True) -> Code:
    return _jump("POP_JUMP_IF_NONE" if when else "POP_JUMP_IF_NOT_NONE", target)


def get_iter() -> Code:
    return _op("GET_ITER")


def for_iter(end: Instruction) -> Code:
    """iterator -> iterator, item; without an item, pop the iterator and go on after ``end``, made by ``end_for``."""
    return _jump("FOR_ITER", end)


def end_for() -> Instruction:
    """Where a ``for_iter`` ends; stands behind the jump back to it, never reached in another way."""
    return Instruction("END_FOR" if DIALECT.end_for else "NOP")


def raise_varargs(n: int) -> Code:
    return _op("RAISE_VARARGS", n)


def reraise(lasti: int = 0) -> Code:
    return _op("RERAISE", lasti)


def push_exc_info() -> Code:
    """First in a handler: exception -> previous exception, exception."""
    return _op("PUSH_EXC_INFO")


def pop_except() -> Code:
    return _op("POP_EXCEPT")


def before_with() -> Code:
    """manager -> its bound ``__exit__``, result of ``__enter__``."""
    return _op("BEFORE_WITH")


def with_except_start() -> Code:
    """exit, lasti, previous, exception -> the same, result of ``exit(type, exception, traceback)``."""
    return _op("WITH_EXCEPT_START")


def protect(code: Code, target: Instruction, depth: int, lasti: bool = False) -> Code:
    """Send exceptions of ``code``'s instructions to ``target``, except where a handler is set already."""
    handler = Handler(target, depth, lasti)
    for instr in code:
        if instr.handler is None:
            instr.handler = handler
    return code


def at(code: Code, position: Optional[Position]) -> Code:
    """Give ``code``'s instructions a source position where they have none, so that tracebacks show the user's line."""
    for instr in code:
        if instr.position is None:
            instr.position = position
    return code
