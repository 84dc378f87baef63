"""The public API: ``compile`` and its companions.

In: a user's module or function. Out: something that behaves the same and runs compiled graphs. It composes ``dynamo``
(capture) with a callable of ``backends``; upstream counterpart: ``torch.compile`` and ``torch._dynamo.eval_frame``.
"""
from __future__ import annotations

import copy
import functools
import types
from typing import Any, Callable

import torch
from torch import nn

from . import backends, dynamo, trace
from .config import config
from .distributed import in_buckets
from .errors import InvalidArgument

MODES = {
    "default": {},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"cuda_graphs": True, "max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}
"""The settings that each mode changes."""
OPTIONS = ("cuda_graphs", "max_autotune", "coordinate_descent", "fusion", "freeze", "onednn", "packed_products", "channels_last", "max_fusion_size",
           "memory_budget", "eager_random")
"""Settings of ``config`` that ``options=`` may override for one compiled function."""


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str | Callable = "inductor",
            mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """Return ``model`` compiled: same calls, same numbers, fewer kernels.

    ``model``: an ``nn.Module`` (gives an ``OptimizedModule``), a function or method, or nothing, for use as a decorator with arguments.
    ``fullgraph``: raise ``Unsupported`` where the graph would break. ``dynamic``: None compiles for the sizes met first, and for any size
    of a dimension (any value of an int or float) that then changes; True for any size but 0 and 1 from the start; False for one size
    only, each other one being a new compilation (see ``mark_dynamic``, ``mark_static``). ``backend``: a name of ``list_backends()`` or a
    callable ``(gm, example_inputs) -> callable``.
    ``mode``: one of ``MODES``; ``reduce-overhead`` replays CUDA graphs, ``max-autotune`` times kernels as well (``-no-cudagraphs``: only
    that); on a CPU all modes generate the default code. ``options``: overrides of the settings named in ``OPTIONS``
    (``{"memory_budget": 0.5}``: save less for the backward, compute more of it again).
    Raises ``InvalidArgument`` at once for an unknown backend, mode or option. What is compiled already is compiled anew, with these
    settings. Follows ``torch.compile``.
    """
    _check(bool, fullgraph=fullgraph, disable=disable)
    _check((bool, type(None)), dynamic=dynamic)
    call_backend = _resolve(backend, mode, options)
    settings = dict(fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options)
    if model is None:
        return functools.partial(compile, **settings, disable=disable)
    if disable:
        return model
    if isinstance(model, nn.Module):
        return _optimize_module(model, settings, call_backend)
    if isinstance(model, type) or not callable(model):
        raise InvalidArgument(f"minipt2.compile takes a module, a function or nothing (as a decorator), not {model!r}")
    return dynamo.optimize(_original(model), call_backend, fullgraph=fullgraph, dynamic=dynamic)


def _original(fn: Callable) -> Callable:
    """The function or method that ``fn`` was compiled from; ``fn`` itself if it was not."""
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, OptimizedModule) and fn == owner.forward:
        return owner._orig_mod.forward
    return getattr(fn, "_minipt2_inline", fn)


def _check(kinds: type | tuple[type, ...], **values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, kinds):
            raise InvalidArgument(f"{name} is True or False{' or None' if kinds is not bool else ''}, not {value!r}")


def _resolve(backend: str | Callable, mode: str | None, options: dict[str, Any] | None) -> Callable:
    """The backend as a callable that applies ``options`` while it compiles."""
    if mode is not None and mode not in MODES:
        raise InvalidArgument(f"no mode {mode!r}; there are {', '.join(MODES)}")
    if not isinstance(options, (dict, type(None))):
        raise InvalidArgument(f"options is a dict of names out of {', '.join(OPTIONS)}, not {options!r}")
    unknown = sorted(set(options or ()) - set(OPTIONS))
    if unknown:
        raise InvalidArgument(f"no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    try:
        with config.patch(**(options or {})):
            pass
    except (TypeError, ValueError) as error:
        raise InvalidArgument(str(error).replace("setting", "option", 1)) from None
    call = in_buckets(backends.with_familiar_inputs(backends.lookup(backend)))
    changes = {**MODES[mode or "default"], **(options or {})}
    if not changes:
        return call

    @functools.wraps(call)
    def with_options(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
        with config.patch(**changes):
            return call(gm, example_inputs)
    return with_options


class OptimizedModule:
    """Mixin of the class made for each compiled module: calls are compiled, everything else is the module's own.

    A compiled module *shares the ``__dict__``* of the module within. Parameters, buffers, hooks, ``training``, ``state_dict`` keys and
    attributes are therefore the same objects in both, ``isinstance`` holds, and methods that call ``self(...)`` run compiled.
    ``_orig_mod`` is the module within.
    """

    _orig_mod: nn.Module
    _settings: dict[str, Any]
    _compiled_call: Callable
    _compiled_forward: Callable

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Deliberately does not continue: the user's own ``__init_subclass__`` must not see a class they never wrote."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self)._compiled_call(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self)._compiled_forward(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        return compile(copy.deepcopy(self._orig_mod, memo), **self._settings)

    def __copy__(self) -> nn.Module:
        return compile(copy.copy(self._orig_mod), **self._settings)

    def __reduce_ex__(self, protocol: int) -> tuple:
        return _recompile, (self._orig_mod, self._settings)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), "_orig_mod"})


def _recompile(module: nn.Module, settings: dict[str, Any]) -> nn.Module:
    return compile(module, **settings)


def _optimize_module(module: nn.Module, settings: dict[str, Any], call_backend: Callable) -> nn.Module:
    if isinstance(module, OptimizedModule):
        module = module._orig_mod
    kind = type(module)
    optimize = functools.partial(dynamo.optimize, backend=call_backend, fullgraph=settings["fullgraph"], dynamic=settings["dynamic"])
    namespace = {
        "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__,
        "_orig_mod": module, "_settings": settings,
        "_compiled_call": staticmethod(optimize(module)),
        "_compiled_forward": staticmethod(optimize(module.forward)),
    }
    namespace["forward"] = _in_the_name_of(kind.forward, OptimizedModule.forward)
    # type.__new__ itself, so that a metaclass with a registry does not register this class
    compiled_kind = type.__new__(type(kind), kind.__name__, (OptimizedModule, kind), namespace)
    compiled = object.__new__(compiled_kind)
    object.__setattr__(compiled, "__dict__", module.__dict__)
    return compiled


def _in_the_name_of(original: Callable, function: types.FunctionType) -> Callable:
    """A copy of ``function`` with the name and signature of ``original``: libraries look at ``forward``'s parameters."""
    return functools.wraps(original)(types.FunctionType(function.__code__, function.__globals__))


dynamo.transparent_code(OptimizedModule.__call__.__code__)
dynamo.transparent_code(OptimizedModule.forward.__code__)


def disable(fn: Callable | None = None) -> Callable:
    """Run ``fn`` (and what it calls) as plain Python always; a call of it inside compiled code is a graph break. Usable as a decorator."""
    return disable if fn is None else dynamo.disable(fn)


def reset() -> None:
    """Forget every compiled entry and counter; disk caches stay. Compiled functions compile anew at their next call."""
    dynamo.reset()
    trace.reset()


is_compiling = dynamo.is_compiling
mark_dynamic, mark_static = dynamo.mark_dynamic, dynamo.mark_static


def counters() -> dict[str, int]:
    """Events since the last ``reset``: ``graphs``, ``breaks``, ``recompiles``, ``kernels``, ``fallbacks`` and more."""
    return trace.counters()
