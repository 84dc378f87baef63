"""Chapter 4: a model's operators before and after, and what stays a library call. Run it: python chapters/04_prims/demo.py"""
import torch

import minipt2
from minipt2 import models
from minipt2.report.figures import census


def main() -> None:
    model, args = models.build("gpt2", "small").eval(), models.inputs("gpt2", "small")
    with torch.no_grad():
        counts = census(model, args).data
    for stage, count in counts.items():
        print(f"--- {stage}: {len(count)} kinds, {sum(count.values())} calls ---")
        print(", ".join(f"{name} x{n}" for name, n in sorted(count.items(), key=lambda pair: -pair[1])))
    minipt2.reset()
    with torch.no_grad():
        found = minipt2.explain(model)(*args)
    print(f"--- {found.counters['kernels']} generated kernels, {found.counters['fallbacks']} fallbacks ---")
    for report in found.reports:
        print("\n".join(report.eager_kernels) or "nothing fell back")


if __name__ == "__main__":
    main()
