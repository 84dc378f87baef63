"""Tensors: each is a node of the graph, with a fake tensor that knows its shape, dtype, strides and device.

Metadata questions (``x.shape``, ``x.dim()``) are answered while tracing; operations become nodes; anything that needs the
numbers (``x.item()``, ``if x:``) breaks the graph. Upstream: ``torch/_dynamo/variables/tensor.py``.
"""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...shapes.known import symbolic
from ..assumptions import expected_truth
from ..source import AnswerSource, AttrSource, TorchGlobalSource
from .base import Variable, unsupported
from .constant import ConstantVariable
from .exceptions import observed
from .indexing import selected, with_tensors
from .known_truth import known_truth
from .numbers import NumberVariable

if TYPE_CHECKING:
    from ..emit import Emitter
    from ..translator import Translator

# Attributes and argument-free methods that are facts about a (static) tensor.
FACTS = frozenset(
    "shape dtype device ndim layout requires_grad is_cuda is_cpu is_mps is_xpu is_meta is_sparse is_quantized is_mkldnn is_nested "
    "itemsize nbytes is_leaf is_sparse_csr output_nr names".split()
)
FACT_METHODS = frozenset(
    "size dim ndimension numel nelement stride is_contiguous element_size is_floating_point is_complex is_signed get_device "
    "storage_offset is_inference is_neg is_conj is_same_size has_names is_pinned dim_order __len__".split()
)
OPEN_FACTS = frozenset("requires_grad is_leaf output_nr names storage_offset is_inference has_names is_pinned".split())
"""Facts that a tensor's own guards may leave open: whoever asks for one gets a guard for it."""
DATA_METHODS = frozenset("item tolist numpy __bool__ __int__ __float__ __complex__ __index__ __array__ is_nonzero data_ptr".split())
BREAKING_METHODS = frozenset(
    "backward retain_grad register_post_accumulate_grad_hook share_memory_ pin_memory untyped_storage storage set_ resize_ "
    "resize_as_ apply_ map_ map2_ __reduce_ex__ __deepcopy__ as_subclass __dlpack__ detach_".split()
)
MOST_READ = 16
"""A tensor of more numbers is not read one by one (``tolist``): every number cuts the graph."""
VIEW_ATTRIBUTES = frozenset("T mT H mH real imag data grad_fn".split())
BINARY_REVERSIBLE = frozenset(
    "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge".split()
)
INPLACE = frozenset("iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift imatmul".split())


