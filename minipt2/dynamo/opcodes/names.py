"""Locals, cells, globals, attributes, items and imports."""
from __future__ import annotations

import importlib
import sys

from ..variables.base import unsupported
from ..variables.exceptions import observed
from .registry import op


@op("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(tx, instr) -> None:
    tx.stack.append(tx.load_local(instr.arg))


@op("STORE_FAST")
def store_fast(tx, instr) -> None:
    """Storing a NULL (3.12, after an inlined comprehension) leaves the variable unbound."""
    from ..translator import NULL

    value = tx.stack.pop()
    if value is NULL:
        tx.locals.pop(instr.arg, None)
    else:
        tx.store_local(instr.arg, value)


@op("DELETE_FAST")
def delete_fast(tx, instr) -> None:
    tx.load_local(instr.arg)
    del tx.locals[instr.arg]


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(tx, instr) -> None:
    """Save what an inlined comprehension's variable holds outside it (3.12); NULL when unbound."""
    from ..translator import NULL

    value = tx.load_local(instr.arg) if tx.is_bound(instr.arg) else NULL
    tx.locals.pop(instr.arg, None)
    tx.push(value)


@op("LOAD_CLOSURE")
def load_closure(tx, instr) -> None:
    tx.push(tx.cells[instr.arg] if instr.arg in tx.cells else tx.load_local(instr.arg))


@op("LOAD_DEREF")
def load_deref(tx, instr) -> None:
    tx.push(tx.load_cell(instr.arg))


@op("STORE_DEREF")
def store_deref(tx, instr) -> None:
    tx.output.side_effects.store_cell(tx.cells[instr.arg], tx.pop())


@op("DELETE_DEREF")
def delete_deref(tx, instr) -> None:
    tx.load_cell(instr.arg)
    tx.output.side_effects.store_cell(tx.cells[instr.arg], None)


@op("LOAD_GLOBAL")
def load_global(tx, instr) -> None:
    value = tx.load_global(instr.arg)
    if instr.flag:
        push_callable(tx, value)
    else:
        tx.stack.append(value)


def push_callable(tx, value) -> None:
    """A callable and the NULL of a plain call, in this CPython's order."""
    from ..bytecode.decode import DIALECT
    from ..translator import NULL

    tx.stack += [NULL, value] if DIALECT.null_first else [value, NULL]


@op("STORE_GLOBAL")
def store_global(tx, instr) -> None:
    tx.output.side_effects.store_global(tx, instr.arg, tx.pop())


@op("DELETE_GLOBAL")
def delete_global(tx, instr) -> None:
    tx.load_global(instr.arg)
    tx.output.side_effects.store_global(tx, instr.arg, tx.output.side_effects.DELETED)


@op("LOAD_ATTR")
def load_attr(tx, instr) -> None:
    owner = tx.pop()
    tx.push(owner.getattr(tx, instr.arg))


@op("LOAD_METHOD")
def load_method(tx, instr) -> None:
    push_callable(tx, tx.pop().getattr(tx, instr.arg))


@op("STORE_ATTR")
def store_attr(tx, instr) -> None:
    owner = tx.pop()
    owner.setattr(tx, instr.arg, tx.pop())


@op("DELETE_ATTR")
def delete_attr(tx, instr) -> None:
    tx.pop().delattr(tx, instr.arg)


@op("LOAD_SUPER_ATTR")
def load_super_attr(tx, instr) -> None:
    """``super().name`` in one instruction (3.12): global super, class, self -> attribute."""
    function, cls, owner = tx.popn(3)
    value = function.call(tx, [cls, owner], {}).getattr(tx, instr.arg)
    if instr.flag & 1:
        push_callable(tx, value)
    else:
        tx.push(value)


@op("STORE_SUBSCR")
def store_subscr(tx, instr) -> None:
    value, owner, key = tx.popn(3)
    owner.call_method(tx, "__setitem__", [key, value], {})


@op("DELETE_SUBSCR")
def delete_subscr(tx, instr) -> None:
    owner, key = tx.popn(2)
    owner.call_method(tx, "__delitem__", [key], {})


@op("IMPORT_NAME")
def import_name(tx, instr) -> None:
    """A module already loaded is taken as it is; loading one for the first time runs code, so it breaks the graph."""
    from ..source import ImportSource

    level, names = (v.as_python_constant() for v in tx.popn(2))
    package = tx.f_globals.get("__package__") or tx.f_globals.get("__name__", "").rpartition(".")[0]
    name = importlib.util.resolve_name("." * level + instr.arg, package) if level else instr.arg
    if name not in sys.modules:
        unsupported("MP405", f"first import of {name}", "import it at the top of the file")
    if not names:
        name = name if level else name.partition(".")[0]
    elif any(not hasattr(sys.modules[name], n) for n in names if n != "*"):
        unsupported("MP405", f"first import of a module of {name}")
    tx.push(tx.wrap(sys.modules[name], ImportSource(name)))


@op("IMPORT_FROM")
def import_from(tx, instr) -> None:
    module = tx.stack[-1]
    try:
        tx.push(module.getattr(tx, instr.arg))
    except Exception as error:
        if getattr(error, "matches", lambda *_: False)(AttributeError):
            raise observed(ImportError, f"cannot import name {instr.arg!r}") from None
        raise
