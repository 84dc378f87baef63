"""Put a student's function in the place of the package's, so that the whole compiler runs on it.

The package's function object stays (registries and other modules hold it); its *code* becomes a jump to the student's function, so the
package's own body cannot run any more. The student's file sees the names of the module it replaces a piece of.
"""
from __future__ import annotations

import ast
import importlib
import inspect
import reprlib
import sys
import types
from pathlib import Path
from typing import Any, Callable

import torch

from ..dynamo import skip
from ..exercise import is_hollow, marked, unwritten
from . import lint
from .tasks import Task

_TEXTS_KEPT = 2000
_short = reprlib.Repr()
_short.maxstring, _short.maxother, _short.maxlist, _short.maxtuple = 60, 80, 8, 8


class BadAnswer(ImportError):
    """The student's file cannot take the place of the package's."""


class Calls:
    """How often the student's functions were called, and the last call as text."""

    def __init__(self) -> None:
        self.count, self.last = 0, ""

    def note(self, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        self.count += 1
        if self.count <= _TEXTS_KEPT:
            self.last = f"{name}({', '.join([*map(show, args), *(f'{k}={show(v)}' for k, v in kwargs.items())])})"


def show(value: Any) -> str:
    """A value, short: tensors by dtype and sizes, other things by their beginning."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return f"[{', '.join(map(show, value[:8]))}]"
    try:
        return " ".join(_short.repr(value).split())
    except Exception:  # an object in the making may have no text yet
        return f"<{type(value).__name__}>"


def load(task: Task, path: Path) -> types.ModuleType:
    """Run the student's file. It sees, under its own definitions, what the module has whose piece it is."""
    home = importlib.import_module(task.module)
    module = types.ModuleType(f"{task.module}__answer")
    module.__dict__.update({k: v for k, v in vars(home).items() if not k.startswith("__")})
    module.__dict__.update(__file__=str(path), __package__=task.module.rpartition(".")[0])
    sys.modules[module.__name__] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def _plain(attribute: Any) -> Callable[..., Any]:
    if isinstance(attribute, property):
        return attribute.fget  # type: ignore[return-value]
    return attribute.__func__ if isinstance(attribute, (staticmethod, classmethod)) else attribute


def _function(namespace: dict[str, Any], target: str) -> Callable[..., Any]:
    *classes, name = target.split(".")
    for owner in classes:
        namespace = vars(namespace[owner])
    return _plain(namespace[name])


def bind(task: Task, path: Path) -> Calls:
    """Load ``path`` and replace the functions of ``task`` by it. Raises whatever the file raises, and BadAnswer."""
    home = importlib.import_module(task.module)
    originals = {fn.__qualname__: fn for fn in marked.get(task.id, ())}
    module, calls, tree = load(task, path), Calls(), ast.parse(path.read_text())
    skip.treat_as_compiler(str(path))
    for target in task.target:
        try:
            answer = _function(vars(module), target)
        except KeyError:
            raise BadAnswer(f"{path} defines no {target}") from None
        head = lint.find(tree, target)
        if head is None or lint.is_empty(head):
            answer = unwritten(task.id, answer)
        elif isinstance(getattr(answer, "__wrapped__", None), types.FunctionType) and is_hollow(answer.__wrapped__):
            answer = answer.__wrapped__  # a bare "return None" only looks unwritten
        _redirect(originals[target], _counted(answer, target, calls))
    owners = {target.split(".")[0] for target in task.target if "." in target}
    vars(module).update({name: vars(home)[name] for name in owners})  # the student's class held the methods, no more
    return calls


def _counted(answer: Callable[..., Any], name: str, calls: Calls) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.note(name, args, kwargs)
        return answer(*args, **kwargs)
    return counted


def _redirect(original: Any, answer: Callable[..., Any]) -> None:
    """Every caller of ``original``, however it got hold of it, now runs ``answer``."""
    if original.__code__.co_freevars:
        raise BadAnswer(f"{original.__qualname__} is a closure: it cannot be an exercise")
    name = f"_answer_{original.__qualname__.replace('.', '_')}"
    signature = inspect.signature(original)
    made: dict[str, Any] = {}
    exec(compile(f"def jump(*args, **kwargs):\n    return {name}(*args, **kwargs)", original.__code__.co_filename, "exec"), made)
    original.__globals__[name] = answer
    original.__code__, original.__defaults__, original.__kwdefaults__ = made["jump"].__code__, None, None
    original.__signature__ = signature
