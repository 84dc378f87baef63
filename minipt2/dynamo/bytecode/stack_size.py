"""How deep the stack gets: a walk over every path, exception handlers included."""
from __future__ import annotations

import dis

from .instructions import Instruction
from .spell import AssembleError, Unit

LEAVE = frozenset(dis.opmap[name] for name in (
    "RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT",
)) | {dis.opmap.get("RETURN_CONST", -1)}
"""After these, the next instruction isn't reached."""

EFFECTS = {dis.opmap["RETURN_GENERATOR"]: 1}
"""When the generator is resumed, the value sent in lies on its stack; ``dis`` says so from 3.13 on only."""


def stack_size(units: list[Unit], first: dict[Instruction, int]) -> int:
    """Most values on the stack at any time; raises ``AssembleError`` where a path pops from an empty stack."""
    if not units:
        raise AssembleError("no instructions")
    depths: dict[int, int] = {0: 0}
    work = [0]
    deepest = 0

    def reach(k: int, depth: int) -> None:
        nonlocal deepest
        if depth < 0:
            raise AssembleError(f"stack underflow before instruction {k}")
        deepest = max(deepest, depth)
        if depth > depths.get(k, -1):
            if k in depths and len(visits) > limit:
                raise AssembleError(f"the stack grows without end in a loop at instruction {k}")
            depths[k] = depth
            work.append(k)

    visits: list[int] = []
    limit = 8 * len(units) + 64
    while work:
        k = work.pop()
        depth = depths[k]
        while True:
            visits.append(k)
            unit = units[k]
            arg = unit.arg if unit.opcode >= dis.HAVE_ARGUMENT else None
            if unit.handler is not None:
                reach(first[unit.handler.target], unit.handler.depth + unit.handler.lasti + 1)
            if unit.target is not None:
                reach(first[unit.target], depth + dis.stack_effect(unit.opcode, arg, jump=True))
            if unit.opcode in LEAVE:
                break
            depth += EFFECTS.get(unit.opcode) or dis.stack_effect(unit.opcode, arg, jump=False)
            k += 1
            if k == len(units):
                raise AssembleError("the last instruction falls off the end")
            if 0 <= depth <= depths.get(k, -1):
                break
            reach(k, depth)
            work.pop()
    return deepest
