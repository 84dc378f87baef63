"""Guards as a table that one call of C works through: what makes the check of a model with hundreds of parameters cheap.

In: the tree of guarded sources of a frame and the frame's locals. Out: for an object with many guards below it a function of that
object, and the guards it has taken over; the rest stays Python text. A guard goes into the table when its value is found through
dicts (``__dict__``, ``_modules``, ``_parameters``) and its test needs no user code. Tensors are read through DLPack's C interface.
Without a C compiler, or on a build or a torch that lacks something, there is no table, and all guards are Python text.
Upstream: ``torch/csrc/dynamo/guards.cpp``, where every guard is a C++ object.
"""
from __future__ import annotations

import ctypes
import functools
import struct
import sysconfig
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..errors import BackendError, CompilerNotFound
from .guard_kinds import is_literal
from .source import ItemSource, Source

if TYPE_CHECKING:
    from .guards import _Constants, _Node

MIN_GUARDS = 24
"""Fewer are as cheap in Python as the call of a table is."""
MAX_REGISTERS = 32_000
"""They lie on C's stack."""
OPS = {name: k for k, name in enumerate(
    ("ITEM", "OWN", "TYPE", "IS", "SAME", "KEYS", "EMPTY", "LENGTH", "LACKS", "HAS", "ALIAS", "NOT_ALIAS", "TENSOR", "ITEM_IS", "ITEM_EMPTY"))}  # fmt: skip
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
TENSOR_KINDS = frozenset(("TYPE", "SIZE", "DTYPE", "REQUIRES_GRAD", "CONTIGUOUS", "STRIDE", "DEVICE", "NOT_LAZY"))
ALWAYS = frozenset(("TYPE", "SIZE", "DTYPE", "DEVICE"))
"""Of these, what every tensor of fixed size is guarded by."""
SINGLETONS = (bool, type(None), torch.dtype, torch.layout, torch.memory_format)
DICTS, SIZED = (dict, OrderedDict), (dict, OrderedDict, list, tuple, set)


class Library(NamedTuple):
    """The compiled interpreter of tables, and the address of DLPack's function that reads a tensor (0: there is none)."""

    make: Callable[[bytes], Callable[[Any], bool]]
    describe: Callable[[int, Any, Any], int]
    read: int


@functools.cache
def library() -> Library | None:
    """None where tables can't be used: no compiler, or objects without the layout known."""
    from ..inductor import cache

    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    try:
        loaded = ctypes.PyDLL(cache.compile_c(Path(__file__).with_suffix(".c").read_text())._name)
    except (CompilerNotFound, BackendError, OSError):
        return None
    make, describe = loaded.guard_table, loaded.describe
    make.argtypes, make.restype = [ctypes.py_object], ctypes.py_object
    describe.argtypes, describe.restype = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p], ctypes.c_int64
    return Library(make, describe, _tensor_reader())


