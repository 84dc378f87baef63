"""Python bytecode as a list that can be read, cut and written again; needs nothing but the standard library.

In: a code object. Out: canonical ``Instruction`` lists (``decode``), code objects (``assemble``), which locals are live
where (``liveness``). Called by the symbolic interpreter (reads), by ``emit``, ``resume`` and the opcode handlers (write).
Upstream: ``torch/_dynamo/bytecode_transformation.py`` and ``bytecode_analysis.py``.

CPython 3.11, 3.12 and 3.13 spell the same program differently. ``decode`` folds what differs into one spelling, so that
the interpreter knows one instruction set, and keeps a note where the choice isn't implied, so that
``assemble(decode(code), code) == code`` holds for every function of the standard library. What is canonical:

- jumps have no direction (``JUMP``, ``POP_JUMP_IF_TRUE``) and point to an ``Instruction``;
- names, constants, comparison and arithmetic operators are the thing itself, not an index;
- ``POP_JUMP_IF_TRUE/FALSE`` and ``UNARY_NOT`` take the truth of any value (3.13's ``TO_BOOL`` is part of them);
- a call is one instruction: ``CALL n`` or ``CALL_KW (n, names)``, whatever comes before it on this CPython;
- 3.12's and 3.13's fused pairs are two instructions again; ``FOR_ITER`` pops its iterator when exhausted and its
  target may be an ``END_FOR``, which does nothing.

``py311``, ``py312`` and ``py313`` hold the differences as tables.
"""
from .assemble import AssembleError, assemble
from .decode import decode, decode_cached
from .instructions import Handler, Instruction, NO_POSITION, Position, clone, listing
from .liveness import liveness
from . import ops

__all__ = [
    "AssembleError", "Handler", "Instruction", "NO_POSITION", "Position", "assemble", "clone", "decode", "decode_cached",
    "listing", "liveness", "ops",
]
