"""Chapter 5: loop nests before and after fusion, and what stays in memory. Run it: python chapters/05_loops/demo.py"""
import torch

from minipt2.report.figures.loops import fusion, schedules


def norm_and_activate(x, weight):
    y = torch.softmax(x * 2 + 1, -1)
    z = torch.nn.functional.layer_norm(y, (64,))
    return torch.relu(z) @ weight


def main() -> None:
    torch.manual_seed(0)
    args = torch.randn(128, 64), torch.randn(64, 32)
    with torch.no_grad():
        for wanted in (False, True):
            plan = schedules(norm_and_activate, args, fusion=wanted)[0]
            print(f"--- {'fused' if wanted else 'one kernel per loop nest'}: {len(plan.kernels)} kernels, {plan.bytes_moved():,} bytes ---")
            print(plan)
        for said in list(fusion(norm_and_activate, args).pairs.values())[:8]:
            print(said)
    print("--- the first loop nest ---")
    print(plan.program.buffers[0].body)


if __name__ == "__main__":
    main()
