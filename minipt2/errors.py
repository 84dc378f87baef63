"""Every exception minipt2 raises on purpose, and the frame summaries they carry.

Upstream: ``torch._dynamo.exc``. Imported by every room; imports none of them but the catalogue of reasons.
"""
from __future__ import annotations

import linecache
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import torch

from .catalogue import REASONS

_OURS = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "<minipt2")


class UserFrame(NamedTuple):
    """One line of the user's program: where a node, a break or an error came from."""

    file: str
    line: int
    function: str
    text: str = ""

    @classmethod
    def at(cls, file: str, line: int, function: str) -> "UserFrame":
        return cls(file, line, function, linecache.getline(file, line).strip())

    def __str__(self) -> str:
        text = f"\n    {self.text}" if self.text else ""
        return f'File "{self.file}", line {self.line}, in {self.function}{text}'


class Minipt2Error(RuntimeError):
    """Base of all errors raised by minipt2 itself."""


class Unsupported(Minipt2Error):
    """Something that cannot be captured: a graph break, or with ``fullgraph=True`` an error.

    ``code`` is a stable name of ``catalogue.REASONS`` (``MP101`` ...), ``reason`` says what was met, ``advice`` what the user can do
    (default: the catalogue's), ``frames`` the user's lines from outermost to innermost.
    """

    def __init__(self, code: str, reason: str, advice: str = "", frames: tuple[UserFrame, ...] = ()):
        super().__init__(reason)
        self.code, self.reason, self.advice, self.frames = code, reason, advice or REASONS[code].advice, frames

    @property
    def title(self) -> str:
        """What the catalogue calls the reason."""
        return REASONS[self.code].title

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.reason}"]
        lines += [f"  {frame}" for frame in self.frames]
        lines.append(f"  What to do: {self.advice}")
        return "\n".join(lines)


class FixedSize(Unsupported):
    """The code can only run for one size of a dimension that the user has marked dynamic. Raised whether or not graphs may break."""


class BackendError(Minipt2Error):
    """A backend failed to compile a captured graph; ``__cause__`` holds the original error."""


class CompilerNotFound(Minipt2Error):
    """No working C compiler: the inductor backend then runs every kernel through eager."""


class PartlyWritten(Minipt2Error):
    """``__cause__`` came up when compiled code had begun to write into its inputs: it can't be run again. Not for users: they get the cause."""


class IndexOutOfRange(IndexError, RuntimeError):
    """Compiled code met an index outside its dimension. Of eager's kernels some raise the one, some the other."""


class InvalidArgument(Minipt2Error, ValueError):
    """An unknown backend, mode or option; the message lists the ones that exist."""


def warn(message: str) -> None:
    """A UserWarning at the line of the user's program that we were called from (not one of ours, or of torch's)."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
