"""``--table``: the whole table of a GPU from one command, rows kept as they come.

First all contenders compile, many processes side by side, each filling its disk caches (compiling is the host's work and takes most of the time).
Then the rows: processes load a batch of cases from the caches, and one after another times its contenders on the card that nobody else uses.

    python -m minipt2.bench --table out --device cuda --modes default,reduce-overhead,max-autotune --float32 --peer torch.compile
"""
from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, IO, Iterable, Iterator

from rich.console import Console

from . import gpu_table as table
from . import zoo
from .gpu_table import PEER

ORDER = [(True, PEER), (True, "minipt2"), (False, "minipt2"), (False, PEER), (False, "eager")]
"""In which contenders compile, those that tune first; the peer takes longest, and is what a row can do without."""
CORES = 4
"""That a compiling process and its helpers share."""
PATIENT = 10
"""The niceness of processes that compile without tuning."""
FIRST_LIMIT = 200.0
"""Seconds for one first step."""
LOAD_LIMIT = 100.0
"""Seconds in which a process must have its contenders ready, or end."""


@dataclass(frozen=True)
class Case:
    """A row to be: a model in a phase and a mode, under autocast to bfloat16 or in float32."""

    model: str
    phase: str
    mode: str
    amp: bool
    contenders: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.model} {self.phase} {self.mode} {'bf16' if self.amp else 'float32'}"

    def job(self, task: str, args: argparse.Namespace, **more: Any) -> dict[str, Any]:
        return {"task": task, "model": self.model, "phase": self.phase, "mode": self.mode, "amp": self.amp, "device": args.device, "size": args.size,
                "rounds": args.rounds, **more}


@dataclass
class Child:
    """A worker and what it said."""

    case: Case
    process: subprocess.Popen
    log: IO[str]
    said: list[dict[str, Any]] = field(default_factory=list)

    def next(self, *events: str) -> dict[str, Any] | None:
        """Wait for one of ``events``; None when the process has ended without."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.said.append(json.loads(line))
                if self.said[-1]["event"] in events:
                    return self.said[-1]
        self.process.wait()
        return None

    def why(self) -> str:
        """How it ended, what it was at, and the end of its log."""
        last = self.said[-1] if self.said else {"event": "start"}
        self.log.flush()
        with open(self.log.name, errors="replace") as log:
            lines = [line.strip() for line in log if line.strip() and not line.startswith((" ", "Traceback"))]
        return f"exit {self.process.returncode} at {last['event']} {last.get('who', '')}: {lines[-1][:300] if lines else ''}"

    def stop(self) -> None:
        """End it and the processes that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended by itself
        self.process.wait()


def cases(args: argparse.Namespace) -> list[Case]:
    """Rows in order of importance: models in each mode, ``max-autotune`` in inference, beside our own default; in float32 training, tuned too
    (products in pieces); then ``args.more``, models in the default mode and in float32."""
    peer = (PEER,) if args.peer else ()
    found = []
    for mode in sorted(args.modes, key=lambda m: not m.startswith("max")):
        tuned = mode.startswith("max")
        found += [Case(model, phase, mode, True, ("minipt2", *["minipt2 default"] * tuned, *peer))
                  for model, phase in itertools.product(args.names, args.phases) if not (tuned and phase == "train")]
    if args.float32:
        found += [Case(model, "train", mode, False, ("minipt2",)) for mode in args.modes if mode.startswith("max") for model in args.names]
        found += [Case(model, "train", "default", False, ("minipt2",)) for model in args.names]
    if "default" in args.modes:
        found += [Case(model, phase, "default", True, ("minipt2", *peer)) for model, phase in itertools.product(args.more, args.phases)]
        found += [Case(model, "train", "default", False, ("minipt2",)) for model in args.more if args.float32]
    return found


def groups(wanted: list[Case]) -> list[list[Case]]:
    """``wanted`` in two parts: what takes longest to compile, training that is tuned, comes when all else is measured."""
    def long(case: Case) -> bool:
        return case.mode.startswith("max") and case.phase == "train"
    return [[c for c in wanted if not long(c)], [c for c in wanted if long(c)]]


