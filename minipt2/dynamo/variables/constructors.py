"""Making tensors while tracing: of numbers, of NumPy arrays, by the constructors of old; and torch's other classes that are called.

Upstream: ``torch/_dynamo/variables/torch.py``.
"""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch

from .base import Variable, unsupported
from .containers import ContainerVariable, const, constants, observed
from .numbers import NumberVariable
from .tensor import TensorVariable
from .torch_functions import HANDLERS, handles
from .tuples import SizeVariable


def _tensor_maker(function: Callable) -> Callable:
    def handler(tx, data, *args, **kwargs):
        from .misc import NumpyVariable, UnknownVariable

        if isinstance(data, NumpyVariable) and data.source is None:
            return from_array(tx, function, data.value, args, kwargs)
        if isinstance(data, NumpyVariable) and not data.is_constant() and "requires_grad" not in kwargs:
            shared = data.as_tensor(tx)
            if function is torch.tensor:
                shared = shared.call_method(tx, "clone", [], {})
            return tx.output.call(tx, torch.as_tensor, [shared, *args], kwargs) if args or kwargs else shared
        if isinstance(data, (NumpyVariable, UnknownVariable)) and not data.is_constant():
            unsupported("MP316", f"torch.{function.__name__} of {data.describe()}", "make tensors outside the compiled code")
        if not isinstance(data, TensorVariable) and _holds(TensorVariable, data):
            unsupported("MP102", f"torch.{function.__name__} of a list of tensors reads their data", "use torch.stack")
        if _holds(NumberVariable, data):
            return _tensor_of_numbers(tx, function, data, args, kwargs)
        return tx.output.call(tx, function, [data, *args], kwargs)

    return handler


def _tensor_of_numbers(tx, function: Callable, data: Variable, args, kwargs) -> Variable:
    """A tensor of numbers that vary: filled with them, so that none has to be known."""
    if args or kwargs.keys() - {"dtype", "device"}:
        unsupported("MP316", f"torch.{function.__name__} of numbers that vary, with more than a dtype and a device")
    if not isinstance(data, ContainerVariable):
        return tx.output.call(tx, torch.full, [tx.tuple([]), data], {"dtype": const(_DTYPES.get(data.python_type())), **kwargs})
    items = [_tensor_of_numbers(tx, function, item, (), kwargs) for item in data.iterate(tx)]
    dtype = functools.reduce(torch.promote_types, [item.value.dtype for item in items])
    return tx.output.call(tx, torch.stack, [tx.list([item.call_method(tx, "to", [const(dtype)], {}) for item in items])], {})


_DTYPES = {int: torch.int64, bool: torch.bool}  # and what torch.full makes of others


def from_array(tx, function: Callable, array: Any, args, kwargs) -> Variable:
    """A tensor from an array folded while tracing: a constant of the graph, copied so that every call gets its own."""
    known = constants(*args, *kwargs.values())
    if known is None:
        unsupported("MP316", f"torch.{function.__name__} of an array with arguments not known while tracing")
    value = fold_value(function, array, *known[:len(args)], **dict(zip(kwargs, known[len(args):])))
    return tx.output.literal_tensor(value.clone()).call_method(tx, "clone", [], {})


def fold_value(function: Callable, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:  # the traced program's own error
        raise observed(type(error), *error.args) from None


@handles(torch.from_numpy)
def from_numpy(tx, array):
    from .misc import NumpyVariable

    if not isinstance(array, NumpyVariable) or array.is_constant():
        unsupported("MP316", f"torch.from_numpy of {array.describe()}", "convert arrays outside the compiled code")
    return from_array(tx, torch.from_numpy, array.value, [], {}) if array.source is None else array.as_tensor(tx)


def legacy_tensor(dtype: torch.dtype | None) -> Callable:
    """``torch.Tensor(...)``, ``torch.LongTensor(...)``: data, or sizes of an uninitialised tensor."""

    def handler(tx, *args, **kwargs):
        kind = const(dtype or torch.get_default_dtype())
        data = bool(args) and not isinstance(args[0], NumberVariable) and not args[0].is_constant()
        if data and len(args) == 1 and not kwargs or args and isinstance(args[0].as_proxy(), (list, tuple)):
            if _holds(TensorVariable, args[0]) or isinstance(args[0], SizeVariable):
                unsupported("MP306", "a legacy tensor constructor of a tensor or size", "use torch.tensor, torch.empty or .to()")
            return tx.output.call(tx, torch.tensor, [args[0]], {"dtype": kind})
        return tx.output.call(tx, torch.empty, [tx.tuple(args)], {**kwargs, "dtype": kind})

    return handler


LEGACY = {torch.Tensor: None, torch.FloatTensor: torch.float32, torch.DoubleTensor: torch.float64, torch.HalfTensor: torch.float16,
          torch.LongTensor: torch.int64, torch.IntTensor: torch.int32, torch.BoolTensor: torch.bool, torch.ByteTensor: torch.uint8}
for _class, _dtype in LEGACY.items():
    HANDLERS[_class] = legacy_tensor(_dtype)


def _holds(kind: type, var: Variable) -> bool:
    from .lists import SequenceVariable

    if isinstance(var, SequenceVariable):
        return any(_holds(kind, item) for item in var.items)
    return isinstance(var, kind)


for _name in ("tensor", "as_tensor", "asarray"):
    HANDLERS[getattr(torch, _name)] = _tensor_maker(getattr(torch, _name))


@handles(torch.autograd.Variable)
def variable(tx, data=None, requires_grad=None, volatile=None):
    """Of the time before tensors were variables: ``data`` without its history."""
    if not isinstance(data, TensorVariable) or any(v is not None and constants(v) not in ((False,), (None,)) for v in (requires_grad, volatile)):
        unsupported("MP306", "a Variable that requires gradients", "use x.detach().requires_grad_() outside the compiled code")
    return data.call_method(tx, "detach", [], {})


@handles(torch.distributions.utils._lazy_property_and_property)
def lazy_property_of_class(tx, wrapped):
    """What a distribution's class gives for a property that its instances compute when asked."""
    from .misc import FrozenVariable

    return FrozenVariable(torch.distributions.utils._lazy_property_and_property(wrapped.as_python_constant()))
