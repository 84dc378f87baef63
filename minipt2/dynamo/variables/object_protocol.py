"""``obj.__dict__`` as a value, and the methods of ``object`` that user classes call through ``super()``."""
from __future__ import annotations

from ..source import AttrSource
from .base import Variable
from .containers import ContainerVariable, const, none, observed
from .dicts import DictVariable, pairs_of
from .operators import is_same
from .user_objects import UserObjectVariable, instance_dict


class ObjectDictVariable(ContainerVariable):
    """``obj.__dict__`` (or ``vars(obj)``): reads and writes go to the object's attributes."""

    cls = dict

    def __init__(self, owner: UserObjectVariable, source=None):
        super().__init__(source)
        self.owner = owner

    def children(self):
        return (self.owner,)

    def lookup(self, tx, key: Variable) -> Variable | None:
        name = key.as_python_constant()
        found = UserObjectVariable.own_attribute(self.owner, tx, name)
        if found is None:
            self.owner.lacks(tx, name)
        return found

    def names(self, tx) -> list[str]:
        owner, effects = self.owner, tx.output.side_effects
        names = list(instance_dict(owner.real))
        if owner.source is not None:
            tx.output.guard(AttrSource(owner.source, "__dict__"), "DICT_KEYS", tuple(names))
        pending = effects.attrs(owner)
        names += [n for n in pending if n not in names]
        return [n for n in names if pending.get(n) is not effects.DELETED]

    def snapshot(self, tx) -> Variable:
        pairs = [(const(n), UserObjectVariable.own_attribute(self.owner, tx, n)) for n in self.names(tx)]
        return tx.output.side_effects.track_new(DictVariable.from_pairs(tx, pairs))

    def pairs(self, tx):
        return self.snapshot(tx).pairs(tx)

    def iterate(self, tx):
        return [const(n) for n in self.names(tx)]

    def contains(self, tx, item) -> bool:
        return self.lookup(tx, item) is not None

    def binary(self, tx, op, other, reverse=False):
        if op == "getitem" and not reverse:
            found = self.lookup(tx, other)
            if found is None:
                raise observed(KeyError, other.as_python_constant())
            return found
        return self.snapshot(tx).binary(tx, op, getattr(other, "snapshot", lambda _: other)(tx), reverse)

    def call_method(self, tx, name, args, kwargs):
        effects = tx.output.side_effects
        if name == "get":
            found = self.lookup(tx, args[0])
            return found if found is not None else args[1] if len(args) > 1 else none()
        if name == "__setitem__":
            effects.store_attr(self.owner, args[0].as_python_constant(), args[1])
            return none()
        if name == "update":
            for other in args:
                for key, value in pairs_of(tx, other):
                    effects.store_attr(self.owner, key.as_python_constant(), value)
            for key, value in kwargs.items():
                effects.store_attr(self.owner, key, value)
            return none()
        if name in ("pop", "__delitem__"):
            found = self.lookup(tx, args[0])
            if found is None and len(args) > 1:
                return args[1]
            if found is None:
                raise observed(KeyError, args[0].as_python_constant())
            effects.delete_attr(self.owner, args[0].as_python_constant())
            return found
        if name in ("keys", "values", "items", "copy", "__len__", "__iter__"):
            return self.snapshot(tx).call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg) -> None:
        cg(self.owner)
        cg.load_attr("__dict__")


def _generic_getattr(tx, obj: UserObjectVariable, name: Variable) -> Variable:
    return obj.plain_getattr(tx, name.as_python_constant())


def _generic_setattr(tx, obj: UserObjectVariable, name: Variable, value: Variable) -> Variable:
    obj.store(tx, name.as_python_constant(), value)
    return none()


def _generic_delattr(tx, obj: UserObjectVariable, name: Variable) -> Variable:
    obj.remove(tx, name.as_python_constant())
    return none()


def _identity_eq(tx, obj: UserObjectVariable, other: Variable) -> Variable:
    return const(True if is_same(tx, obj, other) else NotImplemented)


def _identity_ne(tx, obj: UserObjectVariable, other: Variable) -> Variable:
    if not obj.compared_by_identity():
        equal = obj.special(tx, "__eq__", [other])
        return equal if equal.as_python_constant() is NotImplemented else const(not equal.truth(tx))
    equal = _identity_eq(tx, obj, other).value
    return const(equal if equal is NotImplemented else not equal)


OBJECT_METHODS = {
    "__init__": lambda tx, obj, *args, **kwargs: none(),
    "__init_subclass__": lambda tx, obj, *args, **kwargs: none(),
    "__getattribute__": _generic_getattr, "__setattr__": _generic_setattr, "__delattr__": _generic_delattr,
    "__eq__": _identity_eq, "__ne__": _identity_ne,
}
