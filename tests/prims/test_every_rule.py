"""Every rule that PyTorch's samples or its own schema can reach: forward and gradient in float64, reduced with every rule, against eager.

``test_opinfo`` and ``test_library_rules`` hold the operators that are looked at closely; here are all others.
"""
import warnings

import pytest
import torch
from torch.utils import _pytree as pytree

from minipt2.prims import complete, expand

from .test_opinfo import BACKWARD, BY_NAME, FORWARD, LIBRARY, check
from .tracing import Untraceable, trace

D = torch.float64
SHARDS = 8
REST = sorted(n for n, op in BY_NAME.items() if n not in {*FORWARD, *BACKWARD, *LIBRARY} and D in op.dtypes
              and not n.startswith(("empty", "new_empty", "resize", "jiterator", "sparse", "to_sparse")))
"""Not: memory that nobody wrote, kernels compiled for GPUs, other layouts than strided."""
UNWRITTEN = frozenset("empty_like new_empty new_empty_strided".split())
"""Their numbers are whatever was there before."""
RELATED = frozenset("""log_sigmoid_backward _softmax_backward_data _log_softmax_backward_data _cdist_backward _pdist_backward _weight_norm_interface
    _weight_norm_interface_backward _cholesky_solve_helper _compute_linear_combination""".split())
"""Operators that believe their operands: any shapes, dtypes or results of a forward that it never was. Samples have fitting ones."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_operators_and_their_gradients(shard):
    wrong = {}
    for name in REST[shard::SHARDS]:
        op = BY_NAME[name]
        try:
            check(op, D, op.supports_autograd, samples=1, table=complete)
        except Exception as error:  # all are told of at once
            wrong[name] = f"{type(error).__name__}: {error}"
    assert not wrong, wrong


def given(kind, k):
    """An argument of a type of schemas, the ``k``-th of its operator; None for types that no value here fits."""
    tensors = [torch.linspace(0.2 + k / 8, 1.3 - k / 8, 12, dtype=D).view(3, 4), torch.tensor([0.6, 0.9], dtype=D)]
    return {"Tensor": tensors[0], "List[Tensor]": tensors, "number": 1.5, "List[number]": [1.5, 0.5], "float": 0.5, "int": 1, "bool": False}.get(kind)


def arguments(op):
    """Positional and keyword arguments without a default, or None."""
    required = [(k, a) for k, a in enumerate(op._schema.arguments) if not a.has_default_value()]
    values = [(a, given(str(a.type), k)) for k, a in required]
    if any(v is None for _, v in values):
        return None
    return [v for a, v in values if not a.kwarg_only], {a.name: v for a, v in values if a.kwarg_only}


def whole(x):
    return (x * 5).long() if isinstance(x, torch.Tensor) else int(x) if isinstance(x, float) else x


def accepted(op):
    """Arguments that eager takes: floats, else integers; None where it takes neither."""
    found = arguments(op)
    for cast in (lambda x: x, whole) if found is not None else ():
        args = pytree.tree_map(cast, found)
        try:
            op(*args[0], **args[1])
        except Exception:  # of any kind: what it refuses is no sample
            continue
        return args
    return None


def check_call(op, args, kwargs):
    """The gradient is that for tangents of ones, of operators that have one."""
    flat, spec = pytree.tree_flatten(args)
    at = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]

    def fn(*xs):
        values = list(flat)
        for i, x in zip(at, xs):
            values[i] = x
        outs = [o for o in pytree.tree_leaves(op(*pytree.tree_unflatten(values, spec), **kwargs)) if isinstance(o, torch.Tensor)]
        wanted = [o for o in outs if o.requires_grad]
        if wanted:
            outs += torch.autograd.grad(wanted, [x for x in xs if x.requires_grad], [torch.ones_like(o) for o in wanted], allow_unused=True)
        return outs

    for gradient in (True, False):
        tensors = [flat[i].clone().requires_grad_(gradient and flat[i].is_floating_point()) for i in at]
        torch.manual_seed(0)
        try:
            gm, eager = trace(fn, *tensors)
        except Untraceable:
            continue
        except (RuntimeError, NotImplementedError):  # no derivative
            if gradient:
                continue
            raise
        torch.manual_seed(0)
        with torch.no_grad():
            ours = expand(gm, complete)(*[t.detach() for t in tensors])
        for mine, theirs in zip(ours, eager, strict=True):
            torch.testing.assert_close(mine, theirs.detach(), equal_nan=True)
        return True
    return False


def test_overloads_by_their_schemas():
    """All that take tensors and numbers of any kind: elementwise operators in every form, reductions, lists of tensors."""
    wrong, checked = {}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in complete:
            if op._overloadpacket.__name__ in RELATED | UNWRITTEN or (found := accepted(op)) is None:
                continue
            try:
                checked += check_call(op, *found)
            except Exception as error:
                wrong[str(op)] = f"{type(error).__name__}: {error}"
    assert not wrong, wrong
    assert checked > 450
