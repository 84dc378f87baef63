"""Chapter 1: bytecode, graph, break and rewritten bytecode of one function. Run it: python chapters/01_bytecode/demo.py"""
import torch

import minipt2
from minipt2 import trace
from minipt2.report import text


def branching(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def main() -> None:
    stops = [trace.subscribe(lambda stage, name, payload: print(f"--- {name} ---\n{text.bytecode(payload)}"), "bytecode"),
             trace.subscribe(lambda stage, name, gm: print(f"--- {name} ---\n{text.graph(gm)}"), "graph"),
             trace.subscribe(lambda stage, name, reason: print(f"--- break ---\n{reason}"), "breaks")]
    print(minipt2.compile(branching, backend="eager")(torch.ones(3)))
    for stop in stops:
        stop()


if __name__ == "__main__":
    main()
