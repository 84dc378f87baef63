"""Invariants of a ``Program``, checked between stages when ``config.verify_ir`` is on.

Upstream has no single counterpart; compare tinygrad's ``spec.py``.
"""
from __future__ import annotations

from typing import Callable

import torch

from ..ops import BINARY, UNARY
from ..sizes import is_size
from .body import Instr, LoopBody, Ref
from .buffers import Computed, Program

KNOWN = frozenset((*UNARY, *BINARY, "load", "store", "reduce", "constant", "scalar", "index_expr", "indirect", "masked", "to_dtype", "bitcast", "where", "valid", "random_bits"))


def verify(program: Program) -> None:
    """Raise AssertionError, with the buffer's name, for a program that cannot be executed as it stands."""
    table = program.by_name()
    complete = {b.name for b in (*program.inputs, *program.constants)}
    for buffer in program.buffers:
        missing = buffer.reads() - complete
        assert not missing, f"{buffer.name} reads {sorted(missing)} before they are made"
        unknown = buffer.writes() - table.keys()
        assert not unknown, f"{buffer.name} writes unknown buffers {sorted(unknown)}"
        if isinstance(buffer, Computed):
            assert buffer.writes(), f"{buffer.name} stores nothing"
            verify_body(buffer.body, buffer.name, lambda name: table[name].layout.dtype)
        complete |= buffer.writes()
    for output in program.outputs:
        assert output.ref is None or output.ref.buffer in complete, f"output {output.ref} is never made"


def verify_body(body: LoopBody, name: str, dtype_of: Callable[[str], torch.dtype] | None = None) -> None:
    """Known ops, every symbol a loop variable or defined by ``indirect``, every Ref defined before it is used, dtypes of loads and stores."""
    assert len(body.vars) == len(body.sizes) and len(body.rvars) == len(body.rsizes), f"{name}: variables and sizes differ in number"
    symbols, defined = set(body.vars + body.rvars), {}
    _verify(body.instrs, name, symbols, defined, dtype_of)


def _verify(instrs: tuple[Instr, ...], name: str, symbols: set, defined: dict[int, torch.dtype | None], dtype_of: Callable[[str], torch.dtype] | None) -> None:
    for i in instrs:
        where = f"{name}: {i.op} %{i.id}"
        assert i.op in KNOWN, f"{where} is no loop-level op"
        for ref in (a for a in i.args if isinstance(a, Ref)):
            assert ref.id in defined, f"{where} uses %{ref.id} before it is defined"
        if i.op in ("load", "store", "index_expr"):
            loose = {s for s in i.args[0 if i.op == "index_expr" else 1].free_symbols - symbols if not is_size(s)}
            assert not loose, f"{where} uses {loose}, which is no loop variable"
        if i.op == "load" and dtype_of is not None:
            assert dtype_of(i.args[0]) == i.dtype, f"{where} loads {i.dtype} from {i.args[0]}"
        if i.op == "store" and dtype_of is not None:
            assert dtype_of(i.args[0]) == defined[i.args[2].id], f"{where} stores {defined[i.args[2].id]} to {i.args[0]}"
        if i.op == "indirect":
            symbols.add(i.args[1])
        if i.op == "masked":
            inside = dict(defined)
            _verify(i.args[1].instrs, name, symbols, inside, dtype_of)
            assert i.args[1].result.id in inside, f"{where} ends with an unknown value"
        defined[i.id] = i.dtype
