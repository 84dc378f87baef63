"""What each instruction does to the symbolic frame: one handler per canonical opcode, by family.

In: a translator and an ``Instruction``; out: changes of its stack, locals and next instruction. Called by ``translator``.
An opcode that is not followed breaks the graph (``refused``); none is without a handler. Upstream: the ``BytecodeDispatchTableMeta`` methods of
``torch/_dynamo/symbolic_convert.py``.
"""
from __future__ import annotations

from ..bytecode import Instruction
from .registry import HANDLERS, Handler
from . import calls, containers, control, exceptions, matching, names, operators, refused, stack  # noqa: F401  (they register themselves)


def handler_for(instr: Instruction) -> Handler:
    return HANDLERS[instr.op]


__all__ = ["HANDLERS", "handler_for"]
