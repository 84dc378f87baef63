"""Command line of the bench.

    python -m minipt2.bench                                       all sample models against eager
    python -m minipt2.bench --peer torch.compile --json out.json  three side by side (minutes: the peer compiles for long)
    python -m minipt2.bench --device cuda --amp --mode reduce-overhead --peer torch.compile
    python -m minipt2.bench --device cuda --amp --kernels --models gpt2    bandwidth and floor of each kernel of a step
    python -m minipt2.bench --table out --device cuda --peer torch.compile --float32       every mode, phase and model on a GPU, from one command
    python -m minipt2.bench --bandwidth --device cuda --json out.json                      loops of 256 MB and more beside a copy
    python -m minipt2.bench --demo                                a CNN and a transformer, quick
    python -m minipt2.bench --models gpt2 --memory-budget         memory against time, a table and a plot
    python -m minipt2.bench --dynamic                             sizes that vary: versions, agreement, what symbolic sizes cost
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
from dataclasses import asdict
from typing import Any, Iterator

import torch
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .. import api, models
from ..report import measure
from . import bandwidth, budget, dynamic, gpu, kernels, zoo
from .runner import Row, run


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m minipt2.bench", description="eager, minipt2 and a peer, interleaved")
    parser.add_argument("--models", help=f"comma list of {', '.join(models.NAMES)} (default: all)")
    parser.add_argument("--phase", default="infer,train", help="infer, train or infer,train (default: both)")
    parser.add_argument("--peer", choices=["torch.compile"], help="measure it in the same rounds")
    parser.add_argument("--device", default="cpu", help="cpu (default), or cuda: wall clock, the work of the GPU included")
    parser.add_argument("--amp", action="store_true", help="under autocast to bfloat16")
    parser.add_argument("--mode", choices=api.MODES, help="of both compilers")
    parser.add_argument("--size", choices=models.SIZES, help="of the models: small for tests, bench (default) for timing, gpu (default there)")
    parser.add_argument("--rounds", type=int, default=15, help="steps timed for each contender (default: 15)")
    parser.add_argument("--threads", type=int, default=1, help="1: CPU time of the process; more: wall clock")
    parser.add_argument("--unpinned", action="store_true", help="leave malloc as it is (eager then pays for fresh pages)")
    parser.add_argument("--memory", action="store_true", help="peak memory of a step, in child processes")
    parser.add_argument("--warm", action="store_true", help="first calls of two processes: with an empty disk cache, and with what the first left there")
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--memory-budget", metavar="FILE", nargs="?", const="memory_budget.svg",
                        help="instead: the curve of memory against time over options={'memory_budget': ...}, drawn into FILE")
    parser.add_argument("--dynamic", action="store_true", help="instead: random sizes, compilations counted, dynamic beside static code; on one thread of a CPU")
    parser.add_argument("--kernels", action="store_true", help="instead: what each kernel of a step on a GPU reaches, beside the floor of its bytes")
    parser.add_argument("--bandwidth", action="store_true", help="instead: kernels of 256 MB and more, each compiled alone, beside a copy")
    parser.add_argument("--demo", action="store_true", help="resnet18 and gpt2, few rounds")
    gpu.parse_more(parser)
    args = parser.parse_args(argv)
    args.names = args.models.split(",") if args.models else list(zoo.NAMES if args.table else models.NAMES)
    if args.demo:
        args.names, args.rounds = ["resnet18", "gpt2"], 7
    args.more = zoo.MORE if args.table and not args.models else ()
    known = (*zoo.NAMES, *zoo.MORE) if args.table else models.NAMES
    unknown = {n for n in args.names if not (args.table and n.startswith("timm:"))} - set(known)
    if unknown:
        parser.error(f"no sample model {sorted(unknown)[0]!r}; there are {', '.join(known)}")
    args.modes = args.modes.split(",")
    if set(args.modes) - set(api.MODES):
        parser.error(f"--modes takes some of {', '.join(api.MODES)}")
    if args.rounds < 1 or args.threads < 1:
        parser.error("--rounds and --threads take a number from 1 up")
    try:
        args.device = str(torch.device(args.device))
    except RuntimeError:
        parser.error(f"--device takes cpu, cuda or cuda:1, not {args.device!r}")
    args.size = args.size or ("bench" if args.device == "cpu" else "gpu")
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {args.device}: torch sees no GPU here")
    if args.dynamic and args.device != "cpu":
        parser.error("--dynamic measures on the CPU")
    if args.kernels and args.device == "cpu":
        parser.error("--kernels looks at a GPU's kernels: --device cuda")
    args.phases = args.phase.split(",")
    if set(args.phases) - {"infer", "train"}:
        parser.error("--phase takes infer, train or infer,train")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    console = Console()
    if args.table:
        return gpu.main(args, console, machine())
    if args.bandwidth:
        return bandwidth.main(args, console, machine())
    if args.kernels:
        return kernels.main(args, console, machine())
    if args.memory_budget:
        return budget.main(args, console)
    if args.dynamic:
        return show_dynamic(args, console)
    pinned = not args.unpinned and measure.pin_malloc()
    rows = measure_all(args)
    show(table(rows, args.peer), console)
    for row in rows:
        if row.error:
            print(f"{row.model} {row.phase} failed: {row.error}")
    print(summary(rows, args, pinned))
    if args.json:
        settings = {k: getattr(args, k) for k in ("device", "amp", "mode", "size", "rounds", "threads")}
        write(args.json, {"machine": machine(), **settings, "pinned": pinned, "rows": [r.as_dict() for r in rows]})
    return 1 if any(row.error for row in rows) else 0


def show_dynamic(args: argparse.Namespace, console: Console) -> int:
    """Rows are printed, and kept in ``--json``, as they come: the table of all models takes long, and may be interrupted."""
    measure.pin_malloc()
    settings = {"machine": machine(), "size": args.size, "rounds": args.rounds}
    rows: list[dynamic.Row] = []
    cases = list(dynamic.cases(args))
    try:
        for k, (what, measured) in enumerate(cases, 1):
            with busy(f"{what} ({k} of {len(cases)})"):
                rows.append(measured())
            show(dynamic.table(rows[-1:], head=k == 1), console)
            if args.json:
                write(args.json, {**settings, "rows": [asdict(row) for row in rows]})
    except KeyboardInterrupt:
        print(f"interrupted after {len(rows)} of {len(cases)} rows")
    failures = [f"{row.model} {row.phase} failed: {row.error}" for row in rows if row.error]
    print(*failures, dynamic.summary(rows), sep="\n")
    return 130 if len(rows) < len(cases) else 1 if failures else 0


def write(path: str, found: dict[str, Any]) -> None:
    """``found`` as JSON at ``path``, where there is always a whole file."""
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w") as file:
        json.dump(found, file, indent=1)
    os.replace(beside, path)


@contextlib.contextmanager
def busy(text: str) -> Iterator[None]:
    """A spinner on a terminal's stderr while something is measured, elsewhere a line."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    if not console.is_terminal:
        print(text, file=sys.stderr, flush=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(text, total=None)
        yield


def measure_all(args: argparse.Namespace) -> list[Row]:
    """All rows, with a spinner on a terminal's stderr and a line for each row elsewhere."""
    rows: list[Row] = []
    cases = [(name, phase) for name in args.names for phase in args.phases]
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(cases))
        for k, (name, phase) in enumerate(cases, 1):
            text = f"{name} {phase}: compiling and timing ({k} of {len(cases)})"
            progress.update(task, description=text, advance=1)
            if not console.is_terminal:
                print(text, file=sys.stderr, flush=True)
            rows.append(measured(name, phase, args))
    return rows


