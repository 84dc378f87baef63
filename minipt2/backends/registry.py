"""Names of backends. A backend is ``fn(gm: fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., tuple]``, the protocol of ``torch.compile``.

Upstream: ``torch._dynamo.backends.registry``.
"""
from __future__ import annotations

import functools
from importlib import metadata
from typing import Any, Callable

import torch
from torch import fx

from ..errors import BackendError, InvalidArgument
from ..fake import for_strangers
from .each_size import for_each_size, has_symbols

Backend = Callable[..., Callable[..., Any]]
GROUP = "minipt2.backends"
"""Entry-point group by which other packages offer backends."""
_registered: dict[str, Backend] = {}


def register_backend(fn: Backend | None = None, *, name: str | None = None) -> Any:
    """Make ``fn`` known as a backend under ``name`` (default: its own). Usable as a decorator, with and without arguments.

    Registering a name again replaces it. Raises InvalidArgument for something that is not callable.
    """
    if fn is None:
        return functools.partial(register_backend, name=name)
    if not callable(fn):
        raise InvalidArgument(f"a backend is a callable (gm, example_inputs) -> callable, not {fn!r}")
    _registered[name or fn.__name__] = fn
    return fn


@functools.cache
def _installed() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def list_backends() -> list[str]:
    """Names that ``backend=`` accepts, sorted: ours, registered ones, and those of installed packages."""
    return sorted({*_registered, *_installed()})


def lookup(backend: str | Backend) -> Backend:
    """The backend of that name, or ``backend`` itself when callable. Raises InvalidArgument with the names that exist."""
    if callable(backend):
        return backend
    if backend in _registered:
        return _registered[backend]
    if backend in _installed():
        return register_backend(_installed()[backend].load(), name=backend)
    raise InvalidArgument(f"no backend {backend!r}; there are {', '.join(list_backends())}, or pass any callable (gm, example_inputs) -> callable")


def with_familiar_inputs(backend: Backend) -> Backend:
    """``backend``; one from outside gets example inputs of the class that ``torch.compile`` would give it, and what it returns is checked.

    One that fails where sizes are symbols gets a graph for each tuple of sizes instead.
    """
    if getattr(backend, "__module__", "").startswith(f"{__name__.partition('.')[0]}."):
        return backend

    @functools.wraps(backend)
    def call(gm: fx.GraphModule, example_inputs: list[torch.Tensor], **options: Any) -> Callable[..., Any]:
        compile = lambda gm, inputs: _checked(backend(gm, [for_strangers(example) for example in inputs], **options), gm)  # noqa: E731
        if not has_symbols(example_inputs):
            return compile(gm, example_inputs)
        try:
            return compile(gm, example_inputs)
        except Exception as error:
            return for_each_size(compile, gm, error)
    return call


def _checked(fn: Any, gm: fx.GraphModule) -> Any:
    """``fn``, which has to return as many values as ``gm`` does, in a tuple or list."""
    if not callable(fn) or fn == gm.forward:
        return fn
    expected = len(next(node for node in reversed(gm.graph.nodes) if node.op == "output").args[0])

    def run(*args: Any) -> Any:
        results = fn(*args)
        if not isinstance(results, (tuple, list)) or len(results) != expected:
            what = f"{len(results)} values" if isinstance(results, (tuple, list)) else f"a {type(results).__name__}"
            raise BackendError(f"what the backend made of {gm.meta.get('name', 'a graph')} returned {what}; a tuple of {expected} is wanted")
        return results
    return run
