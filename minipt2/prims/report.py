"""``table()`` prints the set of prims; ``coverage()`` says which ATen overloads reduce to it. Readers of the tables, never called to compile."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator

import torch

from .core import TABLE, Prim
from .decompositions import decompositions
from .kinds import _overload_kind


class Table(dict):
    """All prims by name; printing it lists them by kind with schema and meaning."""

    def __str__(self) -> str:
        kinds = dict.fromkeys(prim.kind for prim in self.values())
        return "\n".join(line for kind in kinds for line in self._section(kind))

    def _section(self, kind: str) -> Iterator[str]:
        rows: list[Prim] = [prim for prim in self.values() if prim.kind == kind]
        yield f"{kind} ({len(rows)})"
        for prim in rows:
            yield f"  {prim.schema}\n      {prim.doc.splitlines()[0]}"

    __repr__ = __str__


def table() -> Table:
    """Every prim by name; ``print(table())`` shows kind, schema and documentation."""
    return Table(TABLE)


@dataclass
class Coverage:
    """ATen overloads by what ``expand`` does with them."""

    decomposed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Random operators and contractions: explicit fallbacks on purpose."""
    fallback: list[str] = field(default_factory=list)
    out_of_scope: dict[str, str] = field(default_factory=dict)
    """Overload -> why a functional graph never holds it."""

    def __str__(self) -> str:
        return (f"{len(self.decomposed)} decomposed, {len(self.kept)} kept on purpose, {len(self.fallback)} fallbacks, "
                f"{len(self.out_of_scope)} out of scope")


def coverage(core_only: bool = False) -> Coverage:
    """Sort every overload of ``torch.ops.aten`` (or those tagged core) by whether it reduces to prims."""
    result = Coverage()
    for packet_name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = packet_name.partition("::")
        if namespace != "aten":
            continue
        packet, _, overload_name = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload_name or "default", None)
        if isinstance(op, torch._ops.OpOverload) and (not core_only or torch.Tag.core in op.tags):
            _sort(op, name, result)
    return result


def _sort(op: torch._ops.OpOverload, name: str, result: Coverage) -> None:
    schema = op._schema
    if op in decompositions:
        result.decomposed.append(name)
    elif schema.is_mutable:
        result.out_of_scope[name] = "writes an argument: functionalised before"
    elif torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        result.out_of_scope[name] = "composite: autograd breaks it up before"
    elif not any("Tensor" in str(a.type) for a in (*schema.arguments, *schema.returns)):
        result.out_of_scope[name] = "no tensors"
    elif _overload_kind(op) in ("random", "contraction"):
        result.kept.append(name)
    else:
        result.fallback.append(name)
