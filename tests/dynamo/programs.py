"""Random small Python functions with loops, branches, containers, exceptions, ``with`` blocks and forced graph breaks.

``program(seed)`` is source text of ``def f(x, y, box)``; ``cut()`` in it breaks the graph. Used by ``test_programs``; alone:
``python tests/dynamo/programs.py FIRST COUNT`` compares that many programs.
"""
from __future__ import annotations

import random
import sys


class Writer:
    """Writes statements; ``names`` are tensor variables certainly bound here."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.names = ["x", "y"]
        self.counter = 0
        self.loops = 0

    def tensor(self, depth: int = 0) -> str:
        r = self.random
        kinds = ["name"] * 4 + ["add", "mul", "sub", "relu", "call", "item", "cond", "box", "scalar"]
        kind = r.choice(kinds if depth < 3 else ["name"])
        a = r.choice(self.names)
        if kind == "name":
            return a
        if kind in ("add", "mul", "sub"):
            sign = {"add": "+", "mul": "*", "sub": "-"}[kind]
            return f"({self.tensor(depth + 1)} {sign} {self.tensor(depth + 1)})"
        if kind == "relu":
            return f"torch.relu({self.tensor(depth + 1)})"
        if kind == "call":
            return f"helper({self.tensor(depth + 1)}, {self.tensor(depth + 1)}, k={self.number()})"
        if kind == "item":
            return f"({a} + {self.tensor(depth + 1)}.sum().item())"
        if kind == "cond":
            return f"({self.tensor(depth + 1)} if {self.condition()} else {self.tensor(depth + 1)})"
        if kind == "box":
            return f"(box[-1] + {a})"
        return f"({a} * {self.number()})"

    def number(self) -> str:
        return self.random.choice(["1", "2", "0.5", "n", "len(box)"])

    def condition(self) -> str:
        a = self.random.choice(self.names)
        return self.random.choice([f"{a}.sum() > 0", f"n > {self.random.randint(0, 3)}", f"len(box) < {self.random.randint(1, 6)}",
                                   f"{a}.shape[0] == 2", f"isinstance({a}, torch.Tensor) and n < 2"])  # fmt: skip

    def emit(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def new(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def block(self, depth: int, size: int) -> None:
        saved = list(self.names)
        for _ in range(self.random.randint(1, size)):
            self.statement(depth)
        self.names = saved

    def statement(self, depth: int) -> None:
        r = self.random
        kinds = ["assign"] * 5 + ["cut"] * 2 + ["append", "count", "inplace", "update"]
        if depth < 4:
            kinds += ["if", "for", "try", "with", "while", "nested", "comprehension", "raise"]
        getattr(self, "s_" + r.choice(kinds))(depth)

    def s_assign(self, depth):
        value = self.tensor()
        name = self.new() if self.random.random() < 0.5 else self.random.choice(self.names)
        self.emit(depth, f"{name} = {value}")
        if name not in self.names:
            self.names.append(name)

    def s_cut(self, depth):
        self.emit(depth, self.random.choice(["cut()", f"{self.random.choice(self.names)} = cut({self.tensor()})"]))

    def s_append(self, depth):
        self.emit(depth, f"box.append({self.tensor()})")

    def s_count(self, depth):
        self.emit(depth, "n += 1")

    def s_inplace(self, depth):
        name = self.random.choice(self.names)
        self.emit(depth, f"{name} = {name}.clone()")
        self.emit(depth, f"{name}.add_({self.number()})")

    def s_update(self, depth):
        self.emit(depth, self.random.choice([f"state['k'] = {self.tensor()}", "state.setdefault('n', []).append(n)", "state.pop('k', None)"]))

    def s_if(self, depth):
        self.emit(depth, f"if {self.condition()}:")
        self.block(depth + 1, 3)
        if self.random.random() < 0.6:
            self.emit(depth, "else:")
            self.block(depth + 1, 3)

    def s_for(self, depth):
        i = f"i{depth}"
        over = self.random.choice([f"for {i} in range({self.random.randint(0, 3)}):", f"for {i}, v{depth} in enumerate(list(box)):",
                                   f"for {i}, v{depth} in zip(range(3), box[:2]):"])  # fmt: skip
        self.emit(depth, over)
        self.loops += 1
        self.block(depth + 1, 3)
        if self.random.random() < 0.3:
            self.emit(depth + 1, f"if {self.condition()}:")
            self.emit(depth + 2, self.random.choice(["break", "continue"]))
        self.loops -= 1
        if self.random.random() < 0.2:
            self.emit(depth, "else:")
            self.block(depth + 1, 2)

    def s_while(self, depth):
        name = f"w{len(self.lines)}"
        self.emit(depth, f"{name} = 0")
        self.emit(depth, f"while {name} < {self.random.randint(1, 3)}:")
        self.emit(depth + 1, f"{name} += 1")
        self.block(depth + 1, 3)

    def s_try(self, depth):
        self.emit(depth, "try:")
        self.block(depth + 1, 3)
        if self.random.random() < 0.7:
            self.emit(depth + 1, self.random.choice(["raise ValueError(n)", "fail(n)", "state['missing']", "box[99]"]))
        self.emit(depth, self.random.choice(["except (ValueError, KeyError) as e:", "except Exception as e:", "except LookupError as e:"]))
        self.emit(depth + 1, "log.append(type(e).__name__)")
        self.block(depth + 1, 2)
        if self.random.random() < 0.3:
            self.emit(depth, "else:")
            self.block(depth + 1, 2)
        if self.random.random() < 0.4:
            self.emit(depth, "finally:")
            self.block(depth + 1, 2)

    def s_with(self, depth):
        self.emit(depth, self.random.choice(["with torch.no_grad():", "with Guarded(log) as g:", "with managed(log):"]))
        self.block(depth + 1, 3)

    def s_raise(self, depth):
        if self.random.random() < 0.3:
            self.emit(depth, f"if {self.condition()}:")
            self.emit(depth + 1, "raise KeyError('out')")
        else:
            self.emit(depth, "pass")

    def s_nested(self, depth):
        name = f"f{len(self.lines)}"
        self.emit(depth, f"def {name}(a, b=n):")
        self.emit(depth + 1, "nonlocal n" if self.random.random() < 0.5 else "pass")
        if "nonlocal" in self.lines[-1]:
            self.emit(depth + 1, "n += 1")
        self.emit(depth + 1, f"return a * b + {self.tensor()}")
        target = self.random.choice(self.names)
        self.emit(depth, f"{target} = {name}({target})")

    def s_comprehension(self, depth):
        self.emit(depth, f"box.extend([helper(q, {self.random.choice(self.names)}) for q in box[:2]])")


HEADER = """
import contextlib, torch

