"""What one CPython version spells differently from the canonical instructions: a table, filled in by ``py311`` to ``py313``."""
from __future__ import annotations

import opcode
import sys
from dataclasses import dataclass, field
from typing import Mapping

COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")
ARITHMETIC = tuple(symbol for _, symbol in opcode._nb_ops)
"""Symbols of ``BINARY_OP`` by number: ``+ & // … += …``; the same in 3.11, 3.12 and 3.13."""


@dataclass(frozen=True)
class Dialect:
    """Fields name raw opcodes of the version on one side and canonical ones on the other."""

    version: tuple[int, int]
    name_bits: Mapping[str, int]
    """Raw opcodes whose number is ``name index << bits | flags``."""
    compare_shift: int
    """``COMPARE_OP`` holds ``operator << shift``, and below it, if ``shift`` > 0, a mask for the specialised forms."""
    compare_bool: int = 0
    """Bit of ``COMPARE_OP`` that turns its result into a bool; 0 if there is none."""
    renames: Mapping[tuple[str, int | None], tuple[str, int | None]] = field(default_factory=dict)
    """(raw, number or None for any) -> (canonical, number or None for the same)."""
    pairs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Fused raw opcodes and the two canonical ones they stand for."""
    directed: frozenset[str] = frozenset()
    """Canonical conditional jumps that can go both ways (``POP_JUMP_BACKWARD_IF_TRUE``); the others go forward only."""
    precall: bool = False
    """Calls are ``PRECALL n; CALL n``."""
    kw_names: bool = True
    """Keyword names come by ``KW_NAMES`` before ``CALL``, not on the stack before ``CALL_KW``."""
    null_first: bool = True
    """The NULL of a plain call lies under the callable, not above it."""
    to_bool: bool = False
    """Conditional jumps and ``UNARY_NOT`` want a bool: ``TO_BOOL`` comes first."""
    end_for: tuple[str, ...] = ("END_FOR",)
    """What stands at the end of a ``for`` loop."""
    function_attributes: bool = False
    """Defaults and closures are set by ``SET_FUNCTION_ATTRIBUTE``, not by ``MAKE_FUNCTION``."""
    closure_by_load_fast: bool = False
    """``LOAD_CLOSURE`` is written ``LOAD_FAST``."""
    convert_value: bool = False
    """``FORMAT_VALUE`` is written ``CONVERT_VALUE`` and ``FORMAT_SIMPLE`` or ``FORMAT_WITH_SPEC``."""
    merged_locations: bool = True
    """Neighbours with the same position share one entry in the line table."""


def current() -> Dialect:
    """The dialect of the running interpreter; raises ``ImportError`` for a CPython that has none."""
    if sys.version_info[:2] == (3, 11):
        from .py311 import DIALECT
    elif sys.version_info[:2] == (3, 12):
        from .py312 import DIALECT
    elif sys.version_info[:2] == (3, 13):
        from .py313 import DIALECT
    else:
        raise ImportError(f"minipt2 reads the bytecode of CPython 3.11 to 3.13, this is {sys.version.split()[0]}")
    return DIALECT
