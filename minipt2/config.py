"""Every setting of minipt2 in one dataclass; the environment is read here and nowhere else.

``MINIPT2_<NAME>`` overrides a field at import. ``config.patch(...)`` changes fields for a ``with`` block.
Upstream: ``torch._dynamo.config`` and ``torch._inductor.config``.
"""
from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Callable, Iterator, TypeVar

T = TypeVar("T")


@dataclass
class Config:
    recompile_limit: int = 8
    """Entries kept per code object before it runs eagerly from then on."""
    raise_internal_errors: bool = False
    """Raise faults of minipt2 itself instead of running the frame eagerly (tests)."""
    cache_dir: str = ""
    """Compiled artifacts; default: ``minipt2-<uid>`` in the user's cache folder."""
    disk_cache: bool = True
    cc: str = ""
    """C compiler command; default: ``$CC``, then gcc, clang, cc."""
    freeze: bool = True
    """In inference, do work that depends on parameters alone once (guarded by their versions)."""
    onednn: bool = True
    """Use oneDNN's fused convolution and linear operators where they win."""
    channels_last: bool = True
    """Let convolutions run in channels-last memory format inside a graph."""
    fusion: bool = True
    """Fuse loop nests in the scheduler (off: one kernel per buffer; an ablation switch)."""
    verify_ir: bool = False
    """Check IR invariants between passes (tests)."""
    max_fusion_size: int = 64
    """Most loop bodies fused into one kernel."""

    @contextlib.contextmanager
    def patch(self, **changes: Any) -> Iterator["Config"]:
        unknown = set(changes) - {f.name for f in fields(self)}
        if unknown:
            raise AttributeError(f"no such setting: {sorted(unknown)}; there are {[f.name for f in fields(self)]}")
        before = {name: getattr(self, name) for name in changes}
        try:
            self.__dict__.update(changes)
            yield self
        finally:
            self.__dict__.update(before)

    def bind(self, fn: Callable[..., T]) -> Callable[..., T]:
        """``fn``, always run under the settings in force now: a backward graph is compiled long after ``options`` were given."""
        settings = dict(self.__dict__)

        @functools.wraps(fn)
        def bound(*args: Any, **kwargs: Any) -> T:
            with self.patch(**settings):
                return fn(*args, **kwargs)
        return bound

    def cache_path(self) -> Path:
        """Folder for compiled artifacts (not created here)."""
        if self.cache_dir:
            return Path(self.cache_dir)
        base = os.environ.get("XDG_CACHE_HOME")
        if base is None:
            home = Path.home() / ".cache"
            base = str(home) if os.access(home.parent, os.W_OK) else tempfile.gettempdir()
        return Path(base) / f"minipt2-{os.getuid()}"


def _from_environment() -> Config:
    values = Config()
    for field in fields(Config):
        text = os.environ.get(f"MINIPT2_{field.name.upper()}")
        if text is None:
            continue
        default = getattr(values, field.name)
        if isinstance(default, bool):
            parsed: Any = text.lower() not in ("0", "false", "no", "off", "")
        else:
            parsed = type(default)(text)
        setattr(values, field.name, parsed)
    return values


config = _from_environment()
