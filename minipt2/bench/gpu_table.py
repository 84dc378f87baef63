"""What the table of a GPU came to: means, agreement and memory from its rows, for people and for pages.

``page`` makes what ``site/results`` records; ``summary`` and ``show`` what the command prints.
"""
from __future__ import annotations

import datetime
from typing import Any, Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from ..report.measure import geometric_mean

PEER = "torch.compile"
ROWS = ("each row is timed in a process of its own on the quiet card, its contenders in random order each round, medians of the rounds, ratios medians of "
        "per-round ratios; all were compiled before, in processes side by side. Agreement: no further from float64 than three times eager; in float32 the "
        "median over five draws of inputs (25 where a contender does not agree by then), and none further than ten times eager's farthest")
MEMORY = ("all that is allocated at the most, parameters and gradients included, in a process that has nothing else; where graphs are recorded, what the "
          "allocator has reserved: what a pool holds between calls it counts so")
FIRST = "seconds of the first step in a process that finds empty caches, and in the next one; cases side by side, contenders one after another"


def head(case: Any) -> dict[str, Any]:
    """What a row is of (``gpu.Case``)."""
    return {"model": case.model, "phase": case.phase, "mode": case.mode, "kind": "bf16 autocast" if case.amp else "float32"}


def means(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Geometric mean and the worst by mode, kind, phase and contender."""
    found: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        for who, ratio in row["over"].items():
            found.setdefault(f"{row['mode']}, {row['kind']}, {row['phase']}, over {who}", []).append((ratio, row["model"]))
    return {name: {"geometric mean": round(geometric_mean([r for r, _ in values]), 3), "worst": round(min(values)[0], 3), "worst model": min(values)[1],
                   "models": len(values)} for name, values in found.items()}


def memory(prepared: dict[str, dict[str, Any]], other: str = PEER) -> list[dict[str, Any]]:
    """Peak memory of each training step beside ``other``'s, of the same mode, or eager's."""
    found = []
    for key, ours in sorted(prepared.items()):
        name = key.removesuffix(" minipt2")
        model, phase, mode, kind = name.split() if key != name else ("", "", "", "")
        theirs = prepared.get(f"{name} {other}", {})
        # what a recorded graph's pool holds between calls the allocator counts as reserved alone
        which = "peak_mib" if mode == "default" else "reserved_mib"
        if phase == "train" and which in ours and which in theirs:
            found.append({"model": model, "mode": mode, "kind": kind, "minipt2 MiB": ours[which], f"{other} MiB": theirs[which],
                          f"over {other}": round(ours[which] / theirs[which], 3)})
    return found


def good(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rows if "over" in r and "minipt2" in r["ms"]]


def summary(rows: list[dict[str, Any]], prepared: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Geometric means and the worst, by mode, kind and phase; peak memory of training over the peer's; agreement."""
    timed = good(rows)
    wrong = [f"{r['model']} {r['phase']} {r['mode']} {r['kind']}" for r in timed if not r["agrees"].get("minipt2")]
    return {"rows": len(rows), "without figures": len(rows) - len(timed), "disagree": wrong, "speed": means(timed),
            "peak memory of a training step over the peer's": {f"{m['model']} train {m['mode']} {m['kind']}": m[f"over {PEER}"] for m in memory(prepared)}}


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a line of a table, for people and for pages."""
    found = {k: row[k] for k in ("model", "phase", "mode", "kind")}
    if "error" in row:
        return found | {"error": row["error"]}
    found |= {f"{who} ms": round(ms, 3) for who, ms in row["ms"].items()} | {f"over {who}": round(ratio, 3) for who, ratio in row["over"].items()}
    far = {f"{who} from float64": [float(f"{v:.2g}") for v in values] for who, values in row["far"].items()} | {
        "eager from float64": [float(f"{v:.2g}") for v in row["eager_far"]]}
    far |= {f"{who} from float64, by draw": [float(f"{d[-1]:.2g}") for d in draws] for who, draws in row.get("draws", {}).items()}
    told = {"agrees": ", ".join(who for who, good in row["agrees"].items() if good)} | {f"{who} failed": why for who, why in row["failed"].items()}
    return found | told | far | {k: row[k] for k in ("kernels", "breaks", "fallbacks")}


def page(about: dict[str, Any], rows: list[dict[str, Any]], prepared: dict[str, dict[str, Any]], first: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything, as ``site/results`` keeps it: ``about`` (machine, command, settings), means, a table for each mode and kind, memory, first calls."""
    timed = good(rows)
    found: dict[str, Any] = {**about, "date": datetime.date.today().isoformat(), "how": ROWS,
                             "agreement": f"{sum(bool(r['agrees'].get('minipt2')) for r in timed)} of {len(timed)} rows", "geometric means": means(timed)}
    for mode, kind in dict.fromkeys((r["mode"], r["kind"]) for r in rows):
        these = [flat(r) for r in rows if (r["mode"], r["kind"]) == (mode, kind)]
        columns = dict.fromkeys(k for r in these for k in r if isinstance(r[k], float))  # the same ones in every row
        found[f"{mode}, {kind}"] = {"rows": [{k: r.get(k) for k in dict.fromkeys(("model", "phase", *columns, *r)) if k not in ("mode", "kind")}
                                             for r in sorted(these, key=lambda r: (r["model"], r["phase"]))]}
    for title, rows_ in ((f"peak memory of a training step beside {PEER}", memory(prepared)), ("peak memory of a training step beside eager",
                                                                                           memory(prepared, "eager"))):
        if rows_:
            found[title] = {"how": MEMORY, "rows": rows_}
    if first:
        found["first calls of processes with empty and with full caches"] = {"how": FIRST, "rows": first}
    return found


def show(rows: list[dict[str, Any]], console: Console) -> None:
    out = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    heads = ["model", "phase", "mode", "kind", "eager ms", "minipt2 ms", f"{PEER} ms", "over eager", f"over {PEER}", "over minipt2 default", "agrees", "error"]
    for head in heads:
        out.add_column(head, no_wrap=True)
    for row in map(flat, rows):
        out.add_row(*(str(row.get(head, ""))[:60] for head in heads))
    console.width = max(console.width, 200)
    console.print(out)
