"""Nothing that was captured changes unnoticed: globals, functions, closures. Each case is a world, a function, and a change
made between two calls of it; the compiled function must give what plain Python gives before and after.
"""
import enum
import functools
import types

import pytest
import torch
from torch import nn

from changes import fresh, in_globals, noticed

CASES = {}


def case(make):
    """``make() -> (function of a tensor, change)``; the change is called once, between two calls."""
    CASES[make.__name__] = make
    return make


# ---- globals and builtins ----------------------------------------------------------------------------------------
@case
def global_number():
    return in_globals("x * k", lambda g: g.update(k=3), k=2)


@case
def global_number_of_another_type():
    return in_globals("x.long() * k", lambda g: g.update(k=2.0), k=2)


@case
def global_bool_for_int():
    return in_globals("x.long() + (k + 1)", lambda g: g.update(k=True) or g.update(fn2=0), k=1)


@case
def global_float_sign_of_zero():
    return in_globals("x / (x * k)", lambda g: g.update(k=-0.0), k=0.0)


@case
def global_function():
    return in_globals("f(x)", lambda g: g.update(f=lambda x: x - 1), f=lambda x: x + 1)


@case
def global_deleted():
    return in_globals("x * k", lambda g: g.pop("k"), k=2)


@case
def global_shadows_builtin():
    return in_globals("x * len(x)", lambda g: g.update(len=lambda x: 7))


@case
def global_module_attribute():
    m = types.ModuleType("m")
    m.k = 2
    return in_globals("x * m.k", lambda g: setattr(m, "k", 5), m=m)


@case
def global_module_replaced():
    a, b = types.ModuleType("a"), types.ModuleType("b")
    a.k, b.k = 2, 3
    return in_globals("x * m.k", lambda g: g.update(m=b), m=a)


@case
def global_tensor_replaced():
    return in_globals("x * t", lambda g: g.update(t=torch.full((2, 3), 5.0, dtype=torch.float64)), t=torch.ones(2, 3))


@case
def global_none():
    return in_globals("x if k is None else x + 1", lambda g: g.update(k=0), k=None)


@case
def global_enum():
    Color = enum.Enum("Color", "RED BLUE")
    return in_globals("x * k.value", lambda g: g.update(k=Color.BLUE), k=Color.RED)


@case
def global_of_an_inlined_function():
    other = fresh("k = 2\ndef f(x):\n    return x * k\n")
    return in_globals("f(x)", lambda g: other.update(k=9), f=other["f"])


# ---- functions ---------------------------------------------------------------------------------------------------
def helper():
    space = fresh("def f(x, k=2, *, m=1):\n    return x * k + m\n")
    return space["f"]


def calls_helper(change):
    f = helper()
    return in_globals("f(x)", lambda g: change(f), f=f)


@case
def code_replaced():
    return calls_helper(lambda f: setattr(f, "__code__", (lambda x, k=2, m=1: x - k).__code__))


@case
def defaults_replaced():
    return calls_helper(lambda f: setattr(f, "__defaults__", (5,)))


@case
def defaults_removed():
    return calls_helper(lambda f: setattr(f, "__defaults__", None))


@case
def kwdefaults_changed():
    return calls_helper(lambda f: f.__kwdefaults__.update(m=5))


@case
def kwdefaults_replaced():
    return calls_helper(lambda f: setattr(f, "__kwdefaults__", {"m": 7}))


@case
def default_list_mutated():
    f = fresh("def f(x, k=[1]):\n    return x * len(k) + k[0]\n")["f"]
    return in_globals("f(x)", lambda g: f.__defaults__[0].append(3), f=f)


@case
def own_defaults_replaced():
    f = helper()
    return f, lambda: setattr(f, "__defaults__", (5,))


@case
def own_code_replaced():
    f = helper()
    return f, lambda: setattr(f, "__code__", (lambda x, k=2, *, m=1: x - k).__code__)


@case
def method_code_replaced():
    class A:
        def f(self, x):
            return x + 1

    return in_globals("a.f(x)", lambda g: setattr(A.f, "__code__", (lambda self, x: x - 1).__code__), a=A())


@case
def module_method_code_replaced():
    class M(nn.Module):
        def forward(self, x):
            return self.step(x)

        def step(self, x):
            return x + 1

    return M(), lambda: setattr(M.step, "__code__", (lambda self, x: x - 1).__code__)


@case
def closure_code_replaced():
    def g(x):
        return x + 1

    def fn(x):
        return g(x)

    def change():
        g.__code__ = (lambda x: x - 1).__code__

    return fn, change


@case
def partial_replaced():
    f = helper()
    return in_globals("p(x)", lambda g: g.update(p=functools.partial(f, k=4)), p=functools.partial(f, k=3))


@case
def partial_keywords_mutated():
    p = functools.partial(helper(), k=3)
    return in_globals("p(x)", lambda g: p.keywords.update(k=4), p=p)


@case
def function_attribute():
    f = helper()
    f.scale = 2
    return in_globals("x * f.scale", lambda g: setattr(f, "scale", 3), f=f)


@case
def wrapped_function_behind_wraps():
    f = helper()

    @functools.wraps(f)
    def wrapper(x):
        return f(x) + 1

    return in_globals("w(x)", lambda g: setattr(f, "__defaults__", (8,)), w=wrapper)


# ---- closures ----------------------------------------------------------------------------------------------------
@case
def cell_number():
    k = 2

    def change():
        nonlocal k
        k = 3

    return lambda x: x * k, change


@case
def cell_shared_by_several_functions():
    k = 2

    def f(x):
        return x * k

    def g(x):
        return x + k

    def change():
        nonlocal k
        k = 5

    return lambda x: f(x) + g(x), change


@case
def cell_of_a_nested_function():
    k = [2]

    def outer():
        def inner(x):
            return x * k[0]

        return inner

    inner = outer()
    return lambda x: inner(x), lambda: k.__setitem__(0, 4)


@case
def cell_emptied():
    k = 2

    def change():
        nonlocal k
        del k

    return lambda x: x * k, change


@case
def two_closures_become_of_one_cell():
    def make(k):
        return lambda x: x * k

    box = types.SimpleNamespace(f=make(2), g=make(2))
    return lambda x: box.f(x) + box.g(x), lambda: setattr(box, "g", make(7))


@pytest.mark.parametrize("name", CASES)
def test_a_change_of_code_is_noticed(name):
    noticed(CASES[name])
