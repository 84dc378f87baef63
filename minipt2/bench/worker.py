"""One row of the GPU table, in a process of its own: what a crash there costs is this row.

    python -m minipt2.bench.worker '{"task": "prepare", "model": "gpt2", "phase": "train", "mode": "default", "amp": true, "who": "torch.compile", ...}'

``prepare``: the first step of one contender alone, which fills its disk cache, and the peak memory of a step. ``time``: all contenders, loaded from
their caches, compared with float64, and, once a line comes in on stdin, timed in random order. Answers are lines of JSON on stdout.
"""
from __future__ import annotations

import contextlib
import copy
import fcntl
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, Iterator, TextIO

import torch

import minipt2

from ..report import measure
from . import zoo

AS_GOOD, EVER = 3.0, 10.0
"""Times eager's own distance from float64 that a result may lie away from it: the median over draws of inputs over eager's median, and the
farthest over eager's farthest."""
DRAWS = {True: (1, 1), False: (5, 25)}
"""Inputs drawn to compare with float64, under autocast and in float32: so many, and so many in all where one contender does not agree by then.
In float32 a gradient is far off because a few elements lie on the other side of a kink (0 of ReLU, 3 of hardswish) than in float64: how many, and with
what weight, is luck. On an H200, of a MobileNet, six draws: eager 1.5e-5 to 1.2e-3, torch.compile 4.8e-5 to 1.3e-3, minipt2 1.5e-5 to 1.3e-3; with SiLU in
hardswish's place all of them 3.8e-6 to 4.1e-6."""
PIECE = 1 << 25
"""Elements compared at a time: logits of a language model are gigabytes in float64."""
NEGLIGIBLE = {True: 1e-3, False: 1e-6}
"""Relative distances that agree whatever eager's is: under autocast, and in float32."""


