"""The figures of the site by name: each runs the package on a small program of its own. ``FIGURES[name]()`` makes one."""
from __future__ import annotations

import contextlib
import functools
import importlib
import io
from typing import Callable

import torch
import torch.nn.functional as F

import minipt2
from chapters import buckets, races, results
from chapters.pays import COMPARED
from minipt2 import models
from minipt2.report import figures
from minipt2.report.figures import Figure
from minipt2.report.figures.loops import schedules
from minipt2.report.reference import table


def small_block(x, weight, bias):
    h = x @ weight
    h = h + bias
    h = F.gelu(h)
    return F.softmax(h, dim=-1)


def repeated(x, scale):
    y = torch.relu(x)
    for k in range(2):
        y = y * scale + k
    return y.sum()


def branching(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def scaled(x, n):
    return x * n


def mlp(x, w1, w2):
    h = F.gelu(x @ w1)
    h = F.dropout(h, 0.1)
    return F.softmax(h @ w2, dim=-1)


def norm_and_activate(x, weight):
    y = torch.softmax(x * 2 + 1, -1)
    z = F.layer_norm(y, (16,))
    return torch.relu(z) @ weight, x.t().sum(0)


def softmax_of(x):
    return torch.softmax(x * 2 + 1, -1)


def _block_inputs() -> tuple:
    torch.manual_seed(0)
    return torch.randn(4, 16), torch.randn(16, 8), torch.randn(8)


def _pipeline() -> Figure:
    with torch.no_grad():
        return figures.pipeline(small_block, _block_inputs())


def _stepper() -> Figure:
    return figures.stepper(repeated, (torch.ones(3), 2))


def _break() -> Figure:
    return figures.stepper(branching, (torch.ones(3),), name="stepper-break")


def _guards() -> Figure:
    calls = [(torch.ones(3), 2), (torch.ones(3), 2), (torch.ones(4), 2), (torch.ones(3), 3), (torch.ones(3, dtype=torch.float64), 2),
             (torch.ones(4), 2)]
    return figures.guard_tree(scaled, calls, dynamic=False)


def _joint() -> Figure:
    torch.manual_seed(0)
    sizes = ((64, 32), (32, 128), (128, 32))
    return figures.joint_graph(mlp, [torch.randn(*s, requires_grad=True) for s in sizes])


def _decompose() -> Figure:
    x, image = torch.rand(4, 16) + 0.1, torch.rand(2, 4, 8, 8)
    samples = {
        "softmax": (lambda x: F.softmax(x, -1), (x,)),
        "layer_norm": (lambda x: F.layer_norm(x, (16,)), (x,)),
        "gelu": (F.gelu, (x,)),
        "cross_entropy": (lambda x, y: F.cross_entropy(x, y), (x, torch.tensor([0, 1, 2, 3]))),
        "batch_norm": (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), (image,)),
        "max_pool2d": (lambda x: F.max_pool2d(x, 2), (image,)),
        "std": (lambda x: x.std(-1), (x,)),
        "int + float": (lambda x: torch.arange(16) + x, (x,)),
        "addcmul": (lambda x: torch.addcmul(x, x, x, value=0.5), (x,)),
        "logsumexp": (lambda x: torch.logsumexp(x, -1), (x,)),
    }
    return figures.explorer({title: (_named(fn), args) for title, (fn, args) in samples.items()})


def _named(fn: Callable) -> Callable:
    """A frame of our own around a library function, so that there is something to capture."""
    def call(*args):
        return fn(*args)
    return call


def _census() -> Figure:
    model = models.build("gpt2", "small").eval()
    with torch.no_grad():
        return figures.census(model, models.inputs("gpt2", "small"))


def _fusion() -> Figure:
    with torch.no_grad():
        return figures.fusion(norm_and_activate, (torch.randn(4, 16), torch.randn(16, 8)))


def _code() -> Figure:
    with torch.no_grad():
        return figures.beside(norm_and_activate, (torch.randn(4, 16), torch.randn(16, 8)))


def _number_line() -> Figure:
    return figures.number_line(8, [("n == 1", lambda n: bool(n == 1)), ("n % 4 == 0", lambda n: bool(n % 4 == 0)), ("n % 2 == 0", lambda n: bool(n % 2 == 0)),
                                   ("n <= 16", lambda n: bool(n <= 16)), ("2 * n < 40", lambda n: bool(2 * n < 40)), ("n > 4", lambda n: bool(n > 4))])


def _timeline() -> Figure:
    model = models.build("resnet18", "bench")
    step = buckets.ready_order(model, models.inputs("resnet18", "small"), models.loss, 0.1)
    return buckets.timeline(step, [2**k for k in range(16, 27)], 0.25e9, 0.5e-3)


def _rounds() -> Figure:
    x = torch.randn(256, 1024)
    fused = minipt2.compile(softmax_of)
    return figures.rounds({"eager": lambda: softmax_of(x), "compiled": lambda: fused(x)})


FIGURES: dict[str, Callable[[], Figure]] = {
    "pipeline": _pipeline, "stepper": _stepper, "stepper-break": _break, "guards": _guards, "joint": _joint, "decompose": _decompose,
    "census": _census, "fusion": _fusion, "code": _code, "number-line": _number_line, "timeline": _timeline,
    "rounds": _rounds, "races": races.figure,
}


def kernel_table() -> str:
    """Kernels and bytes moved of an inference of small sample models, without and with fusion."""
    rows = []
    for name in ("resnet18", "mobilenetv2", "gpt2", "bert", "vit"):
        model, args = models.build(name, "small").eval(), models.inputs(name, "small")
        with torch.no_grad():
            apart, fused = (schedules(model, args, fusion=wanted) for wanted in (False, True))
        counts = [(sum(len(p.kernels) for p in plans), sum(p.bytes_moved() for p in plans)) for plans in (apart, fused)]
        rows.append((f"`{name}`", counts[0][0], counts[1][0], f"{counts[0][1]:,}", f"{counts[1][1]:,}"))
    return "\n".join(table(["model, small", "kernels unfused", "fused", "bytes unfused", "fused"], rows))


def command_table() -> str:
    """What each command line says of itself."""
    parts = []
    for title, module in (("minipt2 learn", "minipt2.course.learn"), ("minipt2 course", "minipt2.course.teach"), ("python -m minipt2.bench", "minipt2.bench.__main__")):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            importlib.import_module(module).main(["--help"])
        parts += [f"## {title}", "", "```text", said.getvalue().rstrip(), "```", ""]
    return "\n".join(parts)


TABLES: dict[str, Callable[[], str]] = {
    "kernels": kernel_table, "bench": results.bench_table, "recorded": results.listing, "commands": command_table, "pays": results.pays_table,
    **{f"pays-{k}": functools.partial(results.pays_table, k) for k in COMPARED},
}
