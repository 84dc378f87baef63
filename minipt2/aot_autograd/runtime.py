"""What happens at each call: run the compiled forward, put back what the graph could not do, tell autograd.

Compiled functions run below autograd (no history, no view tracking, no autocast); what autograd must know is said by one
``torch.autograd.Function``. Everything that can be known ahead is known when the call starts.

Upstream: ``torch._functorch._aot_autograd.runtime_wrappers``.
"""
from __future__ import annotations

import functools
import threading
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import torch
from torch import fx

from .. import trace as events
from ..config import config
from ..errors import AssumptionFailed, Minipt2Error, PartlyWritten, Unsupported, warn
from ..exercise import exercise
from ..prims.core import TensorMeta
from ..prims.meta import same_layout
from .joint import Output
from .sizes import evaluated
from .twice import Again, OnlyOnce, refusal


def _keys(*names: str) -> torch._C.DispatchKeySet:
    keys = (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, n)) for n in names)
    return functools.reduce(lambda a, b: a | b, keys)


# Excluded while compiled code runs: history, view tracking and version counting, casts (they are in the graph already).
_ABOVE = _keys("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView", "AutocastCPU", "AutocastCUDA")
Compiler = Callable[[fx.GraphModule, list], Callable[[list], Sequence[Any]]]
MOST_BACKWARDS = 4
"""Backwards of one graph, for different sets of outputs that no loss used; for more, the gradients of what was not used are zeros."""


