"""``--bandwidth``: pointwise, reducing and normalising kernels of 256 MB and more, each compiled alone, beside a copy.

Bytes are those of a kernel's operands and results, each counted once. The floor counts an operand once more for each time that it must be read
again whatever the kernel (``AGAIN``); its passes are those over the largest operand. Times are the device's, with the queue full. Upstream:
``benchmarks/dynamo/microbenchmarks``.
"""
from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any, Callable, Iterator

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

import minipt2

from .kernels import copied

BYTES = 256 << 20
"""Of the largest operand."""
REPS = 30
AGAIN = {"batch_norm_training": 1}
"""How often the first operand must be read beyond the first time: a row fits into an SM, so that one read serves its statistics and its results; the
statistics of a channel come from all of the tensor before any result can be made, and of 256 MB a GPU's cache keeps a fifth at most (which is not
taken off)."""
Cases = Iterator[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]]


def cases(device: torch.device, nbytes: int = BYTES) -> Cases:
    """(name, function, operands), operands of random numbers."""
    for dtype, ending in ((torch.float32, ""), (torch.bfloat16, "_bf16")):
        count = nbytes // dtype.itemsize

        def rows(width: int) -> torch.Tensor:
            return torch.randn(max(count // width, 1), width, device=device).to(dtype)

        def vector(width: int) -> torch.Tensor:
            return torch.randn(width, device=device).to(dtype)
        yield "relu" + ending, torch.relu, (rows(4096),)
        yield "add" + ending, torch.add, (rows(4096), rows(4096))
        yield "gelu_bias" + ending, lambda x, b: F.gelu(x + b), (rows(4096), vector(4096))
        yield "gelu_backward" + ending, torch.ops.aten.gelu_backward, (rows(4096), rows(4096))
        yield "swiglu" + ending, lambda x, y: F.silu(x) * y, (rows(4096), rows(4096))
        yield "transpose" + ending, lambda x: x.t().contiguous(), (rows(4096),)
        yield "row_sum" + ending, lambda x: x.sum(1), (rows(4096),)
        yield "column_sum" + ending, lambda x: x.sum(0), (rows(4096),)
        for width in (128, 1024, 8192, 32768, 65536):
            yield f"softmax{width}{ending}", lambda x: torch.softmax(x, 1), (rows(width),)
        for width in (768, 1024, 4096, 16384, 65536):
            yield (f"layer_norm{width}{ending}", lambda x, w, b: F.layer_norm(x, w.shape, w, b), (rows(width), vector(width), vector(width)))
        yield "rms_norm4096" + ending, lambda x, w: F.rms_norm(x, w.shape, w), (rows(4096), vector(4096))
        yield "add_layer_norm1024" + ending, _add_norm, (rows(1024), rows(1024), vector(1024), vector(1024))
        x, w = rows(1024), vector(1024)
        statistics_of_rows = (x.float().mean(1, keepdim=True), x.float().var(1, keepdim=True).rsqrt())
        yield "layer_norm1024_backward" + ending, _norm_backward, (rows(1024), x, *statistics_of_rows, w)
        images = torch.randn(max(count // (64 * 56 * 56), 1), 64, 56, 56, device=device).to(dtype).to(memory_format=torch.channels_last)
        yield "batch_norm_training" + ending, lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)), (images, vector(64), vector(64))


def _add_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + y
    return total, F.layer_norm(total, w.shape, w, b)


def _norm_backward(grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.native_layer_norm_backward(grad, x, w.shape, mean, rstd, w, None, [True, False, False])[0]


def measure(device: torch.device, nbytes: int = BYTES, only: str = "") -> Iterator[dict[str, Any]]:
    """A row a kernel: megabytes, microseconds, TB/s, its share of a copy's bandwidth (of the same many bytes in all, between two buffers), and of its
    floor, that is with what must be read again counted too. ``only``: kernels whose name has that in it."""
    for name, function, operands in cases(device, nbytes):
        if only not in name:
            continue
        minipt2.reset()
        with torch.no_grad():
            call = minipt2.compile(function)
            result = call(*operands)
            moved = sum(t.nbytes for t in (*operands, *(result if isinstance(result, tuple) else (result,))))
            seconds = timed(lambda: call(*operands), device)
        rate = copied_bytes(device, moved)
        floor = moved + AGAIN.get(name.removesuffix("_bf16"), 0) * operands[0].nbytes
        yield {"kernel": name, "MB": round(moved / 1e6, 1), "us": round(seconds * 1e6, 2), "TB/s": round(moved / seconds / 1e12, 3),
               "percent of a copy": round(100 * moved / seconds / rate, 1), "passes": round(floor / max(t.nbytes for t in operands)),
               "floor MB": round(floor / 1e6, 1), "percent of the floor": round(100 * floor / seconds / rate, 1)}


def copied_bytes(device: torch.device, moved: int) -> float:
    """Bytes a second of a copy that reads and writes ``moved`` bytes together; on a GPU at least as fast as a large one is."""
    source = torch.empty(max(moved // 2, 1), dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    rate = 2 * source.nbytes / timed(lambda: target.copy_(source), device)
    return max(rate, copied(device)) if device.type == "cuda" else rate


def timed(call: Callable[[], Any], device: torch.device, reps: int = REPS) -> float:
    """Seconds of a call, the median; on a GPU with its queue full, so that no gap of the host's is counted."""
    for _ in range(3):
        call()
    if device.type != "cuda":
        seconds = []
        for _ in range(reps):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(reps)]
    busy = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    for _ in range(10):  # milliseconds in which the host runs ahead
        busy.zero_()
    for begin, end in events:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize(device)
    return statistics.median(begin.elapsed_time(end) for begin, end in events) / 1e3


def main(args: argparse.Namespace, console: Console, machine: dict[str, Any]) -> int:
    """A table at the end; the file of ``--json`` after each row, so that an interruption loses none."""
    rows: list[dict[str, Any]] = []
    for row in measure(torch.device(args.device), BYTES if args.device != "cpu" else BYTES >> 6):
        rows.append(row)
        if args.json:
            with open(args.json, "w") as file:
                json.dump({"machine": machine, "device": args.device, "bandwidth": {"rows": rows}}, file, indent=1)
    out = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in rows[0]:
        out.add_column(head, justify="left" if head == "kernel" else "right", no_wrap=True)
    for row in rows:
        out.add_row(*map(str, row.values()))
    console.print(out)
    return 0
