"""A world, a function in it, and a change made between two calls: what the tests of complete guards are made of."""
import contextlib
import types

import torch
from torch import nn

import minipt2

X = torch.arange(1.0, 7.0).reshape(2, 3)


def outcome(fn, *args):
    """What a call gives or raises, as something ``==`` compares."""
    try:
        return describe(fn(*args))
    except Exception as error:
        return type(error)


def describe(value):
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        return type(value), value.dtype, value.device, tuple(value.shape), value.stride(), value.requires_grad, value.is_inference(), (
            None if value.is_meta else repr(plain.tolist()))
    if isinstance(value, (tuple, list)):
        return type(value), [describe(v) for v in value]
    return type(value), value


def facts(value):
    return type(value), value.dtype, value.device, tuple(value.shape), value.stride(), value.requires_grad


def strict(gm, examples):
    """A backend whose graphs refuse inputs unlike those they were compiled for, where PyTorch would run on."""
    expected = [facts(value)[1:] for value in examples if isinstance(value, torch.Tensor)]

    def run(*args):
        found = [facts(value)[1:] for value in args if isinstance(value, torch.Tensor)]
        assert found == expected, f"compiled for {expected}, called with {found}"
        return torch.fx.Interpreter(gm).run(*args)

    return run


def noticed(make, backend=strict):
    """Check that the change ``make() -> (function, change)`` describes is noticed by the compiled function."""
    with contextlib.ExitStack() as undo:
        (fn, change), (plain, change_plain) = make(), make()  # two equal worlds: calls may change theirs
        compiled = minipt2.compile(fn, backend=backend)
        assert outcome(compiled, X) == outcome(plain, X)
        assert outcome(compiled, X) == outcome(plain, X)
        for entered in (change(), change_plain()):
            if hasattr(entered, "__enter__"):
                undo.enter_context(entered)
        assert outcome(compiled, X) == outcome(plain, X)


def fresh(source, **names):
    """A module namespace of its own with ``source`` executed in it."""
    space = {"torch": torch, "nn": nn, "__name__": "fresh", **names}
    exec(source, space)
    return space


def in_globals(text, change, **names):
    space = fresh(f"def fn(x):\n    return {text}\n", **names)
    return space["fn"], lambda: change(space)


@contextlib.contextmanager
def patch(owner, name, value):
    had, before = name in vars(owner), vars(owner).get(name, getattr(owner, name, None))
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before) if had or not isinstance(owner, (type, types.ModuleType)) else delattr(owner, name)
