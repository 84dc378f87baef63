"""The symbolic interpreter at work: an instruction a step, with the source line, the stack and the graph so far."""
from __future__ import annotations

import inspect
from types import CodeType
from typing import Any, Callable, Sequence

from ... import api, trace
from ...dynamo.bytecode import decode, listing
from ...dynamo.resume import is_resume_code
from ...dynamo.variables.base import Variable
from ..text import node as node_text
from .frame import Figure, Line, Pane, State

MOST_STEPS = 400
"""A loop of many turns is cut off here: the figure is to be looked at."""


def stepper(fn: Callable[..., Any], args: Sequence[Any], name: str = "stepper") -> Figure:
    """Compile ``fn`` for ``args`` with the eager backend and show every instruction on the way.

    ``data["stack"]`` holds the stack depth before each step, ``data["nodes"]`` the number of graph nodes, as the interpreter had them.
    """
    seen: list[tuple[CodeType, int, int | None, list[str], list[str], list[str]]] = []

    def listen(stage: str, where: str, tx: Any) -> None:
        if len(seen) >= MOST_STEPS or tx.root().hidden and tx.parent is None:
            return
        nodes = [node_text(n) for n in tx.output.graph.nodes]
        local = [f"{k} = {shown(v)}" for k, v in tx.locals.items()]
        seen.append((tx.code, tx.program.index[tx.current], tx.current.line, [shown(v) for v in tx.stack], local, nodes))
    _run(fn, args, listen)
    codes = list(dict.fromkeys(code for code, *_ in seen))
    numbers = {code: k for k, code in enumerate(codes)}
    graph = _growth([nodes for *_, nodes in seen])
    states = []
    for k, (code, at, line, stack, local, nodes) in enumerate(seen):
        c = numbers[code]
        op = decode(code)[at].op
        states.append(State(f"step {k + 1} of {len(seen)}: {op}" + f" in {code.co_qualname.rpartition('.')[2]}" * (len(codes) > 1),
                            {"now": [f"i{c}.{at}", f"s{_place(code)}.{line}"], "later": [f"g{t}" for t in graph if t not in nodes]},
                            {"stack": "\n".join(reversed(stack)) or "(empty)", "locals": "\n".join(local) or "(none)"}))
    panes = [Pane("source", _source(codes)), Pane("bytecode, one spelling for every CPython", _listing(codes, states)),
             Pane("stack before the step, top first", slot="stack"), Pane("locals", slot="locals"),
             Pane("FX graph so far", [Line(t, f"g{t}") for t in graph], wide=True)]
    return Figure(name, "The symbolic interpreter.", "Every instruction runs on variables: what is known about a value, not the value. Move the "
                  "slider, or click an instruction.", panes, states, "range", "instruction",
                  data={"stack": [len(s[3]) for s in seen], "nodes": [len(s[5]) for s in seen]})


def _run(fn: Callable[..., Any], args: Sequence[Any], listen: Callable[[str, str, Any], None]) -> None:
    unsubscribe = trace.subscribe(listen, "instruction")
    try:
        api.compile(fn, backend="eager")(*args)
    finally:
        unsubscribe()


def shown(value: Variable) -> str:
    """What the interpreter knows about a value, in a few words."""
    text = value.describe().replace("\n", " ")
    return f"{type(value).__name__.removesuffix('Variable')}: {text if len(text) < 60 else text[:57] + '...'}"


def _growth(graphs: list[list[str]]) -> list[str]:
    """Lines of the last graph of the frame, and of earlier ones, in order of appearance."""
    last = max(graphs, key=len)
    return last + [t for t in dict.fromkeys(t for g in graphs for t in g) if t not in last]


def _place(code: CodeType) -> str:
    """Where its function was written: what runs after a break has the place of the whole."""
    return f"{code.co_filename}:{code.co_firstlineno}"


def _source(codes: list[CodeType]) -> list[Line]:
    lines = []
    for place, code in {_place(code): code for code in reversed(codes)}.items():
        text, first = inspect.getsourcelines(code)
        lines[:0] = [Line(t.rstrip("\n"), f"s{place}.{first + k}") for k, t in enumerate(text)]
    return lines


def _listing(codes: list[CodeType], states: list[State]) -> list[Line]:
    first = {}
    for k, state in enumerate(states):
        first.setdefault(state.marks["now"][0], k)
    lines = []
    for c, code in enumerate(codes):
        lines += [Line(f"{code.co_qualname}{', after the break' * is_resume_code(code)}:")] if len(codes) > 1 else []
        kept = [k for k, i in enumerate(decode(code)) if i.op != "END_FOR"]
        lines += [Line(t, f"i{c}.{k}", goto=first.get(f"i{c}.{k}")) for k, t in zip(kept, listing(decode(code)).splitlines())]
    return lines
