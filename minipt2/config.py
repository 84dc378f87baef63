"""Every setting of minipt2 in one dataclass; the environment is read here and nowhere else.

``MINIPT2_<NAME>`` overrides a field at import. ``config.patch(...)`` changes fields for a ``with`` block.
Upstream: ``torch._dynamo.config`` and ``torch._inductor.config``.
"""
from __future__ import annotations

import contextlib
import difflib
import functools
import os
import tempfile
import warnings
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
    """Keep compiled artifacts for other processes."""
    cache_megabytes: int = 4096
    """How much is kept there; what was not used for longest goes first."""
    cc: str = ""
    """C compiler command; default: ``$CC``, then gcc, clang, cc."""
    freeze: bool = True
    """In inference, do work that depends on parameters alone once (guarded by their versions)."""
    onednn: bool = True
    """Use oneDNN's fused convolution and linear operators where they win."""
    packed_products: bool = True
    """On a CPU, compute attention and, in inference, linear layers and convolutions with packed weights by C of our own where that is faster (measured
    once)."""
    channels_last: bool = True
    """Let convolutions run in channels-last memory format inside a graph."""
    fusion: bool = True
    """Fuse loop nests in the scheduler (off: one kernel per buffer; an ablation switch)."""
    cuda_graphs: bool = False
    """Record what a graph launches on a GPU, and replay it (``mode="reduce-overhead"``)."""
    eager_random: bool = False
    """On a GPU, draw random numbers by eager's kernels: the same numbers as eager for one seed, but no fusion. On a CPU they always are."""
    triton_interpret: bool = False
    """Run CPU tensors through the GPU's code generator and Triton's interpreter (tests; slow)."""
    max_autotune: bool = False
    """Time several block sizes of every Triton kernel, and Triton templates against the library's matrix products and convolutions, and take the
    fastest (``mode="max-autotune"``)."""
    coordinate_descent: bool = False
    """With ``max_autotune``: go on from the fastest configuration to faster neighbours (longer compile)."""
    verify_ir: bool = False
    """Check IR invariants between passes (tests)."""
    max_fusion_size: int = 64
    """Most loop bodies fused into one kernel."""
    logs: str = ""
    """What ``set_logs`` is told at import: ``bytecode,graph,guards,breaks,recompiles,aot,prims,ir,code,perf`` or some of them."""
    gather_ahead: int = 1
    """How many layers early a graph starts to gather the parameters that ``distributed.shard`` has spread over ranks."""
    memory_budget: float = 1.0
    """Between 1 (save for the backward what makes a step fastest) and 0 (save the least, compute the rest again): see ``aot_autograd.budget``."""

    def __setattr__(self, name: str, value: Any) -> None:
        """A misspelt name, or a value of another type, is an error here and not a setting without effect."""
        default = self.__dataclass_fields__.get(name)
        if default is None:
            raise AttributeError(f"no setting {name!r}; there are {', '.join(self.__dataclass_fields__)}")
        kind = type(default.default)
        if kind is float and type(value) is int:
            value = float(value)
        if kind is not str and not isinstance(value, kind):  # a folder may be a Path
            raise TypeError(f"setting {name!r} takes {kind.__name__}, not {value!r}")
        if name == "memory_budget" and not 0 <= value <= 1:
            raise ValueError(f"setting 'memory_budget' lies between 0 and 1, not at {value!r}")
        super().__setattr__(name, value)

    @contextlib.contextmanager
    def patch(self, **changes: Any) -> Iterator["Config"]:
        unknown = set(changes) - {f.name for f in fields(self)}
        if unknown:
            raise AttributeError(f"no such setting: {sorted(unknown)}; there are {[f.name for f in fields(self)]}")
        before = {name: getattr(self, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(self, name, value)
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

    def identity(self) -> str:
        """All settings that decide what is made of a graph: part of every key of the cache."""
        return repr(sorted((k, v) for k, v in self.__dict__.items() if not k.startswith(("cache", "disk_cache", "logs"))))

    def cache_path(self) -> Path:
        """Folder for compiled artifacts (not created here)."""
        if self.cache_dir:
            return Path(self.cache_dir)
        base = os.environ.get("XDG_CACHE_HOME")
        if base is None:
            home = Path.home() / ".cache"
            base = str(home) if os.access(home.parent, os.W_OK) else tempfile.gettempdir()
        return Path(base) / f"minipt2-{os.getuid()}"


_SWITCH = {**dict.fromkeys(("0", "false", "no", "off", ""), False), **dict.fromkeys(("1", "true", "yes", "on"), True)}


def _from_environment() -> Config:
    values = Config()
    for field in fields(Config):
        text = os.environ.get(f"MINIPT2_{field.name.upper()}")
        if text is None:
            continue
        default = getattr(values, field.name)
        if isinstance(default, bool):
            parsed: Any = _SWITCH.get(text.lower())
            if parsed is None:
                raise ValueError(f"MINIPT2_{field.name.upper()} takes bool (0 or 1), not {text!r}")
        else:
            try:
                parsed = type(default)(text)
            except ValueError:
                raise ValueError(f"MINIPT2_{field.name.upper()} takes {type(default).__name__}, not {text!r}") from None
        setattr(values, field.name, parsed)
    known = {f"MINIPT2_{field.name.upper()}" for field in fields(Config)}
    for name in sorted(set(os.environ) - known):
        if name.startswith("MINIPT2_") and (close := difflib.get_close_matches(name, known, 1, 0.8)):
            warnings.warn(f"{name} is no setting of minipt2; did you mean {close[0]}?", stacklevel=2)
    return values


config = _from_environment()
