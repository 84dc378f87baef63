"""Tuples, ``torch.Size``, named tuples and C struct sequences. Upstream: ``torch/_dynamo/variables/lists.py``."""
from __future__ import annotations

import torch

from .containers import BoundMethodVariable, const, fold, new
from .numbers import numbers
from .sequences import SequenceVariable


class TupleVariable(SequenceVariable):
    cls = tuple

    def as_proxy(self):
        return tuple(item.as_proxy() for item in self.items)

    def reconstruct(self, cg) -> None:
        for item in self.items:
            cg(item)
        cg.build("tuple", len(self.items))

    def call_method(self, tx, name, args, kwargs):
        if name == "__hash__":
            return fold(hash, self.as_python_constant())
        return super().call_method(tx, name, args, kwargs)


class SizeVariable(TupleVariable):
    """``torch.Size``: a tuple of known ints."""

    cls = torch.Size

    def kind(self) -> type:
        return tuple

    def rebuild(self, tx, items):
        return new(tx, (SizeVariable if numbers(*items) is not None else TupleVariable)(items))

    def as_proxy(self):
        return torch.Size(item.as_proxy() for item in self.items)

    def binary(self, tx, op, other, reverse=False):
        if op in ("add", "iadd") and isinstance(other, TupleVariable):
            left, right = (other, self) if reverse else (self, other)
            keeps_class = isinstance(left.cls((0,)) + right.cls((0,)), torch.Size)  # differs between torch versions
            return self.rebuild(tx, left.items + right.items) if keeps_class else new(
                tx, TupleVariable(left.items + right.items))
        return super().binary(tx, op, other, reverse)

    def m_numel(self, tx):
        from .builtin_functions import prod

        return prod(tx, self)

    def reconstruct(self, cg) -> None:
        cg.call_const(torch.Size, [TupleVariable(self.items)])


class NamedTupleVariable(TupleVariable):
    """A ``collections.namedtuple`` or a structseq such as ``torch.return_types.max``."""

    def __init__(self, items=None, source=None, real=None, cls: type = tuple):
        super().__init__(items, source, real)
        self.cls = cls

    def kind(self) -> type:
        return tuple

    def fields(self) -> tuple[str, ...]:
        return getattr(self.cls, "_fields", None) or structseq_fields(self.cls)

    def rebuild(self, tx, items):
        return new(tx, TupleVariable(items))

    def as_python_constant(self):
        values = [item.as_python_constant() for item in self.items]
        return self.cls(*values) if hasattr(self.cls, "_fields") else self.cls(values)

    def as_proxy(self):
        values = [item.as_proxy() for item in self.items]
        return self.cls(*values) if hasattr(self.cls, "_fields") else tuple(values)

    def getattr(self, tx, name):
        if name in self.fields() and not tx.output.side_effects.has_pending(self):
            return self.getitem(tx, const(self.fields().index(name)))
        if hasattr(self, "m_" + name):
            return BoundMethodVariable(self, name)
        if name == "_fields":
            return TupleVariable([const(f) for f in self.cls._fields])
        from .classes import class_attribute

        return class_attribute(tx, self, self.cls, name) or super().getattr(tx, name)

    def m__replace(self, tx, **changes):
        items = [changes.get(f, item) for f, item in zip(self.fields(), self.items)]
        return new(tx, NamedTupleVariable(items, cls=self.cls))

    def m__asdict(self, tx):
        from .dicts import DictVariable

        return new(tx, DictVariable.from_pairs(tx, [(const(f), i) for f, i in zip(self.fields(), self.items)]))

    def call_method(self, tx, name, args, kwargs):
        from .classes import user_defined

        if not hasattr(self, "m_" + name) and user_defined(self.cls, name):
            return self.getattr(tx, name).call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg) -> None:
        if hasattr(self.cls, "_fields"):
            cg.call_const(tuple.__new__, [const(self.cls), TupleVariable(self.items)])
        else:
            cg.call_const(self.cls, [TupleVariable(self.items)])


def structseq_fields(cls: type) -> tuple[str, ...]:
    """Names of a C struct sequence's items, in order (``torch.return_types.*``)."""
    names = [n for n, v in vars(cls).items() if type(v).__name__ == "member_descriptor"]
    return tuple(names[: getattr(cls, "n_sequence_fields", len(names))])
