"""Sources that only variables need: items past an overridden ``__getitem__``, raw class attributes, an iterator's rest."""
from __future__ import annotations

import copy
import itertools
from typing import Any

import torch

from ..source import HELPERS, ChildSource, Source, _HelperSource, source


def _dict_item(mapping: dict, key: Any) -> Any:
    return dict.__getitem__(mapping, key)


def _static_attr(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    raise AttributeError(name)


def copy_iterator(iterator: Any) -> Any:
    """An independent copy of an iterator over a container (one over other iterators would share and use them up)."""
    if type(iterator).__reduce__ is object.__reduce__:
        raise TypeError(f"a {type(iterator).__name__} cannot be copied")
    return copy.copy(iterator)


def _rest_item(iterator: Any, index: int) -> Any:
    return next(itertools.islice(copy_iterator(iterator), index, None))


def _rest_length(iterator: Any) -> int:
    return sum(1 for _ in copy_iterator(iterator))


def _raw_dict(obj: Any) -> dict:
    return object.__getattribute__(obj, "__dict__")


def _reduce_arg(iterator: Any, index: int) -> Any:
    return iterator.__reduce__()[1][index]


def _deref(reference: Any) -> Any:
    return reference()


HELPERS.update({f.__name__: f for f in (
    _reduce_arg, _deref, _raw_dict, _dict_item, _static_attr, _rest_item, _rest_length)})  # fmt: skip


@source
class DictItemSource(_HelperSource):
    """``dict.__getitem__(base, key)`` of a dict subclass that overrides it: ``DictItemSource(base, (key,))``."""

    helper = "_dict_item"


@source
class StaticAttrSource(_HelperSource):
    """A class attribute without descriptor binding: ``StaticAttrSource(cls, (name,))``."""

    helper = "_static_attr"


@source
class RestItemSource(_HelperSource):
    """The ``index``-th item that a copyable iterator will still give: ``RestItemSource(iterator, (index,))``."""

    helper = "_rest_item"


@source
class RestLengthSource(_HelperSource):
    """How many items a copyable iterator will still give."""

    helper = "_rest_length"


@source
class RawDictSource(_HelperSource):
    """An object's ``__dict__`` past an overridden ``__getattribute__``."""

    helper = "_raw_dict"


@source
class DerefSource(_HelperSource):
    """What a weak reference points to."""

    helper = "_deref"


@source
class ReduceArgSource(_HelperSource):
    """What a ``zip``, ``enumerate``, ``map`` or ``filter`` object holds: ``ReduceArgSource(iterator, (index,))``."""

    helper = "_reduce_arg"


@source
class CallSource(ChildSource):
    """What the function ``base`` returns for arguments given as sources or as text; the last ones go by the names ``keywords``."""

    arguments: tuple[Source | str, ...]
    keywords: tuple[str, ...] = ()

    def expr(self, base: str) -> str:
        names = [""] * (len(self.arguments) - len(self.keywords)) + [f"{name}=" for name in self.keywords]
        return f"{base}({', '.join(f'{name}{arg}' for name, arg in zip(names, self.arguments))})"

    def load(self, cg) -> None:
        cg.prepare_call(lambda: self.parent.load(cg))
        for arg in self.arguments:
            arg.load(cg) if isinstance(arg, Source) else cg.load_const(eval(arg, {"torch": torch}))
        cg.call(len(self.arguments), self.keywords)


HELPERS["torch"] = torch
