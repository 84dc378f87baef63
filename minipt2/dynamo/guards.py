"""Guards -> one Python function that says whether compiled code may run on a frame's locals.

In: ``Guard`` records from the symbolic interpreter. Out: ``GuardFn``, whose ``check`` the frame hook calls on every call of
the user's function. It reads each source once, parents before children, the frame's own arguments first; anything that
can't be read is a guard that failed. It holds the user's objects weakly: when one dies, the entry is dead.
Upstream: ``torch/_dynamo/guards.py``.
"""
from __future__ import annotations

import math
import re
import sys
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, ModuleType
from typing import Any, Callable, Iterable, Optional

import torch

from ..exercise import exercise
from .guard_kinds import (
    JOINT, KINDS, STATE_FUNCTIONS, Fixed, Guard, describe, global_state_guard, is_literal, rest_length, same_constant, tensor_guards,
)  # fmt: skip
from .guard_table import Table, tables
from .marks import alive, beyond
from .source import HELPERS, AttrSource, ImportSource, LocalSource, OwnAttrSource, Source

__all__ = ["Guard", "GuardFn", "Check", "compile_guards", "global_state_guard", "tensor_guards"]

MODULE_STATE = frozenset(torch.nn.Module().__dict__)
"""Attributes every module keeps in its ``__dict__``; reading them there avoids ``Module.__getattr__``'s slow lookup."""
FAILED = """    except Exception:
        return False
    except BaseException as interrupt:
        INTERRUPTS.append(interrupt)
        return False
"""
interrupts: list[BaseException] = []
"""What arrived during a check, from where C would lose it (Ctrl-C): for the main thread to raise."""
WEAK = re.compile(r"\bk\d+\(\)")
MODULE_TABLES = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True)
class Check:
    """One guard as text: where, what, the value expected, and expressions over ``L`` and ``G`` for explanations."""

    source: str
    kind: str
    expected: str
    test: str
    found: str
    hint: str

    def __str__(self) -> str:
        kind = KINDS[self.kind]
        if self.kind in JOINT:
            return self.expected + f" ({self.hint})" * bool(self.hint)
        return f"{self.source}: " * bool(self.source) + kind.says + f" {self.expected}" * (not kind.whole)


