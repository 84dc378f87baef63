"""Functions of torch that break the graph, and those that regions and optimisers call, taken apart.

Fills the handlers of ``torch_functions``. Upstream: ``torch/_dynamo/variables/torch.py`` and ``torch/_dynamo/trace_rules.py``.
"""
from __future__ import annotations

from typing import Callable

import torch

from .base import unsupported
from .containers import const
from .tensor import TensorVariable
from .torch_functions import handles, named


# -- refused -----------------------------------------------------------------------------------------------------------
def _refuse(code: str, what: str, advice: str) -> Callable:
    def handler(tx, *args, **kwargs):
        unsupported(code, f"call of {what}", advice)

    return handler


for _path in ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "random.manual_seed", "random.seed",
              "random.get_rng_state", "random.set_rng_state", "cuda.manual_seed", "cuda.manual_seed_all", "cuda.synchronize",
              "cuda.empty_cache", "save", "load", "set_default_dtype", "set_default_device", "set_num_threads", "set_printoptions",
              "use_deterministic_algorithms", "set_float32_matmul_precision", "set_grad_enabled_", "frombuffer",
              "utils.data.get_worker_info", "cuda.memory_allocated", "cuda.stream", "from_dlpack"):  # fmt: skip
    handles(*named(_path))(_refuse("MP312", f"torch.{_path}", "call it outside the compiled code"))


@handles(torch._foreach_addcdiv_)
def _foreach_addcdiv_(tx, tensors, numerators, denominators, scalars=None, **kwargs):
    """With its scalars in a tensor (Adam's step sizes), which the operator would read while tracing: element by element."""
    given = [tensors, numerators, denominators]
    if not isinstance(scalars, TensorVariable):
        return tx.output.call(tx, torch._foreach_addcdiv_, given + [scalars] * (scalars is not None), kwargs)
    for k, (target, *fraction) in enumerate(zip(*(v.iterate(tx) for v in given))):
        target.call_method(tx, "addcdiv_", fraction, {"value": tx.output.call(tx, torch.select, [scalars, const(0), const(k)], {})})
    return const(None)


@handles(torch._C._group_tensors_by_device_and_dtype)
def group_tensors(tx, lists, with_indices=None):
    """{(device, dtype of the first list's tensors): (the lists, with these tensors only, their places)}, for the foreach operators."""
    rows = [row.iterate(tx) for row in lists.iterate(tx)]
    groups: dict[tuple, list[int]] = {}
    for k, first in enumerate(rows[0]):
        if not isinstance(first, TensorVariable):
            unsupported("MP312", "a grouping of something that is no tensor")
        groups.setdefault((first.value.device, first.value.dtype), []).append(k)
    known = with_indices is not None and with_indices.truth(tx)
    parts = {key: tx.list([tx.list([row[k] for k in places if row]) for row in rows]) for key, places in groups.items()}
    return tx.dict([(tx.wrap_constant(key), tx.tuple([parts[key], tx.list(map(const, places if known else ()))])) for key, places in groups.items()])


@handles(*named("_dynamo.graph_break"))
def _graph_break(tx):
    """A break, but where ``torch.optim`` asks for one: for the sake of a compiler that would keep the gradients of a step."""
    if tx.f_globals.get("__name__") != "torch.optim.optimizer":
        unsupported("MP312", "torch._dynamo.graph_break")
    return const(None)


handles(*named("_pack_padded_sequence", "_pad_packed_sequence"))(_refuse(
    "MP103", "a function of packed sequences, whose sizes are in a tensor", "pack and unpack outside the compiled code, or mask padded sequences"))
for _path in ("autograd.grad", "autograd.backward", "autograd.functional.jacobian", "autograd.functional.hessian"):
    handles(*named(_path))(_refuse("MP317", f"torch.{_path}", "differentiate outside the compiled code"))
for _path in ("vmap", "func.vmap", "func.grad", "func.grad_and_value", "func.vjp", "func.jvp", "func.jacrev", "func.jacfwd",
              "func.hessian", "func.functional_call", "func.functionalize", "func.linearize", "compile", "export.export"):  # fmt: skip
    handles(*named(_path))(_refuse("MP313", f"torch.{_path}", "apply function transforms outside the compiled code"))


@handles(*named("utils.checkpoint.checkpoint"))
def checkpoint(tx, function, *args, **kwargs):
    """Runs the function inline; the partitioner saves nothing from inside (with a policy of the user's, ``context_fn``, what it likes)."""
    own = {"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"}
    rest = {k: v for k, v in kwargs.items() if k not in own}
    return function.call(tx, list(args), rest) if "context_fn" in kwargs else _in_region(tx, function, list(args), rest)


def _in_region(tx, function, args: list, kwargs: dict):
    """``function`` called as one checkpointed region; inside another one, as a part of that."""
    if tx.output.checkpoint is not None:
        return function.call(tx, args, kwargs)
    regions = tx.output.scratch("checkpoints")
    tx.output.checkpoint = regions[len(regions)] = len(regions)
    try:
        return function.call(tx, args, kwargs)
    finally:
        tx.output.checkpoint = None
