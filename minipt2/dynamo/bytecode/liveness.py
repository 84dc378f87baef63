"""Which local variables are still needed where: a backward data-flow analysis over jumps and exception handlers."""
from __future__ import annotations

from typing import Sequence

from ...exercise import exercise
from .decode import CELL_OPS, LOCAL_OPS
from .instructions import Instruction

WRITES = frozenset({"STORE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL"})
LEAVE = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP", "JUMP_NO_INTERRUPT"})


@exercise("1.6")
def liveness(instructions: Sequence[Instruction]) -> list[frozenset[str]]:
    """For each instruction, the names of locals, cells and free variables that it or a successor may still read.

    A cell is live before anything that touches it (a store into a cell needs the cell). Inside a ``try`` what the
    handler reads is live throughout, as any instruction may raise.
    """
    # >>> 1.6
    names = {i.arg: 0 for i in instructions if i.op in LOCAL_OPS or i.op in CELL_OPS}
    bit = {name: 1 << k for k, name in enumerate(names)}
    place = {instr: k for k, instr in enumerate(instructions)}
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for k in range(len(instructions) - 1, -1, -1):
            instr = instructions[k]
            after = 0 if instr.op in LEAVE else live[k + 1]
            if instr.target is not None:
                after |= live[place[instr.target]]
            name = bit.get(instr.arg, 0) if instr.op in LOCAL_OPS or instr.op in CELL_OPS else 0
            if instr.op in WRITES:
                after &= ~name
            if name and instr.op != "STORE_FAST":
                after |= name
            if instr.handler is not None:
                after |= live[place[instr.handler.target]]
            if after != live[k]:
                live[k] = after
                changed = True
    sets = {mask: frozenset(name for name, b in bit.items() if mask & b) for mask in set(live)}
    return [sets[mask] for mask in live[:-1]]
    # <<< 1.6
