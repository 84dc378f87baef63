"""Subscripts of tensors: what Python's ``x[...]`` takes besides tensors, slices and plain numbers, written as what does the same.

A number that varies (``x[:, k]``) selects before the rest is indexed, as eager does; C++ would ask for the number itself.
Upstream: ``torch/_dynamo/variables/tensor.py`` (``method___getitem__``).
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .base import Variable
from .constant import ConstantVariable
from .numbers import NumberVariable

if TYPE_CHECKING:
    from ..translator import Translator
    from .tensor import TensorVariable


def with_tensors(tx: "Translator", index: Variable) -> Variable:
    """``index`` with NumPy arrays as the tensors that indexing makes of them."""
    from .lists import TupleVariable
    from .misc import NumpyVariable

    if isinstance(index, NumpyVariable) and not index.is_constant():
        return index.as_tensor(tx)
    if type(index) is TupleVariable:
        return TupleVariable([with_tensors(tx, item) for item in index.items])
    return index


def selected(tx: "Translator", x: "TensorVariable", index: Variable) -> tuple["TensorVariable", Variable]:
    """``x`` and ``index`` without numbers that vary: ``x[k, None, 1:]`` is ``x.select(0, k).unsqueeze(0)[:, 1:]``."""
    from .lists import SliceVariable, TupleVariable

    items = list(index.items) if type(index) is TupleVariable else [index]
    varying = [k for k, item in enumerate(items) if isinstance(item, NumberVariable) and item.python_type() is int]
    used = [_dims_used(item) for item in items]
    if not varying or None in used:
        return x, index
    spread = next((k for k, item in enumerate(items) if item.is_constant() and item.as_python_constant() is Ellipsis), None)
    if spread is not None:
        used[spread] = x.value.dim() - sum(used)
    if sum(used) > x.value.dim() or spread is not None and used[spread] < 0:
        return x, index  # eager's error
    rest: list[Variable] = []
    dim = 0
    for k, item in enumerate(items):
        if k in varying:
            x = x.call_method(tx, "select", [ConstantVariable(dim), item], {})
            continue
        if item.is_constant() and item.as_python_constant() is None:  # now, as eager does: it shows in the strides
            x = x.call_method(tx, "unsqueeze", [ConstantVariable(dim)], {})
            item, used[k] = SliceVariable([ConstantVariable(None)]), 1
        rest.append(item)
        dim += used[k]
    return x, TupleVariable(rest) if rest else ConstantVariable(Ellipsis)


def _dims_used(item: Variable) -> int | None:
    """How many dimensions an item of a subscript indexes; None for what is not known here (lists). An ellipsis: those left."""
    from .ranges import SliceVariable
    from .tensor import TensorVariable

    if isinstance(item, TensorVariable):
        return item.value.dim() if item.value.dtype in (torch.bool, torch.uint8) else 1
    if isinstance(item, (NumberVariable, SliceVariable)):
        return 1
    value = item.as_python_constant() if isinstance(item, ConstantVariable) else NotImplemented
    return 1 if type(value) is int else 0 if value is None or value is Ellipsis else None
