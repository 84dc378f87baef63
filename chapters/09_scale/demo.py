"""Chapter 9: a planted fault found, and buckets on a slow link. Run it: python chapters/09_scale/demo.py"""
import sys
from pathlib import Path

import torch
from torch import fx

sys.path.insert(0, str(Path(__file__).parents[2]))

import minipt2  # noqa: E402
from chapters.buckets import messages, ready_order  # noqa: E402
from minipt2 import models  # noqa: E402
from minipt2.report.minify import minify  # noqa: E402


class Faulty(fx.Interpreter):
    """An eager backend whose tanh is wrong for large numbers."""

    def call_function(self, target, args, kwargs):
        result = super().call_function(target, args, kwargs)
        return result.clamp(max=0.9) if target is torch.tanh else result


def model(x):
    for k in range(30):
        x = torch.sin(x) + x * 0.5
        if k == 28:
            x = torch.tanh(x * 9)
    return x


def main() -> None:
    torch.manual_seed(0)
    graphs, asked, x = [], [], torch.randn(8)
    minipt2.compile(model, backend=lambda gm, inputs: graphs.append(gm) or gm)(x)

    def bad(part):
        asked.append(part)
        inputs = part.meta["inputs"]
        return not all(torch.allclose(a, b) for a, b in zip(Faulty(part).run(*inputs), part(*inputs)))
    smallest = minify(graphs[0], [x], bad)
    print(f"--- of {sum(n.op == 'call_function' for n in graphs[0].graph.nodes)} operations, after {len(asked)} questions ---")
    print(smallest.code.strip())
    step = ready_order(models.build("resnet18", "bench"), models.inputs("resnet18", "small"), models.loss, seconds=0.1)
    print("--- gradients of ResNet-18 over a link of 0.25 GB/s, behind a backward of 100 ms ---")
    for mib in (1, 4, 25, 64):
        sent = messages(step, mib * 2**20, bandwidth=0.25e9, latency=0.5e-3)
        print(f"buckets of {mib:2} MiB: {len(sent):3} messages, done after {max(m.sent.end for m in sent) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
