"""Chapter 0: one function through every station. Run it: python chapters/00_pipeline/demo.py"""
import torch
import torch.nn.functional as F

import minipt2
from minipt2.report import measure


def block(x, weight, bias):
    return F.softmax(F.gelu(x @ weight + bias), dim=-1)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    args = torch.randn(256, 64), torch.randn(64, 512), torch.randn(512)
    found = minipt2.explain(block)(*args)
    print(found)
    c = next(text for name, text in found.code if name.endswith(".c"))
    print("\n--- the kernel ---")
    print(c[c.index("void k0("):].split("\nint run0")[0])
    fast = minipt2.compile(block)
    error = (fast(*args) - block(*args)).abs().max()
    print(f"--- largest difference from eager: {error:.1e}")
    ratio = measure.paired(lambda: block(*args), lambda: fast(*args), budget=3)
    print(f"--- eager over compiled: {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] in {ratio.rounds} rounds")


if __name__ == "__main__":
    main()
