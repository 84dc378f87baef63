"""Chapter 6: one kernel's C, which of its loops gcc has vectorised, and its Triton. Run it: python chapters/06_codegen/demo.py"""
import re
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

import minipt2
from minipt2.inductor.codegen import triton
from minipt2.inductor.hardware import REFERENCE
from minipt2.report.figures.loops import schedules


def norm_and_gelu(x):
    return F.gelu(F.layer_norm(x, (64,)))


def vectorised(c: str) -> list[str]:
    """What gcc says about the loops of ``c``; empty where there is no gcc."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.c"
        file.write_text(c)
        command = ["gcc", "-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fopt-info-vec", "-c", str(file), "-o", "/dev/null"]
        try:
            said = subprocess.run(command, capture_output=True, text=True).stderr
        except FileNotFoundError:
            return []
    return re.findall(r"kernel\.c:(\d+:\d+: optimized: loop vectorized.*)", said)


def main() -> None:
    found = minipt2.explain(norm_and_gelu)(torch.randn(512, 64))
    c = next(text for name, text in found.code if name.endswith(".c"))
    print(c[c.index("void k0("):].split("\nint run0")[0])
    print("--- gcc says ---")
    print("\n".join(vectorised(c)) or "there is no gcc here")
    print("--- the same loops for a GPU ---")
    with torch.no_grad():
        (plan,) = schedules(norm_and_gelu, (torch.randn(512, 64),))
    print(triton.generate(plan, REFERENCE).text)


if __name__ == "__main__":
    main()