@dataclass
class Plan:
    """All that one compiled graph needs at run time. A copy for another process (``pickle``) lacks the functions."""

    forward: Callable[[list], Sequence[Any]]
    outputs: list[Output]
    updates: list[int]
    """Inputs whose new contents are the first results of ``forward``."""
    histories: dict[int, int]
    count: int
    """Results of ``forward`` after the updates that the caller sees; behind them come the saved tensors."""
    saved: list[tuple[bool, int]] = field(default_factory=list)
    """(is input, index): the saved tensors, as inputs of the call or results of ``forward``."""
    witnesses: list[int] = field(default_factory=list)
    """Values that share storage with a saved tensor: were they written in place, the backward would be wrong."""
    tangents: list[tuple[int, TensorMeta]] = field(default_factory=list)
    """(value, its tangent): which values have a gradient, and what it looks like."""
    frozen: list[int] = field(default_factory=list)
    """Values without gradient."""
    reach: list[int] = field(default_factory=list)
    """For each input, the tangents that its gradient depends on, as bits."""
    compile_backward: Callable[[tuple[int, ...]], Callable[[list], Sequence[Any]]] | None = None
    """``compile_backward(absent)``: the backward for calls in which no loss used some outputs, whose tangents ``absent`` are no inputs of it."""
    backward_graph: fx.GraphModule | None = None
    """What ``compile_backward`` compiles copies of."""
    repeatable: bool = False
    """Whether the captured graph may run a second time, and its values are the user's outputs."""
    again: Again | None = None
    """Gives gradients that can be differentiated, where the graph may run twice."""
    may_alias: list[int] = field(default_factory=list)
    """Written inputs that some call might pass in the storage of another input."""
    offsets: dict[int, Any] = field(default_factory=dict)
    """Inputs that the graph is right for only where they begin there in their storage."""
    uncounted: tuple[int, ...] = ()
    """Positions in ``updates`` of inputs whose version counters stay where they are."""
    numbers: list[int] = field(default_factory=list)
    """Inputs that are numbers: what the formulas above compute with, and the first inputs of the backward."""
    _backwards: dict[tuple[int, ...], Callable[[list], Sequence[Any]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def straight(self) -> bool:
        """Whether the values are the user's outputs as they are."""
        return not self.histories and self.outputs == [Output("value", i) for i in range(self.count)]

    def backward(self, inputs: list) -> Sequence[Any]:
        """Run the backward on numbers, saved tensors and tangents (None for an output that was not used); compiled when first asked for."""
        absent = tuple([k for k, x in enumerate(inputs) if x is None])
        if absent and absent not in self._backwards and len(self._backwards) >= MOST_BACKWARDS:
            numbers = self.numbers and inputs[:len(self.numbers)]
            first = len(inputs) - len(self.tangents)
            for k in absent:
                inputs[k] = _zeros(evaluated(self.tangents[k - first][1], numbers) if numbers else self.tangents[k - first][1])
            absent = ()
        function = self._backwards.get(absent)
        if function is None:
            with self._lock:
                function = self._backwards.get(absent)
                if function is None:
                    function = self._backwards[absent] = self.compile_backward(absent)
        if absent:
            given = [x for x in inputs if x is not None]
            inputs.clear()  # whoever is to run owns the tensors alone: their memory is free after their last use
            inputs = given
            del given
        return function(inputs)

    def __getstate__(self) -> dict[str, Any]:
        functions = dict.fromkeys(("forward", "compile_backward", "again", "_lock"))
        return {**self.__dict__, **functions, "backward_graph": None, "_backwards": {}}

    def complete(self, forward: Callable[[list], Sequence[Any]], compile_backward: Callable[[tuple[int, ...]], Any] | None) -> "Plan":
        """This plan, read from bytes, with its functions."""
        self.forward, self.compile_backward, self._lock = forward, compile_backward, threading.Lock()
        return self

    def run(self, args: tuple) -> Sequence[Any]:
        """The values (and behind them the saved ones), the inputs' contents put back."""
        tracked = torch.is_grad_enabled()
        torch._C._set_grad_enabled(bool(self.tangents))  # some kernels (oneDNN's LSTM) keep what the backward needs only then
        try:
            with torch._C._ExcludeDispatchKeyGuard(_ABOVE):
                results = self.forward(list(args))
        finally:
            torch._C._set_grad_enabled(tracked)
        updates = self.updates
        if not updates:
            return results
        put_back([args[i] for i in updates], results[:len(updates)], self.uncounted)
        return results[len(updates):]

    def finish(self, args: tuple, values: Sequence[Any]) -> tuple:
        """The user's outputs from the values: histories of written inputs, aliases, constants."""
        try:
            for i, position in self.histories.items():
                args[i].copy_(values[position])
            outputs: list[Any] = []
            numbers = self.numbers_of(args)
            for spec in self.outputs:
                outputs.append(outputs[spec.index] if spec.origin == "output" else _output(spec, args, values, numbers))
            return tuple(outputs)
        except Exception as error:
            if not (self.updates or self.histories):
                raise
            raise PartlyWritten("outputs could not be made") from error

    def numbers_of(self, args: Sequence[Any]) -> list:
        return [args[i] for i in self.numbers]

    def rescue(self, ctx: Any, tangents: Sequence[torch.Tensor | None], fault: Exception) -> list:
        """The gradients by eager kernels, where the compiled backward failed with ``fault``: what eager raises is the user's to see."""
        if config.raise_internal_errors:
            raise fault
        try:
            if ctx.remembered is None:
                raise refusal("its forward cannot be run again")
            grads = self.again.gradients(ctx.remembered, ctx.needs_input_grad[1:], tangents, create_graph=False)
        except Minipt2Error:
            fault.add_note("minipt2: raised by a compiled backward that cannot be run again on eager kernels; with backend='aot_eager' "
                           "these do all of the work, and tell whether the fault is ours")
            raise fault
        report_fallback("run a compiled backward", fault)
        return grads


def put_back(inputs: list[torch.Tensor], contents: Sequence[torch.Tensor], uncounted: Sequence[int] = ()) -> None:
    """Store ``contents`` in ``inputs``; where a kernel wrote there already only the version counter moves.

    uncounted: positions of inputs whose counter stays, because eager's write does not move it either.
    """
    counted = [old for k, (old, new) in enumerate(zip(inputs, contents)) if new is old and k not in uncounted]
    if counted:
        torch.autograd.graph.increment_version(counted)
    pairs = [(old.data if k in uncounted else old, new) for k, (old, new) in enumerate(zip(inputs, contents)) if new is not old]
    if pairs:
        with torch.no_grad():
            torch._foreach_copy_(*map(list, zip(*pairs)))


def report_fallback(what: str, error: Exception) -> None:
    """Count and tell that eager kernels do what compiled code could not."""
    events.count("aot_fallbacks")
    events.artifact("aot", "fallback", error)
    reason = error if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
    warn(f"minipt2 could not {what}, which therefore runs eagerly: {reason}")


def _output(spec: Output, args: tuple, values: Sequence[Any], numbers: list) -> Any:
    if spec.origin == "constant":
        return evaluated(spec.index, numbers)
    result = values[spec.index] if spec.origin == "value" else args[spec.index]
    if spec.detach:
        result = result.detach()
    for view in spec.views:
        result = view(result, numbers)
    return result


class Compiled(torch.autograd.Function):
    """Binds a compiled forward and backward together: ``Compiled.apply(plan, *args)`` -> the plan's values.

    It is one node of autograd's, whose saved tensors go all at once: outputs that are differentiated one after another need
    ``retain_graph=True`` where anything was saved, eager's only where their own graphs meet. A node for each output, or tensors kept until
    all have been differentiated, would cost every model a second backward graph, or its activations for as long as an output lives.
    """

    @staticmethod
    @exercise("3.5")
    def forward(ctx: Any, plan: Plan, *args: Any) -> tuple:
        """Run the forward graph and save what the backward needs, through autograd so that writes to it are noticed."""
        # >>> 3.5
        results = plan.run(args)
        saved = [args[i] if is_input else results[i] for is_input, i in plan.saved]
        ctx.save_for_backward(*saved, *(results[i].detach() for i in plan.witnesses))
        ctx.plan, ctx.numbers = plan, plan.numbers_of(args)
        ctx.remembered = plan.again.remember(args) if plan.again is not None else None
        ctx.set_materialize_grads(False)
        if plan.frozen:
            ctx.mark_non_differentiable(*(results[i] for i in plan.frozen))
        return tuple(results[:plan.count])
        # <<< 3.5

    @staticmethod
    @exercise("3.5")
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple:
        """Run the backward graph on the saved tensors and the tangents (None where an output was not used)."""
        # >>> 3.5
        plan: Plan = ctx.plan
        if all(t is None for t in tangents):  # who used the outputs needs no gradient of them (it detached them): not even what was saved
            return (None,) * len(ctx.needs_input_grad)
        if ctx.remembered is not None and torch.is_grad_enabled():  # create_graph=True
            return (None, *plan.again.gradients(ctx.remembered, ctx.needs_input_grad[1:], tangents))
        saved: Sequence[torch.Tensor] = ()
        if plan.saved or plan.witnesses:
            saved = ctx.saved_tensors[:len(plan.saved)]  # raises where eager would: a saved tensor was written in place, or has been freed
        ctx.maybe_clear_saved_tensors()
        inputs, numbers = [*ctx.numbers, *saved], ctx.numbers
        del saved
        given = sum([1 << k for k, (i, _) in enumerate(plan.tangents) if tangents[i] is not None])
        inputs += [_tangent(tangents[i], evaluated(like, numbers) if numbers else like) for i, like in plan.tangents]
        twice = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs[len(numbers):])
        try:
            with torch._C._ExcludeDispatchKeyGuard(_ABOVE):
                grads = plan.backward(inputs)
        except Exception as error:
            grads = plan.rescue(ctx, tangents, error)
        if given + 1 != 1 << len(plan.tangents):  # some output was not used
            grads = [g if reach & given else None for g, reach in zip(grads, plan.reach)]
        if twice:
            grads = OnlyOnce.apply(torch.empty(0, requires_grad=True), *grads)
        return (None, *grads)
        # <<< 3.5


def _tangent(given: torch.Tensor | None, like: TensorMeta) -> torch.Tensor | None:
    """``given`` in the strides that the backward was compiled for, its memory holding its values; None where the output was not used."""
    if given is None:
        return None
    dense = given.layout is torch.strided
    if dense and same_layout(like.shape, given.stride(), like.stride()) and not (
            given.is_neg() or given.is_conj() or given._is_zerotensor()):
        return given
    given = given if dense else given.to_dense()
    with torch.no_grad():
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(given)


def _zeros(like: TensorMeta) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).zero_()


