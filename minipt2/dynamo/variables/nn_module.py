"""``nn.Module``s: a user object whose parameters, buffers and submodules live in three dicts, called through its hooks.

Modules are not specialised: guards name the class, ``training`` and what was read, so that one compiled block serves every
layer of that class. Parameters and buffers become graph inputs, marked static.
Upstream: ``torch/_dynamo/variables/nn_module.py`` (UnspecializedNNModuleVariable).
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules import module as nn_module

from ..source import AttrSource, ImportSource, ItemSource, OwnAttrSource
from . import builder
from .base import Variable, unsupported
from .classes import MISSING, class_attribute, class_member, guard_lacks, lookup
from .containers import const, is_none, new, observed
from .lists import TupleVariable, as_index
from .user_objects import UserObjectVariable, instance_dict

TABLES = ("_parameters", "_buffers", "_modules")
FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
MODULE_CALL = nn.Module.__call__  # somebody may replace it
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
                "_global_backward_pre_hooks")


def _only_wraps_call(cls: type, call: Any) -> bool:
    """Whether ``__call__`` of a class is ``Module.__call__`` in another coat: ``fx.GraphModule`` prints its code where a call fails."""
    wrapped = cls.__dict__.get("_wrapped_call")
    return issubclass(cls, fx.GraphModule) and wrapped is not None and wrapped.cls_call is None and (
        getattr(call, "__module__", None) == fx.GraphModule.__module__) and lookup(cls.__mro__[1], "__call__") is MODULE_CALL


class NNModuleVariable(UserObjectVariable):
    """A module; its class may override anything. One made while tracing (a loss, say) has no ``real`` and no parameters."""

    # -- attributes ------------------------------------------------------------------------------------------------
    def _missing(self, tx, name):
        found = self.registered(tx, name)
        if found is not None:
            return found
        raw = lookup(self.cls, "__getattr__")
        if raw is not nn.Module.__getattr__:
            return super()._missing(tx, name)
        self.lacks_registered(tx, name)
        raise observed(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def own_attribute(self, tx, name):
        found = super().own_attribute(tx, name)
        if found is None and tx.output.side_effects.load_attr(self, name) is None and lookup(self.cls, name) is MISSING:
            return self.registered(tx, name)
        return found

    def registered(self, tx, name: str) -> Variable | None:
        """A parameter, buffer or submodule."""
        if self.real is None:
            return self._registered_new(tx, name)
        own = instance_dict(self.real)
        for table in TABLES:
            contents = own.get(table, {})
            written = tx.output.side_effects.known(contents)
            if written is not None and written.mutable.changed:
                if (found := written.lookup(tx, const(name))) is not None:
                    return found
            elif name in contents:
                return self._table_item(tx, table, name)
        return None

    def _registered_new(self, tx, name: str) -> Variable | None:
        for table in TABLES:
            contents = tx.output.side_effects.load_attr(self, table)
            found = contents.lookup(tx, const(name)) if contents is not None else None
            if found is not None:
                return found
        return None

    def _table_item(self, tx, table: str, name: str) -> Variable:
        """One that nothing has written while tracing."""
        key = table, name
        if key not in self._attrs:
            source = ItemSource(AttrSource(self.source, table), name) if self.source is not None else None
            self._attrs[key] = builder.wrap(tx, instance_dict(self.real)[table][name], source)
        return self._attrs[key]

    def lacks_registered(self, tx, name: str) -> None:
        self.lacks(tx, name)
        guard_lacks(tx, self.cls, name)
        if self.source is not None:
            for table in TABLES:
                if name not in instance_dict(self.real).get(table, ()):  # else it was deleted while tracing
                    tx.output.guard(AttrSource(self.source, table), "NOT_CONTAINS", name)

    def _wrap_own(self, tx, name, value):
        if self.source is None or self.custom_getattribute or hasattr(self.cls, name):
            return super()._wrap_own(tx, name, value)
        if not self.cls.__module__.startswith("torch."):  # nobody puts a property over an attribute of torch's modules
            guard_lacks(tx, self.cls, name)
        return builder.wrap(tx, value, OwnAttrSource(self.source, name))

    def setattr(self, tx, name, value):
        if self.real is None or lookup(self.cls, "__setattr__") is not nn.Module.__setattr__:
            return super().setattr(tx, name, value)
        self._set(tx, name, value)

    def _set(self, tx, name, value):
        """``nn.Module.__setattr__``: buffers stay buffers; parameters and submodules are not replaced while tracing."""
        own = instance_dict(self.real)
        if name in own.get("_parameters", ()) or name in own.get("_modules", ()) and not is_none(value) or isinstance(
                value, NNModuleVariable) or issubclass(value.python_type(), nn.Parameter):
            unsupported("MP202", f"setting parameter or submodule {name!r} of {self.describe()}",
                        "register parameters and modules outside the compiled code")
        if name in own.get("_buffers", ()):
            if not issubclass(value.python_type(), (torch.Tensor, type(None))):
                raise observed(TypeError, f"cannot assign as buffer {name!r} (torch.Tensor or None expected)")
            self._set_registered(tx, "_buffers", name, value)
        elif name in own.get("_modules", ()):
            self._set_registered(tx, "_modules", name, value)
        else:
            self.store(tx, name, value)

    def _set_registered(self, tx, table: str, name: str, value: Variable) -> None:
        """Into the table, where the object's ``__dict__``, ``named_buffers()`` and later reads look for it."""
        if table == "_buffers" and nn_module._global_buffer_registration_hooks:
            unsupported("MP307", "hooks on the registration of buffers of all modules")
        self.require_source("setting")
        self.note_change(tx)
        if self.source is not None:
            tx.output.guard(AttrSource(self.source, table), "CONTAINS", name)
        self.getattr(tx, table).call_method(tx, "__setitem__", [const(name), value], {})

    def note_change(self, tx) -> None:
        """No other module of this class may turn out to be this one: it would have been written too."""
        tx.output.scratch("written modules")[self.cls] = None

    def emit_store_attr(self, cg, name):
        if self.real is not None and lookup(self.cls, "__setattr__") is nn.Module.__setattr__:
            cg.store_attr(name)
        else:
            super().emit_store_attr(cg, name)

    # -- calls -----------------------------------------------------------------------------------------------------
    def call(self, tx, args, kwargs):
        own_call = lookup(self.cls, "__call__")
        if own_call is not MODULE_CALL and not _only_wraps_call(self.cls, own_call):
            return super().call(tx, args, kwargs)
        if isinstance(self.real, torch.jit.ScriptModule):
            unsupported("MP309", f"call of a scripted module {self.describe()}", "compile the original module instead")
        class_member(tx, self.cls, "__call__", own_call)
        guard_no_global_hooks(tx)
        if self._has_hooks(tx):
            return self._call_with_hooks(tx, args, kwargs)
        forward = class_attribute(tx, self, self.cls, "forward") if "forward" not in instance_dict(
            self.real) else self.getattr(tx, "forward")
        return forward.call(tx, args, kwargs)

    def _has_hooks(self, tx) -> bool:
        own, effects = instance_dict(self.real), tx.output.side_effects
        if self.real is None:
            return any(effects.load_attr(self, table).items for table in FORWARD_HOOKS)
        if any(own.get(table) for table in BACKWARD_HOOKS):
            unsupported("MP307", f"backward hooks on {self.describe()}", "call the module outside the compiled code")
        tables = [own.get(table) for table in FORWARD_HOOKS]
        pending = any((var := effects.known(t)) is not None and var.mutable.changed for t in tables)
        if not any(tables) and not pending:
            if "forward" not in own:
                tx.output.guard(self.source, "PLAIN_MODULE", None)
            else:
                self._guard_empty(tx)
            return False
        return True

    def _guard_empty(self, tx) -> None:
        for table in (*FORWARD_HOOKS, *BACKWARD_HOOKS):
            if self.source is not None:
                tx.output.guard(AttrSource(self.source, table), "EMPTY", None)

    def _call_with_hooks(self, tx, args, kwargs):
        """What ``Module._call_impl`` does with the module's own forward hooks."""
        with_kwargs = self._hook_flags("_forward_pre_hooks_with_kwargs")
        for key, hook in self._hooks(tx, "_forward_pre_hooks"):
            if key in with_kwargs:
                result = hook.call(tx, [self, tx.tuple(args), tx.dict([(const(k), v) for k, v in kwargs.items()])], {})
                if not is_none(result):
                    positional, named = result.iterate(tx)
                    args, kwargs = positional.iterate(tx), {
                        k.as_python_constant(): v for k, v in named.pairs(tx)}
            else:
                result = hook.call(tx, [self, tx.tuple(args)], {})
                if not is_none(result):
                    args = result.items if isinstance(result, TupleVariable) else [result]
        out = self.getattr(tx, "forward").call(tx, list(args), dict(kwargs))
        with_kwargs = self._hook_flags("_forward_hooks_with_kwargs")
        for key, hook in self._hooks(tx, "_forward_hooks"):
            extra = [tx.dict([(const(k), v) for k, v in kwargs.items()])] if key in with_kwargs else []
            result = hook.call(tx, [self, tx.tuple(list(args)), *extra, out], {})
            out = out if is_none(result) else result
        return out

    def _hook_flags(self, table: str) -> set:
        return set(instance_dict(self.real).get(table, ()))  # none on modules made while tracing

    def _hooks(self, tx, table: str) -> list[tuple[Any, Variable]]:
        hooks = self.getattr(tx, table)
        return [(key, hook) for key, (_, hook) in hooks.items.items()]

    # -- containers of modules -------------------------------------------------------------------------------------
    def _uses(self, method: str, *classes: type) -> bool:
        """Whether ``method`` is torch's own for one of these container classes."""
        raw = lookup(self.cls, method)
        return any(raw is cls.__dict__.get(method, MISSING) for cls in classes)

    def submodules(self, tx) -> list[Variable]:
        return [value for _, value in self.getattr(tx, "_modules").items.values()]

    def iterate(self, tx):
        if self._uses("__iter__", nn.ModuleList, nn.Sequential):
            return self.submodules(tx)
        return super().iterate(tx)

    def iterator(self, tx):
        if self._uses("__iter__", nn.ModuleList, nn.Sequential):
            from .iterators import ItemsIterator

            return new(tx, ItemsIterator(self.submodules(tx)))
        return super().iterator(tx)

    def length(self, tx):
        if self._uses("__len__", nn.ModuleList, nn.Sequential, nn.ModuleDict):
            return self.getattr(tx, "_modules").length(tx)
        return super().length(tx)

    def binary(self, tx, op, other, reverse=False):
        if op == "getitem" and self._uses("__getitem__", nn.ModuleList, nn.Sequential):
            index = as_index(tx, other)
            if isinstance(index, slice):
                return SlicedModuleVariable(self, self.submodules(tx)[index])
            modules = self.submodules(tx)
            if not -len(modules) <= index < len(modules):
                raise observed(IndexError, f"index {index} is out of range")
            return modules[index]
        if op == "getitem" and self._uses("__getitem__", nn.ModuleDict):
            return self.getattr(tx, "_modules").getitem(tx, other)
        return super().binary(tx, op, other, reverse)

