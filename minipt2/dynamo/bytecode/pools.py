"""The tables an instruction's number points into: constants, names, slots of the frame."""
from __future__ import annotations

from types import CodeType, EllipsisType, NoneType
from typing import Any, Iterable

from .decode import LOCAL_OPS
from .instructions import Instruction


class NamePool:
    """``co_names`` while it grows."""

    def __init__(self, names: Iterable[str]):
        self.items = list(names)
        self._index = {name: k for k, name in enumerate(self.items)}

    def __call__(self, name: str) -> int:
        if name not in self._index:
            self._index[name] = len(self.items)
            self.items.append(name)
        return self._index[name]


class ConstantPool:
    """``co_consts`` while it grows. Equal constants share an entry only if nothing can tell them apart."""

    def __init__(self, constants: Iterable[Any]):
        self.items = list(constants)
        self._index: dict[Any, int] = {}
        for k, value in enumerate(self.items):
            self._index.setdefault(_key(value), k)

    def __call__(self, value: Any, hint: int = -1) -> int:
        if 0 <= hint < len(self.items) and self.items[hint] is value:
            return hint
        key = _key(value)
        if key not in self._index:
            self._index[key] = len(self.items)
            self.items.append(value)
        return self._index[key]


def _key(value: Any) -> Any:
    """Equal for constants that may share an entry: ``1``, ``1.0`` and ``True`` may not, nor ``0.0`` and ``-0.0``."""
    kind = type(value)
    if kind in (int, str, bytes, bool, NoneType, EllipsisType):
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is tuple:
        return kind, tuple(map(_key, value))
    return kind, id(value)


class Slots:
    """Numbers of local, cell and free variables; ``variables`` is ``co_varnames`` with new locals added."""

    def __init__(self, instructions: list[Instruction], template: CodeType, changes: dict[str, Any]):
        self.variables = list(changes.get("co_varnames", template.co_varnames))
        cells = changes.get("co_cellvars", template.co_cellvars)
        self.free = tuple(changes.get("co_freevars", template.co_freevars))
        known = {*self.variables, *cells, *self.free}
        for instr in instructions:
            if instr.op in LOCAL_OPS and instr.arg not in known:
                known.add(instr.arg)
                self.variables.append(instr.arg)
        taken = set(self.variables)
        self.names = [*self.variables, *(c for c in cells if c not in taken), *self.free]
        self._index = {name: k for k, name in enumerate(self.names)}

    def __call__(self, instr: Instruction) -> int:
        if 0 <= instr.index < len(self.names) and self.names[instr.index] == instr.arg:
            return instr.index  # a class body can have a cell and a free variable of one name, ``__class__``
        if instr.arg not in self._index:
            raise KeyError(f"{instr.op} of {instr.arg!r}, which is neither a cell nor a free variable of the new code")
        return self._index[instr.arg]
