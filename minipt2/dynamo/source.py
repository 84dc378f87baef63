"""Where a value of the user's program comes from: a path from the frame's locals or globals to it.

A source can say how it reads in Python (``name``), fetch the value again (``fetch``), and be loaded by generated
bytecode (``load``). Guards are predicates on sources; the code generator reloads inputs and mutated objects by them.
Upstream: ``torch/_dynamo/source.py``.
"""
from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Optional, Protocol


class Emitter(Protocol):
    """What a source needs of the code generator."""

    def load_local(self, name: str) -> None: ...
    def load_global(self, name: str) -> None: ...
    def load_attr(self, name: str) -> None: ...
    def load_const(self, value: Any) -> None: ...
    def binary_subscr(self) -> None: ...
    def prepare_call(self, push_callable: Callable[[], None]) -> None: ...
    def call(self, n: int) -> None: ...


@dataclass(frozen=True)
class Source:
    """Base of all sources; equal when they name the same path. ``base`` is the source it is read from, if any."""

    @property
    def base(self) -> Optional["Source"]:
        return None

    def expr(self, base: str) -> str:
        """Python text that reads the value, given text for ``base``; uses ``L``, ``G`` and the names of ``HELPERS``."""
        raise NotImplementedError

    def load(self, cg: Emitter) -> None:
        """Emit code that pushes the value."""
        raise NotImplementedError

    @cached_property
    def _name(self) -> str:
        return self.expr(self.base.name() if self.base is not None else "")

    def name(self) -> str:
        """The whole path as a Python expression over ``L`` (locals) and ``G`` (globals)."""
        return self._name

    def fetch(self, f_locals: dict[str, Any], f_globals: dict[str, Any]) -> Any:
        """The value now; raises what reading it raises."""
        return eval(self.name(), {**HELPERS, "L": f_locals, "G": f_globals})

    def root(self) -> "Source":
        source = self
        while source.base is not None:
            source = source.base
        return source

    def __str__(self) -> str:
        return self.name()

    # Paths are long chains and are looked up often: hash the text once, not the chain every time.
    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Source) and self._name == other._name)


def source(cls: type) -> type:
    """A frozen dataclass that keeps ``Source``'s equality by name."""
    return dataclass(frozen=True, eq=False, repr=False)(cls)


@source
class LocalSource(Source):
    """A local variable; with ``cell`` a cell or free variable of the frame (its content)."""

    local: str
    cell: bool = False

    def expr(self, base: str) -> str:
        return f"L[{self.local!r}]"

    def load(self, cg: Emitter) -> None:
        cg.load_local(self.local)


@source
class GlobalSource(Source):
    """A global of the frame's module; ``load_global`` finds builtins too, as the frame would."""

    key: str

    def expr(self, base: str) -> str:
        return f"G[{self.key!r}]"

    def load(self, cg: Emitter) -> None:
        cg.load_global(self.key)


@source
class GlobalsSource(Source):
    """The dict of the frame's globals; only guarded, never loaded."""

    def expr(self, base: str) -> str:
        return "G"


@source
class ImportSource(Source):
    """``module`` or an attribute of it by dotted path, found by import: globals of other modules, torch's own objects."""

    module: str
    path: str = ""

    def expr(self, base: str) -> str:
        text = f"_modules[{self.module!r}]"
        return f"{text}.{self.path}" if self.path else text

    def load(self, cg: Emitter) -> None:
        cg.prepare_call(lambda: cg.load_const(importlib.import_module))
        cg.load_const(self.module)
        cg.call(1)
        for part in self.path.split(".") if self.path else ():
            cg.load_attr(part)


def TorchGlobalSource(path: str) -> ImportSource:
    """An attribute of the ``torch`` module by dotted path."""
    return ImportSource("torch", path)


@dataclass(frozen=True, eq=False, repr=False)
class ChildSource(Source):
    """Base of the sources that are read from another one."""

    parent: Source

    @property
    def base(self) -> Source:
        return self.parent


@source
class AnswerSource(ChildSource):
    """What calling ``base`` with constants gives (a question about a mode or a tensor); only guarded, never loaded."""

    args: tuple = ()

    def expr(self, base: str) -> str:
        return f"{base}({', '.join(map(repr, self.args))})"


@source
class AttrSource(ChildSource):
    attr: str

    def expr(self, base: str) -> str:
        return f"{base}.{self.attr}" if self.attr.isidentifier() else f"getattr({base}, {self.attr!r})"

    def load(self, cg: Emitter) -> None:
        self.parent.load(cg)
        cg.load_attr(self.attr)


