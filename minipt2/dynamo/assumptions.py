"""Branches on data whose one way only raises: the graph assumes the other way, and the frame starts again where that was wrong.

    if not (scale > 0).all():       ->   assume(all, True)          in the graph
        raise ValueError(...)

Where the assumption turns out wrong, inputs and random state are put back as they were and the original bytecode, kept behind the new
code, runs in the same frame: its exception, text, line and side effects are eager's. An entry whose assumptions keep failing (somebody
catches the exception) is dropped, and its function compiled without them.
Upstream has nothing like it: ``torch/_dynamo`` breaks the graph here, and validation of distributions is off under it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence

import torch
from torch import fx

from .. import trace
from ..assume import ASSUME
from . import hook
from .bytecode import Handler, Instruction, clone, ops

if TYPE_CHECKING:
    from .translator import Program, Translator

MOST_FAILURES = 4
_WHEN = {"POP_JUMP_IF_TRUE": True, "POP_JUMP_IF_FALSE": False, "JUMP_IF_TRUE_OR_POP": True, "JUMP_IF_FALSE_OR_POP": False}
"""Conditional jumps, and the truth for which they jump."""
_CALLBACK = "__minipt2_callback"
_STATISTICS = ("batch_norm", "instance_norm")
"""Functions that write into operands without telling autograd."""


def expected_truth(tx: "Translator") -> bool | None:
    """The truth with which the jump that ``tx`` is at goes the way that does not only raise; None where neither or both do."""
    when = _WHEN.get(tx.current.op)
    if when is None or not tx.output.dynamism.assumes:
        return None
    program = tx.program
    jump_raises = only_raises(program, program.index[tx.current.target])
    if jump_raises == only_raises(program, program.index[tx.current] + 1):
        return None
    return when is not jump_raises


def only_raises(program: "Program", start: int) -> bool:
    """Whether every path from instruction number ``start`` ends in an exception raised on purpose (handlers of the code's own aside)."""
    seen: set[int] = set()
    work = [start]
    while work:
        i = work.pop()
        while i not in seen:
            seen.add(i)
            instr = program.instructions[i]
            if instr.op in ("RETURN_VALUE", "YIELD_VALUE"):
                return False
            if instr.op in ("RAISE_VARARGS", "RERAISE"):
                break
            if instr.target is not None:
                work.append(program.index[instr.target])
                if instr.op in ("JUMP", "JUMP_NO_INTERRUPT"):
                    break
            i += 1
    return any(program.instructions[i].op == "RAISE_VARARGS" for i in seen)


class Assumptions:
    """What a graph's assumptions need at run time. ``give_up``: called once they have failed too often."""

    def __init__(self, written: list[int], devices: list[torch.device]):
        self.written, self.devices, self.failures = written, devices, 0
        self.give_up: Callable[[], None] = lambda: None

    def failed(self) -> None:
        self.failures += 1
        trace.count("assumptions_failed")
        if self.failures == MOST_FAILURES:
            self.give_up()


def assumptions_of(graph: fx.Graph, inputs: list[Any]) -> Assumptions:
    """For a graph with assumptions: which of its inputs it writes, and whose random numbers it may draw."""
    values = [var.value for var in inputs]
    statistics = set(_statistics(graph))
    writes = any(node.meta.get("impure") and node.target is not ASSUME for node in graph.nodes)
    written = [k for k, (var, value) in enumerate(zip(inputs, values)) if isinstance(value, torch.Tensor) and (
               writes if value.is_inference() else version_of(value) != var.node.meta["version"] or var.node in statistics)]
    devices = {node.meta["val"].device for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)}
    return Assumptions(written, [device for device in devices if device.type == "cuda"])


def version_of(fake: torch.Tensor) -> int | None:
    """How often a tensor has been written; None for one made in inference mode, which does not count."""
    return None if fake.is_inference() else fake._version


def _statistics(graph: fx.Graph) -> Iterable[fx.Node]:
    for node in graph.nodes:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if any(part in name for part in _STATISTICS):
            operands = (*node.args[1:], *node.kwargs.values())
            yield from (n for n in operands if isinstance(n, fx.Node) and n.op == "placeholder")


def original_code(instructions: Sequence[Instruction], start: int) -> list[Instruction]:
    """A copy of a frame's instructions that begins with instruction number ``start``, during which nothing is captured."""
    def switch_capture(to: list[Instruction]) -> list[Instruction]:
        return [*ops.callable(ops.load_const(hook.set_callback)), *to, *ops.call(1)]

    body, _ = clone(instructions)
    back = [*switch_capture(ops.load_fast(_CALLBACK)), *ops.pop_top()]
    leave = [*back, Instruction("RERAISE", 1)]
    code = [*switch_capture(ops.load_const(None)), *ops.store_fast(_CALLBACK), *ops.jump(body[start])]
    for instr in body:
        instr.handler = instr.handler or Handler(leave[0], 0, lasti=True)
        code += [*clone(back)[0], instr] if instr.op == "RETURN_VALUE" else [instr]
    return [*code, *leave]


def run_assuming_maker(run: Callable[..., tuple], assumptions: Assumptions) -> Callable[..., tuple | None]:
    """``run``, a compiled graph's function; where it fails, None, and everything as it was before."""
    written, devices = assumptions.written, assumptions.devices

    def run_assuming(*args: Any) -> tuple | None:
        before = [args[k].detach().clone() for k in written]
        random = torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in devices]
        try:
            return run(*args)
        except Exception:  # an assumption that failed, or whatever came of going on before it was looked at: plain Python tells
            assumptions.failed()
        with torch.no_grad():
            for k, value in zip(written, before):
                args[k].copy_(value)
        torch.set_rng_state(random[0])
        for device, state in zip(devices, random[1]):
            torch.cuda.set_rng_state(state, device)
        return None

    return run_assuming


hook.never_capture_below(run_assuming_maker(len, Assumptions([], [])).__code__)
