"""Operators made of others that look at data on the way (to warn, or to choose): written out without that, and traced.

Upstream: ``torch/_dynamo/polyfills``.
"""
from __future__ import annotations

import itertools

import torch

from ..skip import transparent_code
from .base import unsupported
from .functions import UserFunctionVariable
from .numbers import NumberVariable
from .operators import binary_op
from .tensor import TensorVariable
from .torch_functions import handles


def covariance(x: torch.Tensor, correction: int) -> torch.Tensor:
    """``torch.cov`` without weights: rows are variables, columns observations."""
    rows = x.reshape(1, -1) if x.dim() < 2 else x
    centred = rows - rows.mean(1, True) if rows.is_floating_point() or rows.is_complex() else rows - rows.sum(1, True) / rows.shape[1]
    return (centred @ centred.t().conj() / max(rows.shape[1] - correction, 0)).squeeze()


def correlation(x: torch.Tensor) -> torch.Tensor:
    """``torch.corrcoef``."""
    c = covariance(x, 1)
    if c.dim() == 0:
        return c / c
    spread = (c.diag().real if c.is_complex() else c.diag()).sqrt()
    c = c / spread.view(-1, 1) / spread.view(1, -1)
    return torch.complex(c.real.clamp(-1, 1), c.imag.clamp(-1, 1)) if c.is_complex() else c.clamp(-1, 1)


def one_hot_of_any_width(x: torch.Tensor, classes: int) -> torch.Tensor:
    """``one_hot`` for a number of classes that C++ would have to know; a class out of range is an index out of range."""
    return torch.zeros((*x.shape, classes), dtype=torch.int64, device=x.device).scatter(-1, x.unsqueeze(-1), 1)


for _fn in (covariance, correlation, one_hot_of_any_width):
    transparent_code(_fn.__code__)


@handles(torch.cov)
def cov(tx, x, correction=None, fweights=None, aweights=None):
    correction = correction if correction is not None else tx.constant(1)
    if any(w is not None and not (w.is_constant() and w.as_python_constant() is None) for w in (fweights, aweights)):
        unsupported("MP102", "torch.cov with weights checks them", "compute it outside the compiled code, or weight the data")
    if x.value.dim() > 2 or x.value.numel() == 0 or x.value.dtype is torch.bool:
        return tx.output.call(tx, torch.cov, [x], {"correction": correction})  # eager's error
    return UserFunctionVariable(covariance).call(tx, [x, correction], {})


@handles(torch.corrcoef)
def corrcoef(tx, input):  # noqa: A002 (torch's name)
    if input.value.dim() > 2 or input.value.numel() == 0 or input.value.dtype is torch.bool:
        return tx.output.call(tx, torch.corrcoef, [input], {})
    return UserFunctionVariable(correlation).call(tx, [input], {})


@handles(torch.combinations)
def combinations(tx, input, r=None, with_replacement=None):  # noqa: A002
    r = 2 if r is None else r.as_python_constant()
    choose = itertools.combinations_with_replacement if with_replacement is not None and with_replacement.truth(tx) else itertools.combinations
    if input.value.dim() != 1 or r < 1 or type(input.value.shape[0]) is not int:
        unsupported("MP103", "torch.combinations of something other than a row", "use torch.cartesian_prod or indices")
    places = torch.tensor(list(choose(range(input.value.shape[0]), r)), dtype=torch.int64).reshape(-1, r)
    return input.call_method(tx, "__getitem__", [tx.output.literal_tensor(places)], {})


@handles(torch.nn.functional.one_hot)
def one_hot(tx, tensor, num_classes=None):
    """Without a number of classes it is one more than the largest, a size that depends on data."""
    given = num_classes if num_classes is not None else tx.constant(-1)
    if given.is_constant() and given.as_python_constant() == -1:
        largest = tx.output.call(tx, torch.max, [tensor], {}).call_method(tx, "item", [], {})
        given = binary_op(tx, "add", largest, tx.constant(1))
    if isinstance(given, NumberVariable) and tensor.value.dtype is torch.int64:
        return UserFunctionVariable(one_hot_of_any_width).call(tx, [tensor, given], {})
    return tx.output.call(tx, torch.nn.functional.one_hot, [tensor, given], {})


@handles(torch.tensor_split)
def tensor_split(tx, input, *places, **named):  # noqa: A002
    """Places in a tensor are read one by one; how many parts there are is in its shape. (A number of parts in a tensor is data: a break.)"""
    names = [n for n in ("tensor_indices_or_sections", "indices", "sections", "indices_or_sections") if n in named]
    at = places[0] if places else named[names[0]] if names else None
    if isinstance(at, TensorVariable) and at.value.dim() == 1 and at.value.dtype is torch.int64 and at.value.device.type == "cpu":
        rest = [*places[1:], *[v for k, v in named.items() if k == "dim"]]
        return tx.output.call(tx, torch.tensor_split, [input, at.call_method(tx, "tolist", [], {}), *rest], {})
    return tx.output.call(tx, torch.tensor_split, [input, *places], named)


def _of_numbers(function):
    """C++ makes tensors of plain numbers only; of symbolic ones they are made here, of the dtype that eager gives them."""

    def handler(tx, *args, **kwargs):
        made = args
        if not any(isinstance(a, TensorVariable) for a in (*args, *kwargs.values())) and any(isinstance(a, NumberVariable) for a in args):
            dtypes = {int: torch.int64, float: torch.get_default_dtype()}
            made = [tx.output.call(tx, torch.scalar_tensor, [a], {"dtype": tx.constant(dtypes[a.python_type()])})
                    if isinstance(a, NumberVariable) and a.python_type() in dtypes else a for a in args]
        return tx.output.call(tx, function, list(made), kwargs)

    return handler


for _fn in (torch.add, torch.sub, torch.mul, torch.div, torch.true_divide, torch.floor_divide):
    handles(_fn)(_of_numbers(_fn))