class TensorVariable(Variable):
    """A tensor. ``node`` computes it in the graph, ``value`` is its fake tensor; ``real`` the user's, when it is an input."""

    replaced = False  # its data were set, which is done after the graph

    def __init__(self, node: fx.Node, source: Any = None, real: torch.Tensor | None = None):
        super().__init__(source)
        self.node, self.real = node, real

    @property
    def value(self) -> torch.Tensor:
        return self.node.meta["val"]

    def python_type(self) -> type:
        return type(self.real) if self.real is not None else torch.Tensor

    def as_proxy(self) -> fx.Node:
        if self.replaced:
            unsupported("MP202", f"a use of {self.describe()} after its data were set", "use what they were set to, or set them last")
        return self.node

    def _may_be_given(self, value: Variable) -> bool:
        """Whether ``self.data = value`` can wait until the graph has run: an input, that goes on looking as it did."""
        if self.source is None or not isinstance(value, TensorVariable):
            return False
        mine, other = self.value, value.value
        return (mine.shape, mine.stride(), mine.dtype, mine.device) == (other.shape, other.stride(), other.dtype, other.device)

    def describe(self) -> str:
        return f"tensor {self.node.name}{self._where()}"

    __repr__ = describe

    # -- attributes ------------------------------------------------------------------------------------------------
    def getattr(self, tx: "Translator", name: str) -> Variable:
        pending = tx.output.side_effects.load_attr(self, name)
        if pending is not None:
            if pending is tx.output.side_effects.DELETED:
                raise observed(AttributeError, f"'Tensor' object has no attribute {name!r}")
            return pending
        if name == "grad":
            return self._grad(tx)
        if name in FACTS:
            if name in OPEN_FACTS and self.source is not None:
                tx.output.guard(AttrSource(self.source, name), "CONST", getattr(self.value, name))
            return tx.wrap_constant(getattr(self.value, name))
        if name == "__class__":
            return tx.wrap_constant(self.python_type())
        if name == "grad_fn" or name.startswith("_backward"):
            unsupported("MP201", f"attribute {name!r} of {self.describe()}", "autograd nodes exist only at run time")
        if name in VIEW_ATTRIBUTES:
            return tx.output.call(tx, getattr, [self, ConstantVariable(name)], {})
        if self.real is not None and name in getattr(self.real, "__dict__", ()):
            return tx.wrap_attribute(self.real.__dict__[name], self.source, name)
        if callable(getattr(torch.Tensor, name, None)):
            return TensorMethodVariable(self, name)
        if hasattr(torch.Tensor, name):
            unsupported("MP201", f"attribute {name!r} of {self.describe()}")
        if self.source is not None:
            tx.output.guard(self.source, "HASATTR", (name, False))
        raise observed(AttributeError, f"'Tensor' object has no attribute {name!r}")

    def _grad(self, tx: "Translator") -> Variable:
        if self.source is None or self.real is None:
            if self.value.is_leaf:
                return tx.constant(None)
            unsupported("MP201", f"attribute 'grad' of {self.describe()}")
        return tx.wrap_attribute(self.real.grad, self.source, "grad")

    def setattr(self, tx: "Translator", name: str, value: Variable) -> None:
        if name in ("requires_grad", "names", "_backward_hooks") or name == "data" and not self._may_be_given(value):
            unsupported("MP202", f"setting attribute {name!r} of {self.describe()}")
        self.replaced = self.replaced or name == "data"
        tx.output.side_effects.store_attr(self, name, value)

    # -- methods and operators -------------------------------------------------------------------------------------
    def call_method(self, tx, name, args, kwargs) -> Variable:
        if name == "item" and not args and not kwargs:
            return tx.output.call(tx, "item", [self], {}, op="call_method")
        if name == "tolist" and self._readable():
            return self._numbers(tx)
        if name in DATA_METHODS:
            unsupported("MP102", f"Tensor.{name}() needs the tensor's data", "keep values in tensors, or move this call out of the compiled code")
        if name in ("equal", "allclose", "tensor_split"):
            return tx.wrap_constant(getattr(torch, name)).call(tx, [self, *args], kwargs)
        if name in BREAKING_METHODS:
            unsupported("MP301", f"Tensor.{name}() cannot be part of a graph")
        if name in FACT_METHODS and all(a.is_constant() for a in (*args, *kwargs.values())):
            values = [a.as_python_constant() for a in args]
            keywords = {k: v.as_python_constant() for k, v in kwargs.items()}
            if name in OPEN_FACTS and self.source is not None:
                tx.output.guard(AnswerSource(AttrSource(self.source, name)), "CONST", getattr(self.value, name)())
            return tx.wrap_constant(getattr(self.value, name)(*values, **keywords))
        if name == "new" and len(args) == 1 and issubclass(args[0].python_type(), torch.Size):  # any other tuple would be data
            return self.call_method(tx, "new_empty", args, kwargs)
        if name == "type" and not args and not kwargs:
            return tx.constant(self.value.type())
        if name == "requires_grad_":
            return self._requires_grad(tx, args, kwargs)
        if name == "addcdiv_" and isinstance(kwargs.get("value"), TensorVariable):  # a number, which eager reads from the tensor
            if self.value.device.type == "cpu":  # in the order of eager's kernel
                change = tx.output.call(tx, torch.div, [tx.output.call(tx, torch.mul, [kwargs["value"], args[0]], {}), args[1]], {})
            else:
                change = tx.output.call(tx, torch.mul, [tx.output.call(tx, torch.div, args, {}), kwargs["value"]], {})
            return self.call_method(tx, "add_", [change], {})
        if name == "register_hook":
            from .autograd_function import register_hook

            return register_hook(tx, self, *args, **kwargs)
        if name == "__iter__":
            return self.iterator(tx)
        if name in ("__format__", "__repr__", "__str__"):
            unsupported("MP102", "formatting a tensor needs its data", "print outside the compiled code")
        if name == "__hash__":
            unsupported("MP211", "hash of a tensor")
        pending = tx.output.side_effects.load_attr(self, name)
        if pending is not None:
            return pending.call(tx, args, kwargs)
        if not hasattr(torch.Tensor, name):
            return self.getattr(tx, name).call(tx, args, kwargs)
        _guard_method(tx, name)
        target = self
        if name in ("__getitem__", "__setitem__"):
            target, index = selected(tx, self, with_tensors(tx, args[0]))
            args = [index, *args[1:]]
        result = tx.output.call(tx, name, [target, *args], kwargs, op="call_method")
        return tx.constant(None) if name in ("__setitem__", "__delitem__") else result

    def _readable(self) -> bool:
        """Whether there are few numbers, at the sizes at hand; a size that depends on data cannot be told."""
        hints = [n.node.hint if symbolic((n,)) else n for n in self.value.shape]
        return None not in hints and math.prod(hints) <= MOST_READ

    def _numbers(self, tx) -> Variable:
        """``tolist()``: every number on its own, as ``item`` reads it. How many there are is guarded: it is the length of a list."""
        if self.value.dim() == 0:
            return self.call_method(tx, "item", [], {})
        rows = [self.call_method(tx, "__getitem__", [ConstantVariable(k)], {}) for k in range(int(self.value.shape[0]))]
        from .containers import new
        from .lists import ListVariable

        return new(tx, ListVariable([row._numbers(tx) for row in rows]))

    def _requires_grad(self, tx, args, kwargs) -> Variable:
        wanted = [*args, *kwargs.values()]
        if bool(wanted[0].as_python_constant() if wanted else True) == self.value.requires_grad:
            return self
        unsupported("MP301", "Tensor.requires_grad_() changes whether gradients are recorded", "set requires_grad outside the compiled code")

    def binary(self, tx, op: str, other: Variable, reverse: bool = False) -> Variable | None:
        _guard_method(tx, f"__{'r' if reverse else ''}{op.strip('_')}__")
        if op in BINARY_REVERSIBLE:
            pair = [other, self] if reverse else [self, other]
            if not _graph_value(other):
                return None
            return tx.output.call(tx, getattr(operator, op), pair, {})
        if reverse:
            return None
        if op in INPLACE:
            return tx.output.call(tx, getattr(operator, op), [self, other], {}) if _graph_value(other) else None
        if op == "getitem":
            return tx.output.call(tx, operator.getitem, [*selected(tx, self, with_tensors(tx, other))], {})
        return None

    def unary(self, tx, op: str) -> Variable:
        _guard_method(tx, f"__{op.strip('_')}__")
        return tx.output.call(tx, getattr(operator, op), [self], {})

    # -- as a Python value -----------------------------------------------------------------------------------------
    def iterate(self, tx) -> list[Variable]:
        if self.value.ndim == 0:
            raise observed(TypeError, "iteration over a 0-d tensor")
        return tx.output.call(tx, "unbind", [self, ConstantVariable(0)], {}, op="call_method").iterate(tx)

    def iterator(self, tx) -> Variable:
        return tx.items_iterator(self.iterate(tx))

    def length(self, tx) -> int:
        if self.value.ndim == 0:
            raise observed(TypeError, "len() of a 0-d tensor")
        return self.value.shape[0]

    def truth(self, tx) -> bool:
        known = known_truth(self.node)
        if known is not None:
            return known
        expected = expected_truth(tx)
        if expected is not None and not symbolic(self.value.shape) and self.value.numel() == 1:
            tx.output.assume(self, expected)
            return expected
        unsupported(
            "MP101", f"data-dependent branch on {self.describe()}",
            "use torch.where, or compute the condition outside the compiled code",
        )  # fmt: skip

    def reconstruct(self, cg: "Emitter") -> None:
        cg.graph_output(self.node)


