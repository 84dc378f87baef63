"""What is done with generated text in tests: compared with a file, and compiled without a GPU."""
from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path
from typing import Iterable

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, text: str, suffix: str = "triton") -> None:
    """``text`` is what ``golden/<name>.<suffix>`` holds; with ``MINIPT2_GOLDEN=1`` in the environment it is written there."""
    path = GOLDEN / f"{name}.{suffix}"
    if os.environ.get("MINIPT2_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "generated text changed; MINIPT2_GOLDEN=1 writes it anew"


def check_machine_code(futures: Iterable[Future]) -> None:
    """Each program that ``triton_pool`` was given became a cubin for whole warps."""
    for binary, launch in (f.result() for f in futures):
        assert binary[:4] == b"\x7fELF" and launch["threads"] % 32 == 0
