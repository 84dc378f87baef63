"""``minipt2 learn ...`` and ``minipt2 course ...`` (also as ``python -m minipt2``)."""
from __future__ import annotations

import importlib
import sys

COMMANDS = {"learn": "do the course: start, list, check, watch, hint, reset, status, doctor, grade",
            "course": "teach it: new, autograder, prove, mutate, leakscan, similar"}


def main(argv: list[str] | None = None) -> int:
    """Hand over to the command's own module; returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] not in COMMANDS:
        width = max(map(len, COMMANDS))
        print("usage: minipt2 COMMAND ...\n\n" + "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items()))
        return 0 if argv[:1] in ([], ["-h"], ["--help"]) else 64
    module = {"learn": "minipt2.course.learn", "course": "minipt2.course.teach"}[argv[0]]
    return importlib.import_module(module).main(argv[1:])


if __name__ == "__main__":
    sys.exit(main())
