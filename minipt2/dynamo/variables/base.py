"""What the symbolic interpreter knows about one Python value: the protocol every kind of variable implements.

One user object is one ``Variable``: containers change in place (``ListVariable.items`` is a real list), so the identity
of the variable *is* the identity of the user's object. Whoever changes a variable calls ``side_effects.mutate`` first:
that is how a failed attempt is noticed, and how the change is replayed on the real object after the graph has run.
Upstream: ``torch/_dynamo/variables/base.py``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, NoReturn

from ...errors import Minipt2Error, Unsupported

if TYPE_CHECKING:
    from ..emit import Emitter
    from ..source import Source
    from ..translator import Translator


class NotConstant(Minipt2Error):
    """``as_python_constant`` on a variable whose value is not known while tracing."""


open_questions: list[list["Variable"] | None] = []
"""Who wants constants now, the last one first of all. None only asks whether there is one: numbers that vary then stay open. A list
takes those that the answer will fix."""


class ObservedException(Exception):
    """A user-level exception raised by the code being traced; ``value`` is an exception variable.

    The translator unwinds the traced code's own exception table with it. Nobody else catches it, except handlers that
    imitate Python's own protocol (``next`` with a default, ``getattr`` with a default, iteration ending).
    """

    unwound = False  # whether it has left the instruction that raised it

    def __init__(self, value: "Variable"):
        super().__init__(value)
        self.value = value

    def matches(self, *types: type[BaseException]) -> bool:
        return issubclass(self.value.python_type(), types)


class MutableState:
    """Identity of an object known to the side-effect log.

    ``new``: made while tracing (no real object exists yet). ``value``: the real object otherwise, kept alive while tracing.
    ``changed``: its contents must be written back to (existing) or are simply built with (new) their final state.
    """

    __slots__ = ("new", "value", "changed")

    def __init__(self, new: bool, value: Any = None):
        self.new, self.value, self.changed = new, value, False


class Variable:
    """Base of all variables. Subclasses override what their kind of value can do; the rest breaks the graph."""

    source: "Source | None" = None
    mutable: MutableState | None = None

    def __init__(self, source: "Source | None" = None):
        if source is not None:
            self.source = source

    # -- what it is ------------------------------------------------------------------------------------------------
    def python_type(self) -> type:
        """The real class of the value (``type(x)``)."""
        unsupported("MP209", f"the type of {self.describe()} is not known while tracing")

    def is_constant(self) -> bool:
        """True when ``as_python_constant`` works and adds no guard."""
        open_questions.append(None)
        try:
            self.as_python_constant()
        except NotConstant:
            return False
        finally:
            open_questions.pop()
        return True

    def as_python_constant(self) -> Any:
        """The value itself, when it is known and immutable; raises NotConstant."""
        raise NotConstant(self.describe())

    def as_proxy(self) -> Any:
        """An fx node argument: an ``fx.Node``, a constant, or tuples/lists/dicts/slices of those."""
        try:
            return self.as_python_constant()
        except NotConstant:
            unsupported("MP902", f"{self.describe()} cannot be an argument of a graph operation")

    def children(self) -> Iterable["Variable"]:
        """Variables this one holds (items of containers); used before emitting to load sources in time."""
        return ()

    def describe(self) -> str:
        """For messages to the user."""
        return type(self).__name__.removesuffix("Variable") + self._where()

    __repr__ = describe

    def _where(self) -> str:
        """The source in brackets; nothing for what a break left on the stack: its name is ours, and in no text of the user's."""
        name = "" if self.source is None else self.source.name()
        return f" ({name})" if name and "__minipt2_" not in name else ""

    # -- what it can do --------------------------------------------------------------------------------------------
    def getattr(self, tx: "Translator", name: str) -> "Variable":
        unsupported("MP201", f"attribute {name!r} of {self.describe()}")

    def setattr(self, tx: "Translator", name: str, value: "Variable") -> None:
        unsupported("MP202", f"setting attribute {name!r} of {self.describe()}")

    def delattr(self, tx: "Translator", name: str) -> None:
        unsupported("MP202", f"deleting attribute {name!r} of {self.describe()}")

    def hasattr(self, tx: "Translator", name: str) -> bool:
        try:
            self.getattr(tx, name)
        except ObservedException as error:
            if error.matches(AttributeError):
                return False
            raise
        return True

    def call(self, tx: "Translator", args: list["Variable"], kwargs: dict[str, "Variable"]) -> "Variable":
        unsupported("MP303", f"call of {self.describe()}")

    def call_method(
        self, tx: "Translator", name: str, args: list["Variable"], kwargs: dict[str, "Variable"]
    ) -> "Variable":
        return self.getattr(tx, name).call(tx, args, kwargs)

    def binary(self, tx: "Translator", op: str, other: "Variable", reverse: bool = False) -> "Variable | None":
        """``self op other`` (or ``other op self``); None: not mine. ``op`` is a name of ``operator`` (``add``, ``lt`` …)."""
        return None

    def iterate(self, tx: "Translator") -> list["Variable"]:
        """All items, for a finite iterable (unpacking, ``*args``, ``for`` over a container)."""
        unsupported("MP204", f"iteration over {self.describe()}")

    def iterator(self, tx: "Translator") -> "Variable":
        """``iter(self)``: a variable whose ``next`` works."""
        unsupported("MP204", f"iteration over {self.describe()}")

    def next(self, tx: "Translator") -> "Variable":
        """``next(self)`` for iterators; raises ObservedException(StopIteration) at the end."""
        unsupported("MP204", f"next() of {self.describe()}")

    def truth(self, tx: "Translator") -> bool:
        """``bool(self)`` as a Python value; raises Unsupported MP101 when it depends on tensor data."""
        unsupported("MP205", f"truth of {self.describe()}")

    def length(self, tx: "Translator") -> int:
        unsupported("MP205", f"len() of {self.describe()}")

    def enter_context(self, tx: "Translator") -> "tuple[Variable, Variable]":
        """``with self``: (exit callable, value of ``__enter__()``)."""
        exit_method = self.getattr(tx, "__exit__")
        return exit_method, self.call_method(tx, "__enter__", [], {})

    # -- making it real again --------------------------------------------------------------------------------------
    def reconstruct(self, cg: "Emitter") -> None:
        """Emit code that pushes the value (called once an emission; the emitter remembers objects with identity).

        Only called when the variable has no source. Must build containers in their final state.
        """
        try:
            value = self.as_python_constant()
        except NotConstant:
            unsupported("MP903", f"{self.describe()} cannot be rebuilt after a graph")
        cg.load_const(value)

    def emit_mutation(self, cg: "Emitter") -> None:
        """Emit code that brings the existing real object (``cg(self)`` pushes it) to this variable's final contents."""
        unsupported("MP903", f"changes of {self.describe()} cannot be replayed")


def unsupported(code: str, reason: str, advice: str = "") -> NoReturn:
    """Break the graph here. Codes are the catalogue's stable names; ``advice`` says what the user can do (default: the catalogue's)."""
    raise Unsupported(code, reason, advice)


class KnownFunctionVariable(Variable):
    """A function whose code is not traced: the object itself, ``fn``, is known. Subclasses say what a call does."""

    def __init__(self, fn: Any, source: "Source | None" = None):
        super().__init__(source)
        self.fn = fn

    def python_type(self) -> type:
        return type(self.fn)

    def as_python_constant(self) -> Any:
        return self.fn

    def truth(self, tx: "Translator") -> bool:
        return True
