"""What each instruction does to the symbolic frame: one handler per canonical opcode, by family.

In: a translator and an ``Instruction``; out: changes of its stack, locals and next instruction. Called by ``translator``.
An opcode without a handler breaks the graph (MP404). Upstream: the ``BytecodeDispatchTableMeta`` methods of
``torch/_dynamo/symbolic_convert.py``.
"""
from __future__ import annotations

from ..bytecode import Instruction
from ..variables.base import unsupported
from .registry import HANDLERS, Handler
from . import calls, containers, control, exceptions, matching, names, operators, stack  # noqa: F401  (they register themselves)


def handler_for(instr: Instruction) -> Handler:
    return HANDLERS.get(instr.op, _missing)


def _missing(tx, instr: Instruction) -> None:
    unsupported("MP404", f"the bytecode instruction {instr.op}")


__all__ = ["HANDLERS", "handler_for"]
