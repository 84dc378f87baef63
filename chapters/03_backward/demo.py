"""Chapter 3: forward and backward graphs, and bytes kept for the backward. Run it: python chapters/03_backward/demo.py"""
import torch
import torch.nn.functional as F

import minipt2
from minipt2 import trace
from minipt2.report import text
from minipt2.report.measure import saved_for_backward


def mlp(x, w1, w2):
    return F.softmax(F.gelu(x @ w1) @ w2, dim=-1)


def main() -> None:
    torch.manual_seed(0)
    args = [torch.randn(*s, requires_grad=True) for s in ((64, 32), (32, 128), (128, 32))]
    stop = trace.subscribe(lambda stage, name, gm: print(f"--- {name} ---\n{text.graph(gm)}") if name in ("forward", "backward") else None, "aot")
    minipt2.compile(mlp)(*args).sum().backward()
    stop()
    print(f"eager keeps {saved_for_backward(lambda: mlp(*args), args)[0]} bytes beside the inputs")
    for budget in (1.0, 0.5, 0.0):
        f = minipt2.compile(mlp, options={"memory_budget": budget})
        print(f"compiled, memory budget {budget}: {saved_for_backward(lambda: f(*args), args)[0]} bytes")


if __name__ == "__main__":
    main()
