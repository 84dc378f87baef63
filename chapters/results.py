"""Recorded measurements as pages: every ``site/results/*.json`` becomes one, with its tables, its machine and the command that made it."""
from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Iterator

from chapters.pays import COMPARED
from minipt2.report.reference import table

FOLDER = Path(__file__).parent.parent / "site" / "results"
BENCH = "bench_cpu"
COMMAND = f"python -m minipt2.bench --peer torch.compile --memory --warm --json site/results/{BENCH}.json"
CHAPTERS = "chapters_cpu"
CHAPTERS_COMMAND = f"python -m chapters.pays --controls --json site/results/{CHAPTERS}.json"
PLAIN = (str, int, float, bool, type(None))


def recorded() -> list[Path]:
    """The files, those of the bench first."""
    return sorted(FOLDER.glob("*.json"), key=lambda f: (not f.stem.startswith("bench"), f.stem))


def title(path: Path) -> str:
    text = path.stem.replace("_", " ").replace("h200", "on an H200").replace("cpu", "on a CPU")
    return text[:1].upper() + text[1:]


def page(path: Path) -> str:
    """One file as Markdown."""
    data = json.loads(path.read_text())
    day = f", {data.pop('date')}" if "date" in data else ""
    lines = [f"# {title(path)}", "", f"Taken on {_machine(data.pop('machine', 'a machine that was not noted'))}{day}."]
    lines += ["", *_bench(data)] if _is_bench(data) else ["", *_sections(data, 2)]
    return "\n".join([*lines, "", f"The numbers of this page as [JSON]({path.name})."]) + "\n"


def listing() -> str:
    """Links to the pages, and what is not recorded yet."""
    lines = [f"- [{title(p)}](results/{p.stem}.md)" for p in recorded()]
    if not (FOLDER / f"{BENCH}.json").exists():
        lines.append(f"- The bench on a CPU is not recorded in this copy of the site: `{COMMAND}` records it, and the next build shows it.")
    return "\n".join(lines)


def bench_table() -> str:
    """The CPU bench's summary, or how to record one."""
    path = FOLDER / f"{BENCH}.json"
    if not path.exists():
        return f"No bench is recorded in this copy of the site. `{COMMAND}` records one, and the next build shows it."
    data = json.loads(path.read_text())
    return "\n".join([f"Taken on {_machine(data['machine'])}: {_settings(data)}.", "", *_bench_rows(data)])


def pays_table(chapter: int | None = None) -> str:
    """What a chapter contributes (or each), from the record of its speed-up tests."""
    path = FOLDER / f"{CHAPTERS}.json"
    if not path.exists():
        return f"Nothing is recorded in this copy of the site. `{CHAPTERS_COMMAND}` records it, and the next build shows it."
    data = json.loads(path.read_text())
    controls = {(r["chapter"], r["model"]): f"{r['median']:.2f}" for r in data["rows"] if r["control"]}
    rows = [[*[f"{r['chapter']}: {COMPARED[r['chapter']]}"] * (chapter is None), f"`{r['model']}`", f"{r['median']:.2f}", f"{r['low']:.2f} to {r['high']:.2f}",
             controls.get((r["chapter"], r["model"]), ""), f"{r['floor']:.2f}"]
            for r in data["rows"] if not r["control"] and chapter in (None, r["chapter"])]
    runs = max(len(r["runs"]) for r in data["rows"])
    said = f"Times of {COMPARED[chapter]}. " if chapter is not None else "Ratios of times. "
    head = [*["chapter"] * (chapter is None), "model", "ratio", f"intervals of {runs} run{'s' * (runs > 1)}", "both sides alike", "must be above"]
    return "\n".join([f"{said}{_machine(data['machine'])}, one thread, {data['date']}:", "", *table(head, rows)])


# ------------------------------------------------------------------ what the bench writes
def _is_bench(data: dict[str, Any]) -> bool:
    return isinstance(data.get("rows"), list) and all(isinstance(r, dict) and "phase" in r and "speedup" in r for r in data["rows"])


def _bench(data: dict[str, Any]) -> Iterator[str]:
    options = [("--device", data.get("device"), "cpu"), ("--mode", data.get("mode"), None), ("--rounds", data.get("rounds"), 15), ("--threads", data.get("threads"), 1)]
    rows = data["rows"]
    given = [f"{name} {value}" for name, value, default in options if value not in (default, None)] + ["--amp"] * bool(data.get("amp"))
    given += ["--peer torch.compile"] * any("torch.compile" in r["speedup"] for r in rows) + ["--memory"] * any(r.get("peak_mib") for r in rows)
    given += ["--warm"] * any(r.get("warm_s") for r in rows) + ["--unpinned"] * (data.get("pinned") is False)
    yield from ["```sh", " ".join(["python -m minipt2.bench", *given, "--json", "out.json"]), "```", "", f"{_settings(data)}.", ""]
    yield from _bench_rows(data)
    failed = [r for r in rows if r.get("error")]
    yield from ["", *(f"- `{r['model']}` {r['phase']} failed: {r['error']}" for r in failed)] if failed else []
    yield from ["", "Geometric means of the speed-ups:", "", *_means(rows)]


