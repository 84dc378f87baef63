"""Guards as a tree of sources, call by call: which version ran, which check turned the others away."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence

from ... import api, trace
from ...dynamo.guards import Check, GuardFn
from .frame import Figure, Line, Pane, State


def guard_tree(fn: Callable[..., Any], calls: Sequence[tuple], name: str = "guards", **settings: Any) -> Figure:
    """Call ``fn``, compiled (``settings`` as for ``compile``), with each of ``calls`` in turn.

    ``data["ran"]`` is the version that served each call, ``data["failed"]`` what ``GuardFn.explain`` said of every older version.
    """
    versions: list[GuardFn] = []
    unsubscribe = trace.subscribe(lambda stage, where, payload: versions.append(payload[1]), "guards")
    ran, failed, known = [], [], []
    try:
        compiled = api.compile(fn, backend="eager", **settings)
        for args in calls:
            local = dict(inspect.signature(fn).bind(*args).arguments)
            before = list(versions)
            compiled(*args)
            failed.append([guard.explain(local) for guard in before])
            ran.append(next((k for k, guard in enumerate(versions) if guard(local)), None))
            known.append(len(versions))
    finally:
        unsubscribe()
    states = [_state(k, versions, ran[k], failed[k], known[k]) for k, args in enumerate(calls)]
    panes = [Pane("calls, in order", [Line(f"{k + 1}. {_call(fn, args)}", f"c{k}", goto=k) for k, args in enumerate(calls)]),
             Pane("what happened", slot="what", wraps=True)]
    panes += [Pane(f"version {v}: its guards", _tree(v, guard.checks)) for v, guard in enumerate(versions)]
    return Figure(name, "Guards, call by call.", "A version runs only if every one of its checks holds. The check that failed is red; a call that no "
                  "version fits compiles a new one.", panes, states, "range", "call",
                  start=next((k for k, state in enumerate(states) if state.marks["bad"]), 0), data={"ran": ran, "failed": failed})


def _call(fn: Callable[..., Any], args: tuple) -> str:
    return f"{fn.__name__}({', '.join(map(_value, args))})"


def _value(value: Any) -> str:
    if not hasattr(value, "shape"):
        return repr(value)
    grad = ", requires grad" * value.requires_grad
    turned = "" if value.is_contiguous() else f", strides {tuple(value.stride())}"
    return f"{str(value.dtype)[6:]}{list(value.shape)}{turned}{grad}"


def _state(k: int, versions: list[GuardFn], ran: int | None, failed: list[str | None], known: int) -> State:
    marks: dict[str, list[str]] = {"now": [f"c{k}"], "bad": [], "good": []}
    told = []
    for v, reason in enumerate(failed):
        if reason is not None:
            marks["bad"] += [f"v{v}.{j}" for j, check in enumerate(versions[v].checks) if reason.startswith(str(check))][:1]
            told.append(f"Version {v} does not fit: {reason}.")
    if ran is None:
        told.append("No version fits.")
    elif len(failed) <= ran:
        told.append(f"Version {ran} was compiled for this call.")
    else:
        told.append(f"Version {ran} fits and runs.")
    if ran is not None:
        marks["good"] = [f"v{ran}.{j}" for j in range(len(versions[ran].checks))]
    marks["later"] = [f"v{v}.{j}" for v in range(known, len(versions)) for j in range(len(versions[v].checks))]
    return State(f"call {k + 1}", marks, {"what": "\n".join(told)})


def _tree(v: int, checks: list[Check]) -> list[Line]:
    """Checks in the order made, each source once, under the source it is read through."""
    lines, shown = [], []
    for j, check in enumerate(checks):
        depth = sum(1 for s in shown if check.source.startswith(s) and check.source != s)
        if check.source and check.source not in shown:
            shown.append(check.source)
            lines.append(Line("  " * depth + check.source))
        text = str(check).removeprefix(f"{check.source}: ") if check.source else f"process: {check}"
        lines.append(Line("  " * (depth + 1) * bool(check.source) + text, f"v{v}.{j}"))
    return lines
