"""Chapter 8: questions about sizes, the guards they leave, and those that cost nothing. Run it: python chapters/08_shapes/demo.py"""
import torch

from minipt2.shapes import ShapeEnv


class At:
    def __init__(self, text: str):
        self.text = text

    def name(self) -> str:
        return self.text


def main() -> None:
    env = ShapeEnv()
    batch, length = env.symbol(8, At("x.size(0)")), env.symbol(128, At("x.size(1)"))
    questions = {
        "batch == length": lambda: batch == length,
        "length % 8 == 0": lambda: length % 8 == 0,
        "length % 4 == 0": lambda: length % 4 == 0,
        "batch * length > 100": lambda: batch * length > 100,
        "batch < 32": lambda: batch < 32,
        "2 * batch <= 64": lambda: 2 * batch <= 64,
    }
    print(f"--- batch is 8 and length 128 this time: {batch}, {length}; a reshape to rows: {batch * length} ---")
    for text, ask in questions.items():
        before = env.guards()
        answer = bool(ask())
        new = [str(g).split(" with ")[0] for g in env.guards() if g not in before]
        print(f"{text:22} {answer!s:6} {'guard: ' + ', '.join(new) if new else 'known: no guard'}")
    print("--- guards in the end ---")
    for guard in env.guards():
        print(str(guard).split(" with ")[0])
    assert isinstance(batch, torch.SymInt)


if __name__ == "__main__":
    main()