class Step:
    """A model, its inputs and one step, the same for every contender."""

    def __init__(self, model: str, phase: str, amp: bool, device: str, size: str):
        self.device, self.amp, self.train = torch.device(device), amp, phase == "train"
        self.model, self.make = zoo.case(model, size)
        self.model.to(self.device).train(self.train)
        self.draw()

    def draw(self) -> None:
        """Other inputs."""
        self.inputs = self._moved(self.make())

    def _moved(self, inputs: Any, dtype: torch.dtype | None = None) -> Any:
        if isinstance(inputs, dict):
            return {k: self._moved((v,), dtype)[0] for k, v in inputs.items()}
        return tuple(x.to(self.device, dtype if x.is_floating_point() else None) for x in inputs)

    def __call__(self, call: Callable, model: torch.nn.Module | None = None, inputs: Any = None, amp: bool | None = None) -> torch.Tensor:
        """Inference, or forward and backward with fresh gradients; the loss."""
        model, inputs = model or self.model, self.inputs if inputs is None else inputs
        run = (lambda: call(**inputs)) if isinstance(inputs, dict) else (lambda: call(*inputs))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.amp if amp is None else amp):
            if not self.train:
                with torch.no_grad():
                    return zoo.scalar(run())
            model.zero_grad(set_to_none=True)
            loss = zoo.scalar(run())
        loss.backward()
        return loss.detach()

    def synchronized(self, call: Callable) -> torch.Tensor:
        loss = self(call)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return loss

    def results(self, call: Callable) -> list[torch.Tensor]:
        """The logits of an inference, or loss and gradients; buffers (statistics of batches) as they were."""
        return self._results(call, self.model, self.inputs, self.amp)

    def reference(self) -> list[torch.Tensor]:
        """The same in float64, by eager. One process on the card at a time: it takes much memory."""
        with _alone("reference"):
            model = copy.deepcopy(self.model).double()
            found = self._results(model, model, self._moved(self.inputs, torch.float64), False)
            del model
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return found

    def _results(self, call: Callable, model: torch.nn.Module, inputs: Any, amp: bool) -> list[torch.Tensor]:
        before = {name: b.clone() for name, b in model.named_buffers()}
        if self.train:
            found = [self(call, model, inputs, amp)[None]] + [p.grad for p in model.parameters() if p.grad is not None]
        else:
            with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=amp):
                output = call(**inputs) if isinstance(inputs, dict) else call(*inputs)
            found = [getattr(output, "logits", output)]
        found = [t.detach().clone() for t in found]  # a recorded graph writes its results where the last ones lie
        with torch.no_grad():
            for name, b in model.named_buffers():
                b.copy_(before[name])
        return found


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    with open(os.path.join(tempfile.gettempdir(), f"minipt2-bench-{os.getuid()}.{name}"), "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def distance(found: list[torch.Tensor], reference: list[torch.Tensor]) -> list[float]:
    """Relative to the reference's norm: of the first tensor (output or loss), and of all others (gradients) together. NaN is infinitely far."""
    if [t.shape for t in found] != [t.shape for t in reference]:
        return [float("inf")] * 2

    def far(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
        square, size = 0.0, 1e-300
        for a, b in pairs:
            for x, y in zip(a.flatten().split(PIECE), b.flatten().split(PIECE)):
                square, size = square + float((x.double() - y).square().sum()), size + float(y.square().sum())
        value = (square / size) ** 0.5
        return value if value == value else float("inf")
    pairs = list(zip(found, reference))
    return [far(pairs[:1]), far(pairs[1:])] if len(pairs) > 1 else [far(pairs)]


def agrees(ours: list[list[float]], eager: list[list[float]], amp: bool) -> bool:
    """By the distances of every draw."""
    return all(statistics.median(a) <= max(AS_GOOD * statistics.median(e), NEGLIGIBLE[amp]) and max(a) <= EVER * max(*e, NEGLIGIBLE[amp])
               for a, e in zip(zip(*ours), zip(*eager)))


def middle(draws: list[list[float]]) -> list[float]:
    return [statistics.median(values) for values in zip(*draws)]


def compiled(who: str, model: torch.nn.Module, mode: str) -> Callable:
    """``who``: eager, minipt2, torch.compile, or minipt2 in another mode (``minipt2 default``)."""
    name, _, other = who.partition(" ")
    chosen = other or mode
    if name == "eager":
        return model
    if name == "minipt2":
        return minipt2.compile(model, mode=None if chosen == "default" else chosen)
    return torch.compile(model, mode=None if chosen == "default" else chosen)


def _only_ours() -> TextIO:
    """What was stdout. From now on that is the log: processes that compile inherit it, and would keep the reader waiting after this one's end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def say(**fields: Any) -> None:
    print(json.dumps(fields), file=_answers, flush=True)


def prepare(job: dict[str, Any]) -> None:
    """Seconds of the first and the second step; what a step allocates beside what lies there before it, and in all."""
    step = Step(job["model"], job["phase"], job["amp"], job["device"], job["size"])
    call = compiled(job["who"], step.model, job["mode"])
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        step.synchronized(call)
        seconds.append(round(time.perf_counter() - start, 3))
    say(event="prepared", first_s=seconds[0], second_s=seconds[1], **(_memory(step, call) if step.device.type == "cuda" else {}))


def _memory(step: Step, call: Callable) -> dict[str, float]:
    """MiB. Kept between steps (a recorded graph's pool) counts: ``peak`` is the most that is allocated in a step, parameters included."""
    for _ in range(2):
        step.synchronized(call)
    step.model.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step.synchronized(call)
    return {"resident_mib": round(before / 2**20, 1), "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20, 1),
            "reserved_mib": round(torch.cuda.memory_reserved() / 2**20, 1)}


class Compared:
    """The contenders of a job: ``calls`` that run, and how far each lies from float64 at every draw of inputs (``far``, eager's in ``own``)."""

    def __init__(self, step: Step, contenders: list[str], mode: str):
        self.step, self.mode = step, mode
        self.calls: dict[str, Callable] = {}
        self.load: dict[str, float] = {}
        self.far: dict[str, list[list[float]]] = {}
        self.own: list[list[float]] = []
        self.failed: dict[str, str] = {}
        enough, most = DRAWS[step.amp]
        while len(self.own) < (enough if self.agree() else most):
            if self.own:
                step.draw()
            self.compare([who for who in contenders if who not in self.failed])

    def agree(self) -> bool:
        """Whether all contenders do so far."""
        return all(agrees(far, self.own, self.step.amp) for far in self.far.values())

    def compare(self, contenders: list[str]) -> None:
        """With float64, on the inputs at hand. A contender that fails is out; an error of the driver's ends the process."""
        say(event="eager")
        eager, reference = self.step.results(self.step.model), self.step.reference()
        self.own.append(distance(eager, reference))
        del eager
        for who in contenders:
            say(event="loading", who=who)
            try:
                if who not in self.calls:
                    self._load(who)
                self.far.setdefault(who, []).append(distance(self.step.results(self.calls[who]), reference))
                for _ in range(4):
                    self.step.synchronized(self.calls[who])
            except Exception as error:
                self.failed[who] = f"{type(error).__name__}: {error}"[:300]
                self.calls.pop(who, None)
                self.far.pop(who, None)
                traceback.print_exc()
                if "CUDA error" in str(error) or "CUDA_ERROR" in str(error):
                    raise

    def _load(self, who: str) -> None:
        self.calls[who] = compiled(who, self.step.model, self.mode)
        start = time.perf_counter()
        self.step.synchronized(self.calls[who])
        self.load[who] = round(time.perf_counter() - start, 3)


def timed(job: dict[str, Any]) -> None:
    step = Step(job["model"], job["phase"], job["amp"], job["device"], job["size"])
    found = Compared(step, job["contenders"], job["mode"])
    gc.collect()
    counted = minipt2.counters()
    say(event="ready")
    sys.stdin.readline()
    rounds = _rounds(step, found.calls, job["rounds"])
    median = {who: statistics.median(s) for who, s in rounds.items()}
    over = {who: round(measure.ratio(s, rounds["minipt2"]).median, 4) for who, s in rounds.items() if who != "minipt2" and "minipt2" in rounds}
    say(event="row", ms={who: round(1e3 * s, 4) for who, s in median.items()}, over=over, load_s=found.load,
        far={who: middle(f) for who, f in found.far.items()}, eager_far=middle(found.own), draws=found.far if len(found.own) > 1 else {},
        agrees={who: agrees(f, found.own, step.amp) for who, f in found.far.items()}, failed=found.failed,
        kernels=counted["kernels"], breaks=counted["breaks"], fallbacks=counted["fallbacks"])


def _rounds(step: Step, calls: dict[str, Callable], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step, by contender: each once a round, in an order drawn anew. Before them, three rounds that do not count."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {who: [] for who in calls}
    gc.collect()
    gc.disable()
    for k in range(rounds + 3):
        for who in order.sample(list(calls), len(calls)):
            start = time.perf_counter()
            step.synchronized(calls[who])
            if k >= 3:
                seconds[who].append(time.perf_counter() - start)
    gc.enable()
    return seconds


_answers: TextIO = sys.stdout


def main() -> None:
    global _answers
    _answers = _only_ours()
    job = json.loads(sys.argv[1])
    measure.pin_malloc()
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # of convolutions in float32 it is on unless told, of products it is off
    {"prepare": prepare, "time": timed}[job["task"]](job)


if __name__ == "__main__":
    main()