def _tensor_reader() -> int:
    """DLPack 1.3's ``dltensor_from_py_object_no_sync``: the sixth word of the interface's struct, after its version and three others."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    if capsule is None:
        return 0
    words = (ctypes.c_uint64 * 6).from_address(pointer(capsule, b"dlpack_exchange_api"))
    return words[5] if words[0] & 0xFFFFFFFF == 1 else 0


def found_through_dicts(root: "_Node", value: Any) -> dict["_Node", Any]:
    """The values of the nodes below ``root`` that are read from dicts only, as they are now."""
    values = {root: value}
    todo = [root]
    while todo:
        node = todo.pop()
        holder = values[node]
        for child in node.children:
            source = child.source
            if child.read_by_dict():
                table, key = _instance_dict(holder), source.attr
            else:
                table, key = (holder, source.key) if type(source) is ItemSource else (None, None)
            if type(table) in DICTS and type(key) is str and key in table:
                values[child] = table[key]
                todo.append(child)
    return values


def _instance_dict(value: Any) -> dict | None:
    """The dict that C finds; None where ``value.__dict__`` is something else."""
    try:
        found = value.__dict__
        return found if _generic_dict(value, None) is found else None
    except AttributeError:
        return None


_generic_dict = ctypes.pythonapi.PyObject_GenericGetDict
_generic_dict.argtypes, _generic_dict.restype = [ctypes.py_object, ctypes.c_void_p], ctypes.py_object


def tables(nodes: dict[Source, "_Node"], const: "_Constants", f_locals: dict) -> list["Table"]:
    """A table for every object that has at least ``MIN_GUARDS`` guards below it which one can hold; their nodes lose those guards."""
    made, below = [], set()
    for node in list(nodes.values()):
        if node in below or not node.children:
            continue
        try:
            value = node.source.fetch(f_locals, const.namespace["G"])
        except Exception:  # what can't be read fails in Python, where it is explained
            continue
        values = found_through_dicts(node, value)
        below |= values.keys()
        if sum(len(found.guards) for found in values) >= MIN_GUARDS and (lib := library()) is not None:
            table = Table(node, values, nodes, const, lib)
            if table.size >= MIN_GUARDS and table.count <= MAX_REGISTERS and table.function(value):
                table.take()
                made.append(table)
    return made


class Table:
    """The steps below one root, and the guards that they stand for (``taken``)."""

    def __init__(self, root: "_Node", values: dict["_Node", Any], nodes: dict[Source, "_Node"], const: "_Constants", lib: Library):
        self.root, self.values, self.nodes, self.const, self.lib = root, values, nodes, const, lib
        self.steps: list[tuple] = []
        self.metas: list[tuple[int, bytes]] = []
        self.taken: list[tuple["_Node", list]] = []
        self.kept: list[Any] = [torch.Tensor.requires_grad, torch.Tensor.is_neg]
        self.registers: dict["_Node", int] = {root: 0}
        self._dicts: dict["_Node", int] = {}
        self.count = 1
        for child in root.children:
            self._visit(child)
        self.function = self._function()

    # -- places ----------------------------------------------------------------------------------------------------
    def _visit(self, node: "_Node") -> None:
        """Steps for the guards of ``node`` and of what is read from it; none if it is not found through dicts."""
        if node in self.values:
            self._read(node)
            self._guards(node)
            for child in node.children:
                self._visit(child)

    def _register(self) -> int:
        self.count += 1
        return self.count - 1

    def _read(self, node: "_Node") -> None:
        source, parent = node.source, node.parent
        if isinstance(source, ItemSource):
            at, key = self.registers[parent], source.key
        else:
            at, key = self._own_dict(parent), source.attr
        self.registers[node] = into = self._register()
        self._step("ITEM", at, into, key=key)

    def _own_dict(self, node: "_Node") -> int:
        if node not in self._dicts:
            self._dicts[node] = self._register()
            self._step("OWN", self.registers[node], self._dicts[node])
        return self._dicts[node]

    def _step(self, op: str, at: int, into: int = 0, key: Any = None, expected: Any = None) -> bool:
        """Add a step; ``key`` and ``expected`` are objects of ours, or constants, and are kept alive."""
        self.kept += [key, expected]
        self.steps.append((OPS[op], at, into, id(key), id(expected)))
        return True

    def _compare(self, op: str, at: int, expected: Any) -> bool:
        """A comparison with an object that may be the user's, and is not kept alive: with it dies the whole check."""
        self.const(expected)
        if is_literal(expected):
            self.kept.append(expected)
        self.steps.append((OPS[op], at, 0, 0, id(expected)))
        return True

    # -- guards ----------------------------------------------------------------------------------------------------
    def _guards(self, node: "_Node") -> None:
        value, rest = self.values[node], node.guards
        if isinstance(value, torch.Tensor):
            mine = [pair for pair in rest if pair[0].kind in TENSOR_KINDS]
            kinds = {guard.kind for guard, _ in mine}
            if ALWAYS <= kinds and kinds & {"CONTIGUOUS", "STRIDE"} and self._tensor(node, value, kinds):
                self.taken.append((node, mine))
                rest = [pair for pair in rest if pair not in mine]
        mine = [pair for pair in rest if pair[0].kind in GUARDS and GUARDS[pair[0].kind](self, node, value, pair[0].value)]
        if mine:
            self.taken.append((node, mine))

    def _tensor(self, node: "_Node", value: torch.Tensor, kinds: set[str]) -> bool:
        out = (ctypes.c_int64 * 70)()
        if not self.lib.read or type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_complex():
            return False
        n = self.lib.describe(self.lib.read, value, ctypes.addressof(out))
        if n < 0 or tuple(out[6 : 6 + value.dim()]) != tuple(value.shape) or tuple(out[6 + value.dim() : n]) != value.stride():
            return False
        grad = value.requires_grad if "REQUIRES_GRAD" in kinds else -1
        numbers = (*out[:6], grad, "NOT_LAZY" in kinds, *out[6:n])
        self._compare("TYPE", self.registers[node], type(value))
        self.metas.append((len(self.steps), struct.pack(f"{len(numbers)}q", *numbers)))
        self.steps.append((OPS["TENSOR"], self.registers[node], 0, 0, 0))
        return True

    def _constant(self, node: "_Node", expected: Any) -> bool:
        at = self.registers[node]
        if isinstance(expected, SINGLETONS):
            return self._step("IS", at, expected=expected)
        if type(expected) is float or is_literal(expected):
            return self._step("SAME", at, expected=expected)
        return False

    def _keys(self, node: "_Node", value: Any, expected: Any) -> bool:
        keys = tuple(expected)
        return type(value) is dict and all(type(key) is str for key in keys) and self._step("KEYS", self.registers[node], expected=keys)

    def _plain(self, node: "_Node", value: Any) -> bool:
        own = self._own_dict(node)
        if not all(type(vars(value).get(name)) in DICTS for name in HOOKS):
            return False
        for name in HOOKS:
            self._step("ITEM_EMPTY", own, key=name)
        return self._step("LACKS", own, key="forward")

    def _training(self, node: "_Node", expected: Any) -> bool:
        return self._step("ITEM_IS", self._own_dict(node), key="training", expected=bool(expected))

    def _same_object(self, op: str, node: "_Node", other: Any) -> bool:
        """Whether two places hold one object, if this table has read the other one already."""
        place = self.nodes.get(other) if isinstance(other, Source) else None
        if place is None or place not in self.registers:
            return False
        self.steps.append((OPS[op], self.registers[node], self.registers[place], 0, 0))
        return True

    def _size(self, node: "_Node", value: Any, length: int) -> bool:
        if type(value) in SIZED:
            self._compare("TYPE", self.registers[node], type(value))
            return self._step("LENGTH", self.registers[node], length)
        return False

    # -- the whole -------------------------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        return sum(len(guards) for _, guards in self.taken)

    def take(self) -> None:
        """Remove the guards of the table from their nodes."""
        for node, mine in self.taken:
            node.guards = [pair for pair in node.guards if pair not in mine]

    def _function(self) -> Callable[[Any], bool]:
        """Header, steps and the numbers of tensors as one bytes object, bound to the interpreter."""
        steps, metas = list(self.steps), b""
        start = struct.calcsize("5q") * (1 + len(steps))
        for k, meta in self.metas:
            steps[k] = (*steps[k][:2], start + len(metas), 0, 0)
            metas += meta
        head = (len(steps), self.count, self.lib.read, *map(id, self.kept[:2]))
        return self.lib.make(b"".join(struct.pack("5q", *words) for words in (head, *steps)) + metas)