class Guarded:
    def __init__(self, log): self.log = log
    def __enter__(self): self.log.append("in"); return self
    def __exit__(self, kind, value, tb):
        self.log.append("out"); return kind is KeyError

@contextlib.contextmanager
def managed(log):
    log.append("enter")
    try:
        yield
    finally:
        log.append("leave")

def helper(a, b, k=1):
    c = a * k
    if k == 2:
        cut()
    return c + b

def fail(n):
    raise ValueError(n + 1)

def f(x, y, box):
    n, state, log = 0, {}, []
"""


def program(seed: int) -> str:
    writer = Writer(seed)
    for _ in range(writer.random.randint(2, 7)):
        writer.statement(1)
    return HEADER + "\n".join(writer.lines) + f"\n    return [{', '.join(writer.names)}], box, state, log, n, torch.is_grad_enabled()\n"


def compare(seed: int) -> str | None:
    """What differs between eager and compiled, on two sets of inputs and two calls each; None if nothing."""
    import linecache

    import torch
    from minipt2.dynamo import disable, optimize

    text = program(seed)
    name = f"/tmp/program_{seed}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"cut": disable(lambda *a: a[0] * 2 if a else None), "__name__": f"program_{seed}"}
    exec(compile(text, name, "exec"), scope)
    plain = scope["f"]
    compiled = optimize(plain, lambda gm, examples: gm.forward)
    for sign in (1.0, -1.0):
        for _ in range(2):
            outcomes = []
            for fn in (plain, compiled):
                box = [torch.full((2,), 0.5)]
                x = torch.tensor([1.0, 2.0]) * sign
                try:
                    result = fn(x, torch.tensor([0.25, -1.0]), box)
                except Exception as error:
                    result = (type(error).__name__, str(error))
                outcomes.append((flat(result), flat(box), flat(x), torch.is_grad_enabled()))
                torch.set_grad_enabled(True)
            if outcomes[0] != outcomes[1]:
                return f"eager {outcomes[0]}\ncompiled {outcomes[1]}\n{text[len(HEADER):]}"
    return None


def flat(value):
    import torch

    if isinstance(value, torch.Tensor):
        return ("tensor", repr(value.tolist()), value.requires_grad)
    if isinstance(value, dict):
        return {k: flat(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(flat, value))
    return value


if __name__ == "__main__":
    from collections import Counter

    from minipt2 import trace
    from minipt2.config import config

    first, count = int(sys.argv[1]), int(sys.argv[2])
    failures, reasons = [], Counter()
    trace.subscribe(lambda stage, name, payload: reasons.update([payload[1] if isinstance(payload, tuple) else str(payload)]) if stage == "skipped" else None)
    with config.patch(raise_internal_errors="--strict" in sys.argv):
        for seed in range(first, first + count):
            try:
                different = compare(seed)
            except Exception as error:
                import traceback

                different = "".join(traceback.format_exception(error)[-6:])
            if different:
                failures.append(seed)
                sys.stdout.write(f"--- {seed}\n{different}\n")
    sys.stdout.write(f"{len(failures)} of {count} differ: {failures[:40]}\n{trace.counters()}\n{reasons.most_common(15)}\n")
