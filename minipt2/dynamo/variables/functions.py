"""Python functions, bound methods, closures and their cells, and the exit of a ``with`` block.

Calling one of these interprets its bytecode in a child translator: it is inlined into the graph.
Upstream: ``torch/_dynamo/variables/functions.py``.
"""
from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from ...exercise import exercise
from .base import Variable, unsupported
from .constant import ConstantVariable
from .exceptions import observed

if TYPE_CHECKING:
    from ..emit import Emitter
    from ..translator import Translator


CONSTANT_CALLS: dict[types.FunctionType, Any] = {}
"""Functions whose call is a known constant in captured code (``is_compiling``)."""


class CellVariable(Variable):
    """A closure cell. ``name`` is set when it is a cell of the frame being compiled (emitted code reads it by name).

    ``contents_source`` says where the contents of an existing cell (``real``) come from.
    """

    def __init__(self, contents: Variable | None = None, name: str | None = None, real: Any = None, contents_source: Any = None):
        super().__init__()
        self.contents, self.name, self.real, self.contents_source = contents, name, real, contents_source
        self.fixed_at: int | None = None
        """The step at which what it holds was put into the graph for good."""

    def python_type(self) -> type:
        return types.CellType

    def children(self):
        return (self.contents,) if self.contents is not None else ()

    def getattr(self, tx, name) -> Variable:
        if name != "cell_contents":
            return super().getattr(tx, name)
        if self.contents is None:
            raise observed(ValueError, "Cell is empty")
        return self.contents

    def reconstruct(self, cg: "Emitter") -> None:
        if self.name is not None:
            cg.load_closure(self.name)
        elif self.real is not None:
            self._load_existing(cg)
        else:
            cg.call_const(types.CellType, [])  # contents are stored with the other side effects: cells may be cyclic
            cg.later_cell(self)

    def _load_existing(self, cg: "Emitter") -> None:
        from ..source import ClosureCellSource, ClosureSource

        if isinstance(self.contents_source, ClosureSource):
            ClosureCellSource(self.contents_source.parent, self.contents_source.index).load(cg)
        else:
            cg.load_const(self.real)


class FunctionVariable(Variable):
    """What functions of either kind share: attributes, truth, descriptor behaviour."""

    def python_type(self) -> type:
        return types.FunctionType

    def truth(self, tx) -> bool:
        return True

    def setattr(self, tx, name, value) -> None:
        tx.output.side_effects.store_attr(self, name, value)

    def bind(self, owner: Variable) -> "UserMethodVariable":
        return UserMethodVariable(self, owner)

    def call_method(self, tx, name, args, kwargs) -> Variable:
        if name == "__get__":
            return self if isinstance(args[0], ConstantVariable) and args[0].value is None else self.bind(args[0])
        if name == "__call__":
            return self.call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)


class UserFunctionVariable(FunctionVariable):
    """A Python function that exists. Guards: its code is checked where it was wrapped; defaults and cells when used."""

    def __init__(self, fn: types.FunctionType, source: Any = None):
        super().__init__(source)
        self.fn = fn

    def as_python_constant(self) -> Any:
        return self.fn

    def as_proxy(self) -> Any:
        return self.fn

    def describe(self) -> str:
        return f"function {self.fn.__module__}.{self.fn.__qualname__}"

    __repr__ = describe

    def getattr(self, tx, name) -> Variable:
        pending = tx.output.side_effects.load_attr(self, name)
        if pending is not None and pending is not tx.output.side_effects.DELETED:
            return pending
        try:
            value = getattr(self.fn, name)
        except AttributeError as error:
            if self.source is not None:
                tx.output.guard(self.source, "HASATTR", (name, False))
            raise observed(AttributeError, *error.args) from None
        if name in ("__globals__", "__closure__"):
            unsupported("MP201", f"attribute {name!r} of {self.describe()}")
        return tx.wrap_attribute(value, self.source, name)

    def call(self, tx, args, kwargs) -> Variable:
        if self.fn in CONSTANT_CALLS:
            return ConstantVariable(CONSTANT_CALLS[self.fn])
        return tx.inline_call(self, args, kwargs)

    # what inline_call asks
    def get_code(self) -> types.CodeType:
        return self.fn.__code__

    def get_globals(self) -> dict:
        return self.fn.__globals__

    def default(self, tx, index: int) -> Variable:
        from ..source import DefaultSource

        source = DefaultSource(self.source, index) if self.source is not None else None
        return tx.wrap_or_constant(self.fn.__defaults__[index], source)

    def kwdefault(self, tx, name: str) -> Variable:
        from ..source import DefaultSource

        source = DefaultSource(self.source, name) if self.source is not None else None
        return tx.wrap_or_constant(self.fn.__kwdefaults__[name], source)

    def default_names(self) -> tuple[int, frozenset[str]]:
        return len(self.fn.__defaults__ or ()), frozenset(self.fn.__kwdefaults__ or ())

    def cells(self, tx) -> list[CellVariable]:
        from ..source import ClosureSource

        found = []
        for i, cell in enumerate(self.fn.__closure__ or ()):
            source = ClosureSource(self.source, i) if self.source is not None else None
            found.append(tx.output.existing_cell(tx, cell, source))
        return found

    def reconstruct(self, cg: "Emitter") -> None:
        cg.load_const(self.fn)


