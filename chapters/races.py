"""The races of chapter 7's figure: recorded on a GPU (``site/results/races_h200.json``), with the kernels that the package makes of each configuration."""
from __future__ import annotations

import json
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import fx

import minipt2
from chapters.results import FOLDER
from minipt2 import trace
from minipt2.inductor.autotune.records import label
from minipt2.inductor.codegen import triton
from minipt2.inductor.codegen.triton_blocks import Blocks
from minipt2.inductor.codegen.triton_template import Tile
from minipt2.inductor.hardware import REFERENCE
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from minipt2.report.figures import Figure, Race, races

RECORD = FOLDER / "races_h200.json"


def softmax_of(x):
    return torch.softmax(x * 2, -1)


def norm_and_gelu(x):
    return F.gelu(F.layer_norm(x, (768,)))


def product_and_gelu(x, w, bias):
    return F.gelu(x @ w + bias)


def half(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes, dtype=torch.bfloat16)


RACED: dict[str, tuple[Callable, Callable[[], tuple]]] = {
    "softmax": (softmax_of, lambda: (torch.zeros(8192, 1000),)),
    "layer norm and GELU": (norm_and_gelu, lambda: (half(8192, 768),)),
    "product": (product_and_gelu, lambda: (half(2048, 768), half(768, 3072), half(3072))),
}
"""What was raced, by the beginning of its title in the record."""


def captured(fn: Callable, args: tuple) -> fx.GraphModule:
    """The graph of prims of one inference."""
    graphs: list[fx.GraphModule] = []
    stop = trace.subscribe(lambda stage, name, graph: graphs.append(graph), "prims")
    try:
        with torch.no_grad():
            minipt2.compile(fn)(*args)
    finally:
        stop()
    return graphs[0]


def text_of(graph: fx.GraphModule, row: dict[str, Any]) -> tuple[str, str]:
    """(configuration in a few words, kernel) of one row of the record."""
    config = {k: v for k, v in row.items() if k not in ("microseconds", "chosen", "library")}
    head = f"# launched with {config.get('warps')} warps, {config.get('stages')} stages\n"
    if "m" in config:
        tile = Tile(**config)
        plan = schedule(lower(graph), GPU, choose=lambda candidates, _: [tile] * len(candidates))
        return str(tile), head + triton.generate(plan, REFERENCE).text
    plan = schedule(lower(graph), GPU)
    if "library" in row:
        return "library", "# the library's product; then\n" + triton.generate(plan, REFERENCE).text
    blocks = Blocks(**config)
    return label(blocks), head + triton.generate(plan, REFERENCE, tuned=lambda plans, _: [blocks] * len(plans)).text


def recorded() -> list[Race]:
    """Every race of the record."""
    held = []
    for title, rows in json.loads(RECORD.read_text()).items():
        if isinstance(rows, list):
            fn, args = RACED[next(name for name in RACED if title.startswith(name))]
            graph = captured(fn, args())
            labels, texts = zip(*(text_of(graph, row) for row in rows))
            best = [bool(row["chosen"]) for row in rows].index(True)
            held.append(Race(title.partition(",")[0], list(labels), [row["microseconds"] for row in rows], best, list(texts)))
    return held


def figure() -> Figure:
    data = json.loads(RECORD.read_text())
    return races(recorded(), f"Each dot is a configuration that max-autotune timed on {data['machine'].partition(',')[0]} ({data['date']}); click one, or move the "
                             "slider, for the kernel that it makes. Below the line is faster than the first guess, or than the library.")