def _guard_method(tx: "Translator", name: str) -> None:
    """``torch.Tensor`` goes on having this very method (nobody replaces it)."""
    method = getattr(torch.Tensor, name, None)
    if method is not None:
        tx.output.guard(AttrSource(TorchGlobalSource("Tensor"), name), "ID", method)


class TensorMethodVariable(Variable):
    """``x.relu`` before the call."""

    def __init__(self, owner: TensorVariable, name: str, source: Any = None):
        super().__init__(source)
        self.owner, self.name = owner, name

    def python_type(self) -> type:
        return type(getattr(self.owner.value, self.name))

    def children(self):
        return (self.owner,)

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs) -> Variable:
        return self.owner.call_method(tx, self.name, args, kwargs)

    def getattr(self, tx, name) -> Variable:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return tx.constant(self.name)
        return super().getattr(tx, name)

    def reconstruct(self, cg: "Emitter") -> None:
        cg(self.owner)
        cg.load_attr(self.name)


def _graph_value(var: Variable) -> bool:
    return isinstance(var, (TensorVariable, ConstantVariable, NumberVariable)) or var.is_constant()


def wrap_output(tx: "Translator", node: fx.Node) -> Variable:
    """The variable(s) for a node's result: a tensor, a structure of tensors (``getitem`` nodes are added), or a constant."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        known = tx.output.variable_of(value)
        if known is not None:  # an in-place operation returns its own operand: same object, same variable
            return known
        return tx.output.remember(TensorVariable(node))
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        if not any(isinstance(leaf, torch.Tensor) for leaf in torch.utils._pytree.tree_leaves(value)):
            tx.output.drop(node)
            return tx.wrap_constant(value)
        return _wrap_sequence(tx, node, value)
    if isinstance(value, dict):
        unsupported("MP303", f"{node.target} returns a dict")
    tx.output.drop(node)
    return tx.wrap_constant(value)


def _wrap_sequence(tx: "Translator", node: fx.Node, value: Any) -> Variable:
    from .lists import ListVariable, NamedTupleVariable, TupleVariable

    items = [wrap_output(tx, tx.output.getitem(node, i)) if isinstance(item, (torch.Tensor, tuple, list))
             else tx.wrap_constant(item) for i, item in enumerate(value)]
    if isinstance(value, list):
        return tx.output.side_effects.track_new(ListVariable(items))
    if type(value) is not tuple:
        return NamedTupleVariable(items, cls=type(value))
    return TupleVariable(items)