def _when(kinds: tuple[type, ...], op: str, with_key: bool = False) -> Callable[..., bool]:
    """A row for values of exactly these types."""

    def add(table: Table, node: "_Node", value: Any, expected: Any) -> bool:
        if type(value) not in kinds or with_key and type(expected) is not str:
            return False
        return table._step(op, table.registers[node], key=expected if with_key else None)

    return add


GUARDS: dict[str, Callable[[Table, "_Node", Any, Any], bool]] = {
    "NONE": lambda table, node, value, _: table._step("IS", table.registers[node], expected=None),
    "TYPE": lambda table, node, value, kind: table._compare("TYPE", table.registers[node], kind),
    "ID": lambda table, node, value, thing: table._compare("IS", table.registers[node], thing),
    "BOOL": lambda table, node, value, truth: table._step("IS", table.registers[node], expected=truth),
    "CONST": lambda table, node, value, constant: table._constant(node, constant),
    "ALIAS": lambda table, node, value, other: table._same_object("ALIAS", node, other),
    "TENSOR_ALIAS": lambda table, node, value, other: table._same_object("ALIAS", node, other),
    "NOT_ALIAS": lambda table, node, value, other: table._same_object("NOT_ALIAS", node, other),
    "LEN": lambda table, node, value, length: table._size(node, value, length),
    "EMPTY": _when(SIZED, "EMPTY"),
    "NOT_CONTAINS": _when(DICTS, "LACKS", with_key=True),
    "CONTAINS": _when(DICTS, "HAS", with_key=True),
    "DICT_KEYS": lambda table, node, value, keys: table._keys(node, value, keys),
    "DICT_LACKS": lambda table, node, value, name: table._step("LACKS", table._own_dict(node), key=name),
    "MODULE_TRAINING": lambda table, node, value, training: table._training(node, training),
    "PLAIN_MODULE": lambda table, node, value, _: table._plain(node, value),
}  # fmt: skip
"""What a table can check: each adds its steps and says True, or adds none and says False."""
