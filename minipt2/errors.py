"""Every exception minipt2 raises on purpose, and the frame summaries they carry.

Upstream: ``torch._dynamo.exc``. Imported by every room; imports none of them but the catalogue of reasons.
"""
from __future__ import annotations

import ast
import itertools
import linecache
import sys
import warnings
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Sequence

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


class AssumptionFailed(Minipt2Error):
    """Captured code took something for true of a tensor's data that is not. Not for users: the frame runs again as plain Python."""


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


def at_user_lines(error: BaseException, frames: Sequence[UserFrame], below: int | None = None) -> None:
    """Put the user's lines into the traceback of ``error``, as if the program had raised it there rather than a graph made of it.

    frames: outermost first. below: how many entries of the traceback come before them (default: all).
    """
    entries, tb = [], error.__traceback__
    while tb is not None:
        entries.append(tb)
        tb = tb.tb_next
    below = len(entries) if below is None else below
    chain = None
    for tb in reversed([*entries[:below], *map(_entry, frames), *entries[below:]]):
        chain = TracebackType(chain, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    error.__traceback__ = chain


def of_graph(error: BaseException) -> None:
    """Put the user's lines of the graph's node in which ``error`` came up into its traceback, where it came up in one."""
    found, depth, tb = None, 0, error.__traceback__
    while tb is not None:
        depth += 1
        code, module = tb.tb_frame.f_code, tb.tb_frame.f_locals.get("self")
        if isinstance(module, torch.fx.GraphModule) and code is getattr(module.forward, "__code__", None):
            found = module, tb.tb_lineno - code.co_firstlineno, depth
        tb = tb.tb_next
    if found is not None:
        module, line, depth = found
        index = (getattr(module, "_lineno_map", None) or {}).get(line)
        node = next(itertools.islice(module.graph.nodes, index, None), None) if index is not None else None
        at_user_lines(error, node.meta.get("stack", ()) if node is not None else (), depth)


def _entry(frame: UserFrame) -> TracebackType:
    """A traceback's entry for a line that is not running: of code that was compiled to lie there, and does nothing but raise."""
    start = len(linecache.getline(frame.file, frame.line)) - len(linecache.getline(frame.file, frame.line).lstrip())
    raising = ast.parse("raise RuntimeError")
    for node in ast.walk(raising):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno = node.end_lineno = frame.line
            node.col_offset, node.end_col_offset = start, start + len(frame.text)
    name = frame.function.rpartition(".")[2]
    code = compile(raising, frame.file, "exec").replace(co_name=name)
    try:
        exec(code, {})
    except RuntimeError as error:
        return error.__traceback__.tb_next
    raise AssertionError("unreachable")