class GuardFn:
    """``fn(f_locals)`` is whether all guards hold; never raises. ``check`` is the bare function, for the hook."""

    def __init__(self, check: Callable[[dict], bool], text: str, written: list["_Written"], marks: dict[Source, tuple], constants: "_Constants"):
        self.check, self.text, self._written, self._marks = check, text, written, marks
        self._dead, self._watchers, self._namespace = constants.dead, constants.watchers, constants.namespace

    def __call__(self, f_locals: dict) -> bool:
        return self.check(f_locals)

    @property
    def alive(self) -> bool:
        """False once an object that a guard needs is gone: no call can pass any more."""
        return not self._dead

    def on_death(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the first of the guarded objects dies; it must not hold them."""
        self._watchers.append(callback)

    @cached_property
    def checks(self) -> list[Check]:
        """Every guard in the order checked, as text; made when somebody asks."""
        return [w.check() for w in self._written]

    def explain(self, f_locals: dict) -> Optional[str]:
        """The first guard that fails, with what was expected and found; None if all hold."""
        if self._dead:
            return f"{self._dead[0]} no longer exists"
        scope = {**self._namespace, "L": f_locals}
        for check in self.checks:
            try:
                if eval(check.test, scope):
                    continue
            except Exception as error:
                return f"{check.source} can't be read: {type(error).__name__}: {error}"
            return f"{check}, found {_found(check, scope)}" + (f" ({check.hint})" if check.hint and check.kind not in JOINT else "")
        for source, dims in self._marks.items():
            if beyond(eval(source.name(), scope), dims):
                return f"{source.name()}: another dimension was marked dynamic"
        return None


class _Text(str):
    """The description of an expected value that must not be kept itself."""


@dataclass(eq=False, slots=True)
class _Written:
    """A guard after it was written, with what its explanation needs."""

    source: Optional[Source]
    kind: str
    expected: Any
    test: str
    hint: str

    def check(self) -> Check:
        expected = self.expected if isinstance(self.expected, _Text) else describe(self.expected)
        if self.kind in JOINT:
            places = [place.name() for place in self.expected.places()]
            return Check("", self.kind, str(self.expected), self.test, ", ".join(places), self.hint)
        if self.source is None:
            return Check("", self.kind, expected, self.test, "", self.hint)
        name = self.source.name()
        other = self.expected if isinstance(self.expected, Source) else None
        test, found = (_fill(text, name, f"{name}.__dict__", other, other and other.name()) for text in (self.test, KINDS[self.kind].found))
        return Check(name, self.kind, expected, test, found, self.hint)


def _fill(test: str, value: str, attributes: str, other: Optional[Source], other_text: Optional[str]) -> str:
    """``test`` with text for the guarded value, its ``__dict__`` and the source it is compared with."""
    if other is not None:
        test = test.replace(f"<{other.name()}>", other_text)
    return test.replace("{v}", value).replace("{d}", attributes).replace("{{", "{").replace("}}", "}")


def _found(check: Check, scope: dict[str, Any]) -> str:
    if check.kind == "GLOBAL_STATE":
        calls = (test.rsplit(" ", 2)[0] for test in check.test.split(" and ") if not eval(test, scope))
        return ", ".join(f"{call} {describe(eval(call, scope))}" for call in calls)
    try:
        return describe(eval(check.found, scope))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def compile_guards(guards: Iterable[Guard], f_globals: Optional[dict] = None, f_locals: Optional[dict] = None) -> GuardFn:
    """One function that checks ``guards``. ``f_globals`` are the globals of the frame (``G`` in sources).

    With ``f_locals``, for which they hold, those of models with many parameters are written as tables for C.
    """
    constants = _Constants({} if f_globals is None else f_globals)
    return _Writer(constants).write(list(guards), f_locals)


class _Constants:
    """The names the generated function knows: helpers and expected objects, which it must not keep alive."""

    def __init__(self, f_globals: dict):
        self.dead: list[str] = []
        self.watchers: list[Callable[[], None]] = []
        self.namespace: dict[str, Any] = {
            **HELPERS, **STATE_FUNCTIONS, "same_constant": same_constant, "rest_length": rest_length, "G": f_globals, "DEAD": self.dead,
            "INTERRUPTS": interrupts, "math": math, "MARKED": alive, "beyond": beyond,
        }  # fmt: skip
        self._names: dict[int, str] = {}
        self._by_value: dict[Any, str] = {}

    def __call__(self, value: Any) -> str:
        """Text for an expected object."""
        if isinstance(value, Fixed):
            return self._name(value.value, value.value)
        if is_literal(value):
            try:
                return repr(value)
            except ValueError:  # an int of more digits than Python writes
                return self._name(value, value)
        if is_permanent(value):
            return self._name(value, value)
        try:
            return self._name(value, self._weak(value)) + "()"
        except TypeError:  # no weak references to this type
            return self._name(value, value)

    def identity(self, value: Any) -> int:
        """Its ``id``, with the entry dying when the object does (another one could get the same)."""
        if not is_literal(value) and not is_permanent(value):
            self(value)
        return id(value)

    def _name(self, value: Any, stored: Any) -> str:
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"k{len(self._names)}"
            self.namespace[name] = stored
        return name

    def _weak(self, value: Any) -> weakref.ref:
        dead, watchers, text = self.dead, self.watchers, describe(value)

        def died(_: weakref.ref) -> None:
            dead.append(text)
            if len(dead) == 1:
                for callback in watchers:
                    callback()

        return weakref.ref(value, died)


def is_permanent(value: Any) -> bool:
    """Objects that live as long as the process and aren't the user's: torch's own and the standard library's."""
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.device, CodeType)):
        return True
    if isinstance(value, ModuleType):
        return True
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module.split(".")[0] in ("torch", "builtins", "minipt2") and isinstance(value, (type, Callable))


@dataclass(eq=False)
class _Node:
    """A source, the guards on it and the sources read from it."""

    source: Source
    parent: Optional["_Node"]
    children: list["_Node"] = field(default_factory=list)
    guards: list[tuple[Guard, str]] = field(default_factory=list)
    aliased: bool = False
    name: str = ""
    """The local of the generated function that holds the value; empty until written."""
    dict_name: str = ""

    def is_module(self) -> bool:
        return any(isinstance(c.source, AttrSource) and c.source.attr in MODULE_TABLES for c in self.children)

    def read_by_dict(self) -> bool:
        source, parent = self.source, self.parent
        if isinstance(source, OwnAttrSource):
            return True
        return parent is not None and isinstance(source, AttrSource) and source.attr in MODULE_STATE and parent.is_module()


class _Writer:
    def __init__(self, constants: _Constants):
        self.const = constants
        self.nodes: dict[Source, _Node] = {}
        self.lines: list[str] = []
        self.written: list[_Written] = []
        self.referents: dict[str, str] = {}
        self.count = 0

    def write(self, guards: list[Guard], f_locals: Optional[dict] = None) -> GuardFn:
        state = [g for g in guards if g.source is None and g.kind not in JOINT]
        joint = [g for g in guards if g.kind in JOINT]
        marks = {g.source: g.value for g in guards if g.kind == "MARKS"}
        for place in [place for g in joint for place in g.value.places()]:
            self.node(place).aliased = True
        for guard in guards:
            if guard.source is not None and guard.kind != "MARKS":
                self.place(guard)
        found = tables(self.nodes, self.const, f_locals) if f_locals is not None else []
        guarded = [n for n in self.nodes.values() if n.guards]
        first = [n for n in guarded if isinstance(n.source, LocalSource)]
        for node in first:
            self.visit(node)
        for guard in dict.fromkeys(state):
            self.state(guard)
        for k, table in enumerate(found):
            self.table(f"table{k}", table)
        for node in guarded:
            self.visit(node)
        for guard in joint:
            self.joint(guard)
        unserved = " or ".join(f"beyond({source.name()}, {dims})" for source, dims in marks.items())
        if marks:
            self.lines.append(f"if MARKED and ({unserved}): return False")
        body = "\n".join(f"        {line}" for line in self.lines)
        text = f"def check(L):\n    if DEAD: return False\n    try:\n{body}\n        return True\n{FAILED}"
        scope = self.const.namespace
        exec(compile(text, "<minipt2 guards>", "exec"), scope)
        return GuardFn(scope.pop("check"), text, self.written, marks, self.const)

    def node(self, source: Source) -> _Node:
        node = self.nodes.get(source)
        if node is None:
            parent = self.node(source.base) if source.base is not None else None
            node = self.nodes[source] = _Node(source, parent)
            if parent is not None:
                parent.children.append(node)
        return node

    def place(self, guard: Guard) -> None:
        if guard.kind == "TENSOR":
            for part in tensor_guards(guard.value, guard.source):
                self.place(part)
            return
        node = self.node(guard.source)
        if isinstance(guard.value, Source):
            self.node(guard.value).aliased = True
            test = KINDS[guard.kind].test(guard.value, lambda other: f"<{other.name()}>")
        else:
            test = KINDS[guard.kind].test(guard.value, self.const)
        if all(test != known for _, known in node.guards):
            node.guards.append((guard, test))

    @exercise("2.2")
    def visit(self, node: _Node) -> None:
        """Write the tests of ``node``, after those of the sources that it is read from."""
        # >>> 2.2
        if node.name:
            return
        if node.parent is not None:
            self.visit(node.parent)
        node.guards.sort(key=lambda pair: KINDS[pair[0].kind].rank)
        others = [self.nodes[g.value] for g, _ in node.guards if isinstance(g.value, Source)]
        tests = [test for _, test in node.guards]
        uses = sum(test.count("{v}") for test in tests) + len(node.children) + node.aliased
        needs_dict = any("{d}" in test for test in tests) or any(c.read_by_dict() for c in node.children)
        read = self.read(node)
        if uses + needs_dict == 1 and not node.children and not node.aliased:
            node.name = read
        else:
            node.name = self.local(read)
        if needs_dict:
            node.dict_name = self.local(f"{node.name}.__dict__")
        for other in others:
            self.visit(other)
        if tests:
            condition = " and ".join(self.fill(g, test, node) for g, test in node.guards)
            for reference in dict.fromkeys(WEAK.findall(condition)):
                condition = condition.replace(reference, self.dereferenced(reference))
            self.lines.append(f"if not ({condition}): return False")
        for guard, test in node.guards:
            self.wrote(guard, test)
        # <<< 2.2

    def read(self, node: _Node) -> str:
        parent = node.parent
        if isinstance(node.source, ImportSource) and node.source.path:  # whose globals it names: of the module as captured
            return f"{self.const(sys.modules[node.source.module])}.{node.source.path}"
        if parent is None:
            return node.source.expr("")
        if node.read_by_dict():
            return f"{parent.dict_name}[{node.source.attr!r}]"
        return node.source.expr(parent.name)

    def local(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"v{self.count} = {text}")
        return f"v{self.count}"

    def dereferenced(self, reference: str) -> str:
        """A local that holds what a weak reference points to: many modules share one class."""
        if reference not in self.referents:
            self.referents[reference] = self.local(reference)
        return self.referents[reference]

    def fill(self, guard: Guard, test: str, node: _Node) -> str:
        other = guard.value if isinstance(guard.value, Source) else None
        return _fill(test, node.name, node.dict_name, other, other and self.nodes[other].name)

    def state(self, guard: Guard) -> None:
        test = KINDS[guard.kind].test(guard.value, self.const)
        self.lines.append(f"if not ({test}): return False")
        self.written.append(_Written(None, guard.kind, None, test, guard.hint))

    def table(self, name: str, table: Table) -> None:
        """A call that checks many guards below one object."""
        table.root.aliased = True
        self.visit(table.root)
        self.const.namespace.update({name: table.function, f"{name}_holds": table.kept})
        self.lines.append(f"if not {name}({table.root.name}): return False  # {table.size} guards")
        for node, guards in table.taken:
            for guard, test in guards:
                self.wrote(guard, test)

    def joint(self, guard: Guard) -> None:
        """A condition on what is at several places: sizes and numbers, or the objects themselves."""
        for place in guard.value.places():
            self.visit(self.nodes[place])
        self.lines.append(f"if not ({guard.value.test(lambda place: self.nodes[place].name)}): return False")
        self.written.append(_Written(None, guard.kind, guard.value, guard.value.test(lambda place: place.name()), guard.hint))

    def wrote(self, guard: Guard, test: str) -> None:
        value = guard.value
        keep = isinstance(value, Source) or is_literal(value) or is_permanent(value)
        self.written.append(_Written(guard.source, guard.kind, value if keep else _Text(describe(value)), test, guard.hint))