class SlicedModuleVariable(Variable):
    """``layers[1:3]`` of a ModuleList or Sequential: iterated or called in place, never handed out."""

    def __init__(self, owner: NNModuleVariable, modules: list[Variable], source=None):
        super().__init__(source)
        self.owner, self.modules = owner, modules

    def python_type(self) -> type:
        return self.owner.cls

    def children(self):
        return self.modules

    def iterate(self, tx):
        return list(self.modules)

    def iterator(self, tx):
        return tx.items_iterator(self.modules)

    def length(self, tx):
        return len(self.modules)

    def truth(self, tx):
        return bool(self.modules)

    def binary(self, tx, op, other, reverse=False):
        if op != "getitem" or reverse:
            return None
        index = as_index(tx, other)
        if isinstance(index, slice):
            return SlicedModuleVariable(self.owner, self.modules[index])
        return self.modules[index]

    def call(self, tx, args, kwargs):
        if lookup(self.owner.cls, "forward") is not nn.Sequential.forward:
            return super().call(tx, args, kwargs)
        value = args[0]
        for module in self.modules:
            value = module.call(tx, [value], {})
        return value

    def reconstruct(self, cg):
        cg.call_const(sliced_modules, [self.owner, TupleVariable(self.modules)])


def sliced_modules(owner: nn.Module, modules: tuple) -> nn.Module:
    """Run after a graph: a container of the owner's class holding some of its modules."""
    return type(owner)(*modules) if isinstance(owner, nn.Sequential) else type(owner)(list(modules))


def guard_no_global_hooks(tx) -> None:
    """Hooks registered for all modules: none now (else break), and none later (one guard a frame)."""
    seen = tx.output.scratch("global_hooks")
    if seen:
        return
    for table in GLOBAL_HOOKS:
        if getattr(nn_module, table):
            unsupported("MP307", "hooks registered for all modules", "remove global module hooks before compiling")
        tx.output.guard(ImportSource("torch.nn.modules.module", table), "EMPTY", None)
    seen[True] = True