class NestedFunctionVariable(FunctionVariable):
    """A function made while tracing (``def`` or ``lambda`` inside the traced code)."""

    def __init__(self, code, f_globals: dict, defaults: list[Variable] | None, kwdefaults: dict[str, Variable] | None,
                 closure: list[CellVariable], annotations: Variable | None = None, name: str = "", source: Any = None):
        super().__init__(source)
        self.code, self.f_globals, self.closure, self.annotations = code, f_globals, closure, annotations
        self.defaults, self.kwdefaults, self.qualname = defaults or [], kwdefaults or {}, name or code.co_qualname

    def children(self):
        return [*self.closure, *self.defaults, *self.kwdefaults.values()]

    def describe(self) -> str:
        return f"function {self.qualname}"

    __repr__ = describe

    def getattr(self, tx, name) -> Variable:
        effects = tx.output.side_effects
        pending = effects.load_attr(self, name)
        if pending is not None and pending is not effects.DELETED:
            return pending
        facts = {"__name__": self.code.co_name, "__qualname__": self.qualname, "__doc__": None,
                 "__module__": self.f_globals.get("__name__"), "__kwdefaults__": None}
        if name == "__name__" or name in facts:
            return tx.constant(facts[name])
        if name == "__defaults__":
            return tx.tuple(self.defaults) if self.defaults else tx.constant(None)
        if name == "__code__":
            return tx.wrap_constant(self.code)
        if name == "__dict__" or name in ("__annotations__", "__globals__", "__closure__", "__call__", "__get__"):
            unsupported("MP201", f"attribute {name!r} of {self.describe()}")
        raise observed(AttributeError, f"'function' object has no attribute {name!r}")

    def call(self, tx, args, kwargs) -> Variable:
        return tx.inline_call(self, args, kwargs)

    def get_code(self) -> types.CodeType:
        return self.code

    def get_globals(self) -> dict:
        return self.f_globals

    def default(self, tx, index: int) -> Variable:
        return self.defaults[index]

    def kwdefault(self, tx, name: str) -> Variable:
        return self.kwdefaults[name]

    def default_names(self) -> tuple[int, frozenset[str]]:
        return len(self.defaults), frozenset(self.kwdefaults)

    def cells(self, tx) -> list[CellVariable]:
        return self.closure

    def reconstruct(self, cg: "Emitter") -> None:
        from .lists import TupleVariable

        cells = TupleVariable(self.closure) if self.closure else ConstantVariable(None)
        defaults = TupleVariable(self.defaults) if self.defaults else ConstantVariable(None)
        names = tuple(self.kwdefaults)
        kwdefaults = TupleVariable(self.kwdefaults.values())
        make = _function_maker(self.code, self.f_globals, self.qualname, names)
        cg.call_const(make, [cells, defaults, kwdefaults])