@source
class OwnAttrSource(AttrSource):
    """An attribute in the ``__dict__`` of an object whose class has none of that name: guards read it there, past ``__getattr__``."""


@source
class ItemSource(ChildSource):
    """``base[key]`` for a constant key (its ``repr`` must read back: numbers, strings, bytes, None, tuples of them)."""

    key: Any

    def expr(self, base: str) -> str:
        return f"{base}[{self.key!r}]"

    def load(self, cg: Emitter) -> None:
        self.parent.load(cg)
        cg.load_const(self.key)
        cg.binary_subscr()


@source
class KeyedItemSource(ChildSource):
    """``base[key]`` where the key is itself an object with a source (an enum member, a class, a module as key)."""

    key: Source

    def expr(self, base: str) -> str:
        return f"{base}[{self.key.name()}]"

    def load(self, cg: Emitter) -> None:
        self.parent.load(cg)
        self.key.load(cg)
        cg.binary_subscr()


@source
class _HelperSource(ChildSource):
    """Read by calling one of ``HELPERS`` with the base and ``extra``."""

    extra: tuple = ()
    helper = ""

    def expr(self, base: str) -> str:
        return f"{self.helper}({', '.join([base, *map(repr, self.extra)])})"

    def load(self, cg: Emitter) -> None:
        cg.prepare_call(lambda: cg.load_const(HELPERS[self.helper]))
        self.parent.load(cg)
        for value in self.extra:
            cg.load_const(value)
        cg.call(1 + len(self.extra))


@source
class TypeSource(_HelperSource):
    """``type(base)``"""

    helper = "type"


@source
class DictKeySource(_HelperSource):
    """The ``index``-th key of a dict in insertion order: ``DictKeySource(base, (index,))``."""

    helper = "_nth"


@source
class IterItemSource(_HelperSource):
    """The ``index``-th item of anything that can be iterated again and again (a set, a deque's view)."""

    helper = "_nth"


@source
class ClosureSource(ChildSource):
    """What the ``index``-th cell of function ``base`` holds."""

    index: int

    def expr(self, base: str) -> str:
        return f"{base}.__closure__[{self.index}].cell_contents"

    def load(self, cg: Emitter) -> None:
        ClosureCellSource(self.parent, self.index).load(cg)
        cg.load_attr("cell_contents")


@source
class ClosureCellSource(ChildSource):
    """The ``index``-th cell of function ``base`` itself."""

    index: int

    def expr(self, base: str) -> str:
        return f"{base}.__closure__[{self.index}]"

    def load(self, cg: Emitter) -> None:
        self.parent.load(cg)
        cg.load_attr("__closure__")
        cg.load_const(self.index)
        cg.binary_subscr()


@source
class DefaultSource(ChildSource):
    """A default of function ``base``: ``key`` is an index into ``__defaults__`` or a name in ``__kwdefaults__``."""

    key: Any

    @property
    def table(self) -> str:
        return "__kwdefaults__" if isinstance(self.key, str) else "__defaults__"

    def expr(self, base: str) -> str:
        return f"{base}.{self.table}[{self.key!r}]"

    def load(self, cg: Emitter) -> None:
        self.parent.load(cg)
        cg.load_attr(self.table)
        cg.load_const(self.key)
        cg.binary_subscr()


@source
class FunctionGlobalSource(ChildSource):
    """A global of the module that function ``base`` was defined in (an inlined callee's globals)."""

    key: str

    def expr(self, base: str) -> str:
        return f"{base}.__globals__[{self.key!r}]"

    def load(self, cg: Emitter) -> None:
        self.parent.load(cg)
        cg.load_attr("__globals__")
        cg.load_const(self.key)
        cg.binary_subscr()


def is_from_module_state(source: Source) -> bool:
    """Whether the path goes through a module's ``_parameters`` or ``_buffers``: the same object call after call."""
    at: Optional[Source] = source
    while at is not None:
        if isinstance(at, AttrSource) and at.attr in ("_parameters", "_buffers"):
            return True
        at = at.base
    return False


def _nth(items: Any, index: int) -> Any:
    for k, item in enumerate(items):
        if k == index:
            return item
    raise IndexError(index)


HELPERS: dict[str, Any] = {"type": type, "getattr": getattr, "_nth": _nth, "_modules": sys.modules}
"""Names that ``Source.expr`` may use beside ``L`` and ``G``."""