def _settings(data: dict[str, Any]) -> str:
    threads = data.get("threads", 1)
    clock = "CPU time of the process" if threads == 1 and data.get("device", "cpu") == "cpu" else "wall clock"
    return (f"{threads} thread{'s' * (threads != 1)}, {clock}, {data.get('rounds', '?')} rounds in which the contenders take turns, models of size "
            f"`{data.get('size', 'bench')}`, malloc {'pinned' if data.get('pinned') else 'as it is'}")


def _peers(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(name for r in rows for name in r["speedup"]))


def _bench_rows(data: dict[str, Any]) -> list[str]:
    rows, out = data["rows"], []
    peers = _peers(rows)
    warm, peak = any(r.get("warm_s") for r in rows), any(r.get("peak_mib") for r in rows)
    contenders = list(dict.fromkeys(name for r in rows for name in r["ms"]))
    compiled = list(dict.fromkeys(name for r in rows for name in r["compile_s"]))
    head = ["model", "phase", *(f"{c} ms" for c in contenders), *(f"over {p}" for p in peers), *(f"{c}: first call s" for c in compiled), *["cold process s", "warm process s"] * warm,
            *["peak MiB (eager)"] * peak, "kernels", "breaks", "fallbacks", "max error"]
    for r in rows:
        memory = r.get("peak_mib") or {}
        out.append([f"`{r['model']}`", r["phase"], *(_number(r["ms"].get(c)) for c in contenders), *(_number(r["speedup"].get(p), 3) for p in peers),
                    *(_number(r["compile_s"].get(c)) for c in compiled), *[_number(r.get("cold_s")), _number(r.get("warm_s"))] * warm,
                    *[f"{_number(memory.get('minipt2'))} ({_number(memory.get('eager'))})" if memory else ""] * peak,
                    r["kernels"], r["breaks"], r["fallbacks"], _number(r["max_error"], 2)])
    return table(head, out)


def _means(rows: list[dict]) -> list[str]:
    peers, phases = _peers(rows), list(dict.fromkeys(r["phase"] for r in rows))
    out = []
    for phase in phases:
        found = [[r["speedup"][p] for r in rows if r["phase"] == phase and p in r["speedup"]] for p in peers]
        out.append([phase, *(f"{math.exp(sum(map(math.log, f)) / len(f)):.3f}, worst {min(f):.2f}" if f else "" for f in found)])
    return table(["phase", *(f"over {p}" for p in peers)], out)


def _machine(machine: Any) -> str:
    return ", ".join(f"{what.replace('_', ' ')} {value}" for what, value in machine.items()) if isinstance(machine, dict) else str(machine)


# ------------------------------------------------------------------ whatever else was recorded
def _sections(data: dict[str, Any], level: int) -> Iterator[str]:
    """Text as text, simple values as a table, like things as the rows of one; what is nested deeper gets a heading."""
    if "how" in data:
        yield from [f"{str(data['how'])[:1].upper()}{str(data['how'])[1:]}", ""]
    if "command" in data:
        yield from ["```sh", str(data["command"]), "```", ""]
    plain = {k: v for k, v in data.items() if _is_plain(v) and k not in ("how", "command")}
    if plain:
        yield from [*table(["what", "value"], [[_words(k), _text(v)] for k, v in plain.items()]), ""]
    for key, value in data.items():
        if _is_plain(value):
            continue
        yield from [f"{'#' * min(level, 6)} {_words(key)[:1].upper()}{_words(key)[1:]}", ""]
        records = [{"of": k, **v} for k, v in value.items() if isinstance(v, dict)] if isinstance(value, dict) else value
        if len(records) == len(value) and all(isinstance(r, dict) and all(map(_is_plain, r.values())) for r in records):
            yield from [*_records(records), ""]
        elif isinstance(value, dict):
            yield from _sections(value, level + 1)
        else:
            yield from [*(f"- {_text(v)}" for v in value), ""]


def _is_plain(value: Any) -> bool:
    """Fits into a cell."""
    return isinstance(value, PLAIN) or isinstance(value, list) and all(isinstance(v, PLAIN) for v in value)


def _records(records: list[dict]) -> list[str]:
    columns = list(dict.fromkeys(k for r in records for k in r))
    return table([_words(c) for c in columns], [[_text(r.get(c)) for c in columns] for r in records])


def _words(key: str) -> str:
    return str(key).replace("_", " ")


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{_words(k)} {_text(v)}" for k, v in value.items())
    return _number(value) if isinstance(value, float) else "" if value is None else str(value).replace("|", "\\|")


def _number(value: Any, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)
