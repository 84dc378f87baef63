"""Sizes that vary: how many compilations serve them, whether each result is eager's, and what symbolic sizes cost.

    python -m minipt2.bench --dynamic --models gpt2,resnet18

Each model runs at random sizes, and is compared with eager at each. Then the code for any size is timed beside code compiled for the
last size alone (``dynamic=False``), as is compiling both. A decoder writes 256 tokens over a cache that grows with each of them.
"""
from __future__ import annotations

import argparse
import gc
import random
import resource
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Iterator

import torch
from rich import box
from rich.table import Table

import minipt2
from minipt2 import trace

from .. import models
from ..models import decoder
from ..report import measure
from .runner import Case, _cold_cache, difference

TRANSFORMERS = ("gpt2", "bert")
TOKENS = {"small": 24, "bench": 256, "gpu": 256}
STEP = 32
"""Image sizes are multiples of it: the sample CNNs halve them up to five times."""


@dataclass
class Row:
    """``varies``: which sizes; ``versions``: the most that one function got.

    Ratios are above 1 where symbolic sizes cost, or, for the decoder, pay."""

    model: str
    phase: str
    varies: str
    calls: int = 0
    versions: int = 0
    max_error: float = 0.0
    run_ratio: float = 0.0
    """Time of a step, dynamic over static, the median over rounds; of the decoder, eager over minipt2."""
    compile_ratio: float = 0.0
    first_s: float = 0.0
    """Of the decoder: seconds of the first text, compiling included."""
    error: str = ""


def plans(name: str) -> list[tuple[str, tuple[int, ...], int]]:
    """What varies in a model's inputs: in words, which dimensions, how many sizes are tried."""
    if name in TRANSFORMERS:
        return [("batch, length", (0, 1), 20)]
    return [("batch", (0,), 10)] + ([("image", (2, 3), 10)] if name in models.CNNS else [])