class Run:
    """The two phases. ``folder``: where caches, logs and ``rows.json`` go; what an earlier run prepared there is not prepared again."""

    def __init__(self, args: argparse.Namespace, folder: Path, console: Console):
        self.args, self.folder, self.console, self.begin = args, folder, console, time.monotonic()
        self.prepared: dict[str, dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []
        self.first: list[dict[str, Any]] = []
        self.about: dict[str, Any] = {k: getattr(args, k) for k in ("device", "size", "rounds")}
        for name in ("logs", "cache"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if (folder / "prepared.json").exists():
            self.prepared = json.loads((folder / "prepared.json").read_text())

    def say(self, text: str) -> None:
        self.console.print(f"{time.monotonic() - self.begin:6.1f} s  {text}", highlight=False, soft_wrap=True)

    def keep(self) -> None:
        page = table.page(self.about, self.rows, self.prepared, self.first)
        for name, value in (("prepared", self.prepared), ("rows", self.rows), ("table", page)):
            (self.folder / f"{name}.json").write_text(json.dumps(value, indent=1))

    def start(self, case: Case, job: dict[str, Any], slot: int = 0, width: int = 0, cache: Path | None = None) -> Child:
        """A worker in a session of its own, on ``width`` cores (0: all of them); ``cache``: a folder for what it compiles."""
        cache = cache or self.folder / "cache"
        env = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", MINIPT2_CACHE_DIR=str(cache / "minipt2"),
                   TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"), TRITON_CACHE_DIR=str(cache / "triton"), TORCHINDUCTOR_COMPILE_THREADS=str(width or CORES))
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        name = f"{case.name} {job['task']} {job.get('who', len(job.get('contenders', ())))}.txt".replace("/", "_").replace(" ", "-")
        log = open(self.folder / "logs" / name, "w")
        cores = sorted(os.sched_getaffinity(0))
        process = subprocess.Popen([sys.executable, "-m", "minipt2.bench.worker", json.dumps(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=log, text=True, env=env, start_new_session=True)
        if width:
            os.sched_setaffinity(process.pid, {cores[(slot + k) % len(cores)] for k in range(width)})
        return Child(case, process, log)

    # ------------------------------------------------------------ compiling
    def prepare(self, wanted: Iterable[Case]) -> None:
        """All contenders of ``wanted``, tuned ones first and the peer last, ``args.more`` after the others, until ``--prepare-limit`` seconds are over,
        or ``--limit`` of all: what still compiles then is ended."""
        jobs: dict[str, tuple[tuple[bool, float], Case, str]] = {}
        for case in wanted:
            for who in ("eager", *case.contenders):
                name, _, other = who.partition(" ")
                alone = Case(case.model, case.phase, "default" if name == "eager" else other or case.mode, case.amp, ())
                tuned = alone.mode.startswith("max")
                key = f"{alone.name} {name}"
                if key not in self.prepared and not (name == "eager" and case.phase == "infer"):
                    rank = (case.model not in self.args.names, ORDER.index((tuned, name)) - (case.phase == "train") / 2)
                    jobs.setdefault(key, (rank, alone, name))
        todo = sorted(jobs.items(), key=lambda item: item[1][0])
        cores = len(os.sched_getaffinity(0))
        slots: queue.Queue[int] = queue.Queue()
        count = min(self.args.slots or max(cores - 4, 1), len(todo) or 1)
        for k in range(count):
            slots.put(k * cores // count)
        end = min(time.monotonic() + self.args.prepare_limit, self.begin + self.args.limit)
        self.say(f"preparing {len(todo)} in {count} processes at a time")

        def one(item: tuple[str, tuple[Any, Case, str]]) -> None:
            key, (_, case, who) = item
            slot = slots.get()
            try:
                if time.monotonic() < end:
                    self._prepare(key, case, who, slot, min(CORES * (2 if case.mode.startswith("max") else 1), cores), end)
            finally:
                slots.put(slot)
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(one, todo))
        self.say(f"prepared {sum('first_s' in v for v in self.prepared.values())} of {len(todo)} (and earlier)")

    def _prepare(self, key: str, case: Case, who: str, slot: int, width: int, end: float) -> None:
        child = self.start(case, case.job("prepare", self.args, who=who), slot, width)
        if not case.mode.startswith("max"):  # what tunes, product after product, takes longest, and goes first
            os.setpriority(os.PRIO_PROCESS, child.process.pid, PATIENT)
        found = _within(child, end, "prepared")
        child.stop()
        if found is None:
            late = time.monotonic() >= end
            self.say(f"{key}: {'not in time' if late else child.why()}")
            if not late:
                self.prepared[key] = {"error": child.why()}
        else:
            self.prepared[key] = {k: v for k, v in found.items() if k != "event"}
            self.say(f"{key}: {found['first_s']} s")
        self.keep()

    def ready(self, case: Case) -> Case:
        """``case`` with those of its contenders that are in the caches."""
        def done(who: str) -> bool:
            name, _, other = who.partition(" ")
            return "first_s" in self.prepared.get(f"{Case(case.model, case.phase, other or case.mode, case.amp, ()).name} {name}", {})
        return Case(case.model, case.phase, case.mode, case.amp, tuple(who for who in case.contenders if done(who)))

    def first_calls(self, wanted: Iterable[Case]) -> None:
        """Seconds of the first step in a process that finds empty caches, and in the next one, for each contender: cases side by side, each
        on cores of its own, contenders and processes of a case one after another."""
        wanted, cores = list(wanted), len(os.sched_getaffinity(0))
        width = max(cores // max(len(wanted), 1), 1)
        self.first += map(table.head, wanted)

        def one(slot: int, case: Case) -> None:
            found = self.first[len(self.first) - len(wanted) + slot]
            for who in case.contenders:
                cache = self.folder / "first" / f"{case.name} {who}"
                for which in ("cold", "warm"):
                    child = self.start(case, case.job("prepare", self.args, who=who), slot * width, width, cache)
                    said = _within(child, time.monotonic() + FIRST_LIMIT, "prepared")
                    child.stop()
                    found[f"{who} {which} s"] = said and said["first_s"]
                    self.say(f"{case.name} {who}, {which}: {said['first_s'] if said else child.why()}")
        with ThreadPoolExecutor(len(wanted) or 1) as pool:
            list(pool.map(one, range(len(wanted)), wanted))

    # ------------------------------------------------------------ timing
    def time(self, wanted: Iterable[Case]) -> None:
        """Rows, ``--loaders`` processes loading at a time. Where one ends in a crash, each contender is timed beside eager alone."""
        left = [c for c in map(self.ready, wanted) if c.contenders]
        while left and time.monotonic() - self.begin < self.args.limit:
            batch, left = left[:self.args.loaders], left[self.args.loaders:]
            for child, row in self._batch(batch):
                if row is None:
                    why = child.why()
                    self.say(f"{child.case.name}: {why}")
                    self.rows.append(table.head(child.case) | {"error": why, "contenders": list(child.case.contenders)})
                    if len(child.case.contenders) > 1:
                        left += [Case(child.case.model, child.case.phase, child.case.mode, child.case.amp, (who,)) for who in child.case.contenders]
                else:
                    self.rows.append(table.head(child.case) | {k: v for k, v in row.items() if k != "event"})
                    self.say(f"{child.case.name}: " + ", ".join(f"over {who} {ratio:.3f}" for who, ratio in row["over"].items())
                             + "".join(f"; {who} DISAGREES" for who, good in row["agrees"].items() if not good)
                             + "".join(f"; {who} failed: {error}" for who, error in row["failed"].items()))
                self.keep()

    def _batch(self, batch: list[Case]) -> Iterator[tuple[Child, dict[str, Any] | None]]:
        children = [self.start(c, c.job("time", self.args, contenders=["eager", *c.contenders])) for c in batch]
        end = time.monotonic() + LOAD_LIMIT
        with ThreadPoolExecutor(len(children)) as pool:
            ready = list(pool.map(lambda child: _within(child, end, "ready"), children))
        for child, good in zip(children, ready):  # the others wait for their line, the card is this one's
            row = None
            if good is not None and child.process.stdin is not None:
                child.process.stdin.write("go\n")
                child.process.stdin.flush()
                row = _within(child, time.monotonic() + LOAD_LIMIT, "row")
            child.stop()
            yield child, row


def _within(child: Child, end: float, event: str) -> dict[str, Any] | None:
    """What ``child`` says by ``end``; it is killed where it does not."""
    with ThreadPoolExecutor(1) as waiting:
        answer = waiting.submit(child.next, event)
        try:
            return answer.result(max(end - time.monotonic(), 0.01))
        except TimeoutError:
            child.stop()
            answer.result()
            return None


def main(args: argparse.Namespace, console: Console, machine: dict[str, Any]) -> int:
    """Both phases, and first calls; ``rows.json``, ``prepared.json`` and ``table.json``, the page, in the folder ``args.table`` as they come."""
    run = Run(args, Path(args.table).absolute(), console)
    given = ["--table out", f"--device {args.device}", *[f"--peer {args.peer}"] * bool(args.peer), *["--float32"] * args.float32]
    run.about = {"machine": machine, "command": f"python -m minipt2.bench {' '.join(given)}", **run.about}
    wanted = cases(args)
    for group in groups(wanted):
        run.prepare(group)
        run.time(group)
    asked = {tuple(name.rpartition(".")[::2]) for name in args.cold.split(",") if name}
    run.first_calls(Case(c.model, c.phase, c.mode, c.amp, tuple(w for w in c.contenders if " " not in w)) for c in wanted
                    if (c.model, c.phase) in asked and c.mode == "default" and c.amp)
    run.keep()
    told = table.summary(run.rows, run.prepared)
    table.show(run.rows, console)
    console.print_json(json.dumps(told))
    return 1 if told["disagree"] or told["without figures"] else 0


def parse_more(parser: argparse.ArgumentParser) -> None:
    """The table's own options."""
    group = parser.add_argument_group("the table of a GPU")
    group.add_argument("--table", metavar="FOLDER", help=f"instead: all rows of a GPU from one command, into FOLDER; models: "
                       f"{', '.join(zoo.NAMES)} in all modes, {', '.join(zoo.MORE)} in the default one, or those of --models, any timm:NAME among them")
    group.add_argument("--modes", default="default,reduce-overhead,max-autotune", help="comma list (default: all three)")
    group.add_argument("--float32", action="store_true", help="training in float32 too, beside eager")
    group.add_argument("--cold", default="", metavar="CASES", help="first calls with empty and with full caches of these too: gpt2.train,resnet18.infer")
    group.add_argument("--slots", type=int, default=0, help="processes that compile at a time (default: cores less 4)")
    group.add_argument("--loaders", type=int, default=8, help="processes that load from the caches at a time (default: 8)")
    group.add_argument("--prepare-limit", type=float, default=1200, help="seconds for compiling (default: 1200)")
    group.add_argument("--limit", type=float, default=3600, help="seconds after which no further rows are begun (default: 3600)")