def _function_maker(code: types.CodeType, f_globals: dict, qualname: str, names: tuple[str, ...]):
    def make_function(cells, defaults, kwdefaults):
        fn = types.FunctionType(code, f_globals, code.co_name, defaults, cells)
        fn.__qualname__ = qualname
        fn.__kwdefaults__ = dict(zip(names, kwdefaults)) or None
        return fn

    return make_function


class UserMethodVariable(Variable):
    """A Python function bound to an object."""

    def __init__(self, fn: Any, owner: Variable, source: Any = None):
        super().__init__(source)
        self.fn = UserFunctionVariable(fn) if isinstance(fn, types.FunctionType) else fn
        self.owner = owner

    def python_type(self) -> type:
        return types.MethodType

    def children(self):
        return (self.fn, self.owner)

    def describe(self) -> str:
        return f"method {self.fn.describe()}"

    __repr__ = describe

    def truth(self, tx) -> bool:
        return True

    def getattr(self, tx, name) -> Variable:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.fn
        return self.fn.getattr(tx, name)

    def call(self, tx, args, kwargs) -> Variable:
        return self.fn.call(tx, [self.owner, *args], kwargs)

    def reconstruct(self, cg: "Emitter") -> None:
        cg.call_const(types.MethodType, [self.fn, self.owner])


class ContextExitVariable(Variable):
    """``__exit__`` of a manager that the interpreter entered itself (no_grad, autocast …); ``context`` knows how to leave.

    ``grad_before`` is the grad mode in which it was entered, so that the real one will go back to the right mode.
    """

    def __init__(self, context: Variable, grad_before: bool):
        super().__init__()
        self.context, self.grad_before = context, grad_before

    def children(self):
        return (self.context,)

    def call(self, tx, args, kwargs) -> Variable:
        self.context.exit(tx)
        return tx.constant(None)

    def reconstruct(self, cg: "Emitter") -> None:
        cg.set_grad(self.grad_before)
        cg.enter_context(self.context)


@exercise("1.4")
def bind_arguments(tx: "Translator", fn: Any, args: list[Variable], kwargs: dict[str, Variable]) -> dict[str, Variable]:
    """Python's argument binding on variables: parameter name -> variable; a mismatch is the traced program's TypeError.

    ``fn`` has ``get_code``, ``default_names``, ``default`` and ``kwdefault``. ``*args`` becomes a tuple, ``**kwargs`` a dict.
    """
    # >>> 1.4
    code = fn.get_code()
    names = code.co_varnames
    npos, nkw = code.co_argcount, code.co_kwonlyargcount
    varargs, varkw = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    bound = dict(zip(names[:npos], args))
    extra = {}
    for key, value in kwargs.items():
        if key in names[code.co_posonlyargcount : npos + nkw]:
            if key in bound:
                raise observed(TypeError, f"{code.co_qualname}() got multiple values for argument {key!r}")
            bound[key] = value
        elif varkw:
            extra[key] = value
        else:
            raise observed(TypeError, f"{code.co_qualname}() got an unexpected keyword argument {key!r}")
    if len(args) > npos and not varargs:
        raise observed(TypeError, f"{code.co_qualname}() takes {npos} positional arguments but {len(args)} were given")
    _fill_defaults(tx, fn, bound)
    rest = npos + nkw
    if varargs:
        bound[names[rest]] = tx.tuple(args[npos:])
        rest += 1
    if varkw:
        bound[names[rest]] = tx.dict([(tx.constant(k), v) for k, v in extra.items()])
    return bound
    # <<< 1.4


@exercise("1.4")
def _fill_defaults(tx: "Translator", fn: Any, bound: dict[str, Variable]) -> None:
    """Give parameters that got no argument their defaults; one without is a TypeError."""
    # >>> 1.4
    code = fn.get_code()
    npos = code.co_argcount
    ndefaults, kwdefaults = fn.default_names()
    for i, name in enumerate(code.co_varnames[: npos + code.co_kwonlyargcount]):
        if name in bound:
            continue
        if npos - ndefaults <= i < npos:
            bound[name] = fn.default(tx, i - (npos - ndefaults))
        elif i >= npos and name in kwdefaults:
            bound[name] = fn.kwdefault(tx, name)
        else:
            raise observed(TypeError, f"{code.co_qualname}() missing required argument: {name!r}")
    # <<< 1.4
