"""Chapter 2: guards of a function, and why each new version was compiled. Run it: python chapters/02_guards/demo.py"""
import torch

import minipt2
from minipt2 import trace
from minipt2.report import text


def scaled(x, n):
    return torch.relu(x) * n


def main() -> None:
    print("--- guards ---")
    for guard in minipt2.explain(scaled, backend="eager")(torch.ones(3), 2).reports[0].guards:
        print(guard)
    minipt2.reset()
    stop = trace.subscribe(lambda stage, name, payload: print("  " + text.recompiles(payload)), "recompiles")
    compiled = minipt2.compile(scaled, backend="eager")
    for args in ((torch.ones(3), 2), (torch.ones(3), 2), (torch.ones(3), 3), (torch.ones(3).double(), 2), (torch.ones(3), 2)):
        print(f"scaled({str(args[0].dtype)[6:]}{list(args[0].shape)}, {args[1]})")
        compiled(*args)
    stop()
    print(f"{minipt2.counters()['graphs']} graphs for 5 calls")


if __name__ == "__main__":
    main()