def measured(name: str, phase: str, args: argparse.Namespace) -> Row:
    """A row, or a row that says what went wrong: one model's failure must not lose the others' results."""
    try:
        return run(name, phase, size=args.size, device=args.device, amp=args.amp, mode=args.mode, peer=bool(args.peer), rounds=args.rounds, threads=args.threads,
                   memory=args.memory, warm=args.warm)
    except Exception as error:
        return Row(name, phase, error=f"{type(error).__name__}: {error}")


def table(rows: list[Row], peer: str | None) -> Table:
    """One line a row; a column that no row fills is left out."""
    out = Table(title="time per step", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    lines = [cells(row, peer) for row in rows]
    for head in dict.fromkeys(head for line in lines for head in line):
        out.add_column(head, justify="left" if head in ("model", "phase") else "right", no_wrap=True)
    for line in lines:
        out.add_row(*(line.get(column.header, "") for column in out.columns))
    return out


def cells(row: Row, peer: str | None) -> dict[str, str]:
    """Head of a column -> text. Heads are broken by hand, so that the table without a peer fits 80 columns."""
    found = {"model": row.model, "phase": row.phase}
    if row.error:
        return {**found, "eager\nms": "failed"}
    found |= {"eager\nms": f"{row.ms['eager']:.2f}", "minipt2\nms": f"{row.ms['minipt2']:.2f}", "speed-\nup": f"{row.speedup['eager']:.2f}"}
    if peer:
        found |= {"peer\nms": f"{row.ms[peer]:.2f}", "over\npeer": f"{row.speedup[peer]:.2f}", "peer\nfirst s": f"{row.compile_s[peer]:.1f}"}
    found["first\ncall s"] = f"{row.compile_s['minipt2']:.2f}"
    if row.warm_s is not None:
        found |= {"cold\ncall s": f"{row.cold_s:.2f}", "warm\ncall s": f"{row.warm_s:.2f}"}
    found |= {"ker-\nnels": str(row.kernels), "breaks": str(row.breaks), "max\nerror": f"{row.max_error:.0e}" if row.max_error else "0"}
    if row.peak_mib:
        found["peak MiB\n(eager)"] = f"{row.peak_mib['minipt2']:.1f} ({row.peak_mib['eager']:.1f})"
    if peer in row.peak_mib:
        found["over peer's\npeak"] = f"{row.peak_mib['minipt2'] / max(row.peak_mib[peer], 1e-9):.2f}"
    return found


def show(out: Table, console: Console) -> None:
    """Print at the width the numbers need: a wrapped line can be read, an abbreviated number cannot."""
    needed = console.measure(out, options=console.options.update(max_width=1000)).maximum
    console.width = max(console.width, needed)
    console.print(out, crop=False, soft_wrap=False)


def summary(rows: list[Row], args: argparse.Namespace, pinned: bool) -> str:
    lines = []
    for phase in args.phases:
        good = [row for row in rows if row.phase == phase and not row.error]
        for who in ("eager", args.peer):
            if who and good:
                values = [row.speedup[who] for row in good]
                lines.append(f"{phase}: {measure.geometric_mean(values):.3f} times as fast as {who} (geometric mean of {len(values)}, worst {min(values):.2f})")
    clock = "process CPU time" if args.threads == 1 and args.device == "cpu" else "wall clock"
    where = f"{args.threads} thread(s)" if args.device == "cpu" else torch.cuda.get_device_name(args.device)
    kind = f"{'autocast to bfloat16' if args.amp else 'float32'}, mode {args.mode or 'default'}"
    lines.append(f"{where}, {kind}, {clock}, {args.rounds} interleaved rounds, "
                 f"freed pages {'kept (mallopt)' if pinned else 'left to malloc'}\n"
                 f"torch {torch.__version__}, Python {platform.python_version()}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    found = {"torch": torch.__version__, "python": platform.python_version(), "cpu": torch.backends.cpu.get_cpu_capability(),
             "processor": platform.machine()}
    return {**found, "gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else found


if __name__ == "__main__":
    sys.exit(main())