def sizes(name: str, dims: tuple[int, ...], count: int, size: str) -> list[dict[int, int]]:
    """``count`` different choices of sizes, each a dict of dimension -> size; the first is the model's own, none is 1."""
    example = models.inputs(name, size)[0].shape
    rng = random.Random(name)
    found = [{d: example[d] for d in dims}]
    found[0] = {d: max(n, 2) for d, n in found[0].items()}
    while len(found) < count:
        if dims == (2, 3):
            new = dict.fromkeys(dims, STEP * rng.randint(1, max(count, 2 * example[2] // STEP)))
        else:
            new = {0: rng.randint(2, max(2 * example[0], count + 1))} | ({1: rng.randint(2, example[1])} if 1 in dims else {})
        if new not in found:
            found.append(new)
    return found


def resized(x: torch.Tensor, wanted: dict[int, int]) -> torch.Tensor:
    """``x`` repeated and cut to the wanted sizes: tokens stay tokens, masks stay masks."""
    wanted = {d: n for d, n in wanted.items() if d < x.dim()}
    x = x.repeat([-(-wanted.get(d, 1) // x.shape[d]) if d in wanted else 1 for d in range(x.dim())])
    for d, n in wanted.items():
        x = x.narrow(d, 0, n)
    return x.contiguous()


class Versions:
    """Counts what is compiled within: ``most`` is the largest number of versions of one function."""

    def __enter__(self) -> "Versions":
        self.found: Counter[str] = Counter()
        self._stop = trace.subscribe(lambda stage, name, payload: self.found.update([name]), "guards")
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stop()

    @property
    def most(self) -> int:
        return max(self.found.values(), default=0)


def run(name: str, phase: str, varies: str, dims: tuple[int, ...], count: int, *, size: str, rounds: int) -> Row:
    """Measure one row: versions and agreement over ``count`` sizes, then dynamic beside static code at the last of them."""
    row = Row(name, phase, varies, count)
    case = Case(name, phase, size)
    example, wanted = case.inputs, sizes(name, dims, count, size)
    compile_s = {}
    minipt2.reset()
    with _cold_cache(), Versions() as versions:
        dynamic = minipt2.compile(case.model)
        for k, at in enumerate(wanted):
            case.inputs = tuple(resized(x, at) for x in example)
            expected = case.results(case.model)
            if k == 1:
                compile_s["dynamic"] = _compile_seconds(case, dynamic)
            row.max_error = max(row.max_error, difference(expected, case.results(dynamic)))
        row.versions = versions.most
    with _cold_cache():
        static = minipt2.compile(case.model, dynamic=False)
        compile_s["static"] = _compile_seconds(case, static)
        calls = {"dynamic": lambda: case.step(dynamic), "static": lambda: case.step(static)}
        timings = measure.interleave(calls, rounds, measure.clock_for(1))
    row.run_ratio = measure.ratio(timings["dynamic"].seconds, timings["static"].seconds).median
    row.compile_ratio = compile_s["dynamic"] / compile_s["static"]
    gc.collect()
    return row


def run_decoder(size: str, rounds: int) -> Row:
    """A text of ``TOKENS`` tokens: the first one is compared and pays for compiling, later ones are timed beside eager."""
    count = TOKENS[size]
    row = Row("decoder", "infer", f"cache, {count} tokens", count)
    torch.manual_seed(0)
    model = decoder.build(size).eval()
    (start,) = decoder.inputs(size)
    expected = decoder.generate(model, start, count)
    minipt2.reset()
    with _cold_cache(), Versions() as versions:
        compiled = minipt2.compile(model)
        before = time.perf_counter()
        found = decoder.generate(compiled, start, count)
        row.first_s = time.perf_counter() - before
        row.max_error = difference([expected], [found])
        calls = {who: (lambda m=m: decoder.generate(m, start, count)) for who, m in (("eager", model), ("minipt2", compiled))}
        timings = measure.interleave(calls, rounds, measure.clock_for(1), warmup=1)
    row.versions = versions.most
    row.run_ratio = measure.ratio(timings["eager"].seconds, timings["minipt2"].seconds).median
    return row


def _compile_seconds(case: Case, model: Callable) -> float:
    """CPU seconds of a call that compiles, the C compiler's included."""
    before = _cpu_seconds()
    case.results(model)
    return _cpu_seconds() - before


def _cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def cases(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Row]]]:
    """What is measured, and how: a row for each model, phase and kind of size, then the decoder's. One that fails says why, and the others go on."""
    for name in args.names:
        for phase in args.phases:
            for plan in plans(name):
                yield f"{name} {phase}: {plan[0]}", partial(_attempt, Row(name, phase, plan[0]), partial(run, name, phase, *plan, size=args.size, rounds=args.rounds))
    yield "decoder", partial(_attempt, Row("decoder", "infer", "cache"), partial(run_decoder, args.size, max(1, args.rounds // 3)))


def _attempt(row: Row, measured: Callable[[], Row]) -> Row:
    torch.set_num_threads(1)
    try:
        return measured()
    except Exception as error:
        row.error = f"{type(error).__name__}: {error}"
        return row


HEADS = ("model", "phase", "what varies", "calls", "ver-\nsions", "max\nerror", "run,\n/static", "compile,\n/static", "run,\neager/")
LEAST = (max(map(len, models.NAMES)), len("phase"), len("cache, 256 tokens"), 5, 5, 6, 7, 8, 6)
"""Widths of columns: tables of one row each stand below each other as one."""


def table(rows: list[Row], head: bool = True) -> Table:
    out = Table(title="sizes that vary" if head else None, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0, show_header=head)
    for title, width in zip(HEADS, LEAST):
        out.add_column(title, justify="left" if title in HEADS[:3] else "right", no_wrap=True, min_width=width)
    for row in rows:
        cells = [row.model, row.phase, row.varies]
        if row.error:
            out.add_row(*cells, "failed")
            continue
        own = row.model == "decoder"
        out.add_row(*cells, str(row.calls), str(row.versions), f"{row.max_error:.0e}" if row.max_error else "0",
                    "" if own else f"{row.run_ratio:.3f}", "" if own else f"{row.compile_ratio:.2f}", f"{row.run_ratio:.2f}" if own else "")
    return out


def summary(rows: list[Row]) -> str:
    """Geometric means over the models, and the decoder in a sentence."""
    good = [row for row in rows if not row.error and row.model != "decoder"]
    lines = []
    if good:
        run_, compile_ = (measure.geometric_mean([getattr(row, ratio) for row in good]) for ratio in ("run_ratio", "compile_ratio"))
        lines.append(f"a step takes {run_:.3f} times as long with symbolic sizes, compiling {compile_:.2f} times (geometric means of {len(good)}); "
                     f"at most {max(row.versions for row in good)} versions of a function")
    for row in rows:
        if row.model == "decoder" and not row.error:
            lines.append(f"{row.calls} tokens over a growing cache: {row.run_ratio:.2f} times as fast as eager, {row.versions} versions, "
                         f"{row.first_s:.1f} s for the first text with compiling")
    return "\n".join([*lines, "1 thread, float32, process CPU time; compiling: CPU time with the C compiler's"])
