"""Chapter 7: a paired measurement, and a race among configurations. Run it: python chapters/07_autotune/demo.py"""
import random

import torch

import minipt2
from minipt2.inductor.autotune import candidates, pick
from minipt2.inductor.codegen.c_openmp_plan import make_plan
from minipt2.inductor.hardware import REFERENCE
from minipt2.report import measure
from minipt2.report.figures.loops import schedules


def softmax_of(x):
    return torch.softmax(x * 2 + 1, -1)


def main() -> None:
    random.seed(0)
    torch.set_num_threads(1)
    x = torch.randn(256, 1024)
    compiled = minipt2.compile(softmax_of)
    for name, ratio in (("eager over compiled", measure.paired(lambda: softmax_of(x), lambda: compiled(x), budget=1)),
                        ("eager over eager", measure.paired(lambda: softmax_of(x), lambda: softmax_of(x), budget=1))):
        print(f"--- {name}: {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] in {ratio.rounds} rounds ---")
    with torch.no_grad():
        plan = schedules(softmax_of, (x,))[0]
    configurations = candidates(make_plan(plan.kernels[0], plan), REFERENCE)
    print(f"--- {len(configurations)} configurations of its Triton kernel; without a GPU we race made-up times ---")
    cost = {c: 1 + abs(c.warps - 8) / 8 for c in configurations}
    times = {}
    best = pick(configurations, lambda c: cost[c] * random.uniform(1, 1.1), lambda c: True, budget=5, times=times)
    for c, seconds in sorted(times.items(), key=lambda pair: pair[1])[:5]:
        print(f"{seconds:.2f}  {c}" + "  <- chosen" * (c == best))


if __name__ == "__main__":
    main()