def _misplaced(plan: Plan, args: tuple) -> bool:
    """Whether an input of this call lies where the graph does not expect it: at another offset, or, written, in the storage of another one."""
    if plan.offsets and any(args[i].storage_offset() != evaluated(o, plan.numbers_of(args)) for i, o in plan.offsets.items()):
        return True
    for i in plan.may_alias:
        place = args[i].untyped_storage().data_ptr()
        if place and any(k != i and isinstance(a, torch.Tensor) and a.untyped_storage().data_ptr() == place
                         for k, a in enumerate(args)):
            return True
    return False


def bind(plan: Plan, eager: Callable[..., Any]) -> Callable[..., tuple]:
    """The function to call: ``run(*args) -> tuple`` of the user's outputs.

    ``eager`` runs instead when inputs turn out to share storage or to lie elsewhere in it, and again where compiled code fails.
    """
    straight = plan.straight
    if plan.tangents:
        run = _training(plan, straight)
        if not torch.is_grad_enabled():  # the graph itself switches grad mode on, inside no_grad
            run = torch.enable_grad()(run)
    elif straight and not plan.updates:
        run = _plain(plan.forward)
    else:
        run = lambda *args: plan.finish(args, plan.run(args))  # noqa: E731
    run = _or_eager(run, eager)
    if not plan.may_alias and not plan.offsets:
        return run
    return lambda *args: tuple(eager(*args)) if _misplaced(plan, args) else run(*args)


def _from_saved_tensor_hooks(error: Exception) -> bool:
    """Whether a hook on saved tensors raised: autograd calls these once ``Compiled.forward`` is through (checkpointing stops so, early)."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return torch.autograd.Function.apply.__code__ in codes and Compiled.forward.__code__ not in codes


def _or_eager(run: Callable[..., tuple], eager: Callable[..., Any]) -> Callable[..., tuple]:
    """``run``; where it raises, eager kernels say whether the fault is the user's (theirs is then the exception) or ours."""
    def guarded(*args: Any) -> tuple:
        try:
            return run(*args)
        except PartlyWritten as error:
            fault: Any = error.__cause__
            fault.add_note("minipt2: raised by a compiled graph that had begun to write its results into its inputs")
            raise fault
        except AssumptionFailed:
            raise
        except Exception as error:
            if config.raise_internal_errors or _from_saved_tensor_hooks(error):
                raise
            fault = error
        results = tuple(eager(*args))
        report_fallback("run a compiled graph", fault)
        return results
    return guarded


def _plain(forward: Callable[[list], Sequence[Any]]) -> Callable[..., tuple]:
    def run(*args: Any) -> tuple:
        with torch._C._ExcludeDispatchKeyGuard(_ABOVE):
            return tuple(forward(list(args)))
    return run


def _training(plan: Plan, straight: bool) -> Callable[..., tuple]:
    def run(*args: Any) -> tuple:
        if torch.is_grad_enabled():
            values = Compiled.apply(plan, *args)
        else:
            values = tuple(plan.run(args)[:plan.count])
        return values if straight else plan.finish(args, values)
    return run
