"""Which frames are compiled, when they are compiled again, what stays alive, and who else is running."""
from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref

import pytest
import torch

from minipt2 import trace
from minipt2.config import config
from minipt2.dynamo import disable, is_compiling, optimize, reset


@pytest.fixture(autouse=True)
def strict():
    trace.reset()
    with config.patch(raise_internal_errors=True):
        yield


def eager(gm, examples):
    return gm.forward


def graphs() -> int:
    return trace.counters()["graphs"]


def test_second_call_is_a_hit():
    compiled = optimize(lambda x: x * 2, eager)
    for _ in range(3):
        compiled(torch.ones(3))
    assert graphs() == 1 and trace.counters()["recompiles"] == 0


@pytest.mark.parametrize("other", [
    torch.ones(3, dtype=torch.float64), torch.ones(4), torch.ones(3, 1), torch.ones(3, requires_grad=True), torch.ones(6)[::2], 1.5,
])  # fmt: skip
def test_recompiles_on(other):
    def f(x):
        return x * 2

    compiled = optimize(f, eager)
    for x in (torch.ones(3), other, torch.ones(3), other):
        a, b = compiled(x), f(x)
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    assert trace.counters()["recompiles"] == 1


def test_grad_mode_and_train_mode_recompile():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    compiled = optimize(model, eager)
    x = torch.ones(1, 2)
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    model.eval()
    assert torch.equal(compiled(x), model(x))
    assert trace.counters()["recompiles"] == 2


def test_recompile_limit_warns_once():
    def f(x, n):
        return x + n

    compiled = optimize(f, eager, dynamic=False)
    with config.patch(recompile_limit=3), pytest.warns(UserWarning, match=r"L\['n'\]") as caught:
        for n in range(6):
            assert compiled(torch.zeros(1), n).item() == n
    assert graphs() == 3 and len(caught) == 1


def test_globals_and_closures_are_guarded():
    scale = 2

    def f(x):
        return x * scale + FACTOR

    compiled = optimize(f, eager)
    assert compiled(torch.ones(1)).item() == 3
    scale = 5
    assert compiled(torch.ones(1)).item() == 6
    globals()["FACTOR"] = 10
    try:
        assert compiled(torch.ones(1)).item() == 15
    finally:
        globals()["FACTOR"] = 1


FACTOR = 1


def test_global_write():
    def f(x):
        global COUNT
        COUNT += 1
        return x + COUNT

    compiled = optimize(f, eager)
    before = COUNT
    assert compiled(torch.zeros(1)).item() == before + 1
    assert compiled(torch.zeros(1)).item() == before + 2 == COUNT


COUNT = 0


def test_disable():
    calls = []

    @disable
    def secret(x):
        calls.append(is_compiling())
        return x + 1

    compiled = optimize(lambda x: secret(x * 2) * 3, eager)
    assert compiled(torch.ones(1)).item() == 9
    assert calls == [False] and graphs() == 2


def test_is_compiling_is_true_inside():
    def f(x):
        return x + (1 if is_compiling() else 2)

    assert optimize(f, eager)(torch.zeros(1)).item() == 1
    assert not is_compiling()


def test_nested_compiled_function_is_inlined_or_run():
    inner = optimize(lambda x: x + 1, eager)
    outer = optimize(lambda x: inner(x) * 2, eager)
    assert outer(torch.ones(1)).item() == 4
    assert outer(torch.ones(1)).item() == 4


def test_reset_compiles_again():
    compiled = optimize(lambda x: x + 1, eager)
    compiled(torch.ones(1))
    reset()
    compiled(torch.ones(1))
    assert graphs() == 2


def test_model_is_freed():
    model = torch.nn.Linear(3, 3)
    compiled = optimize(model, eager)
    compiled(torch.ones(1, 3))
    dead, weight = weakref.ref(model), weakref.ref(model.weight)
    del model, compiled
    gc.collect()
    assert dead() is None and weight() is None


def test_dropped_argument_is_freed():
    def f(m, x):
        return m(x)

    compiled = optimize(f, eager)
    model = torch.nn.Linear(2, 2)
    compiled(model, torch.ones(1, 2))
    dead = weakref.ref(model)
    del model
    gc.collect()
    assert dead() is None


def test_outputs_are_freed():
    kept = []

    def f(x):
        y = x + 1
        kept.append(weakref.ref(y))
        print(end="")
        return x * 2

    compiled = optimize(f, eager)
    compiled(torch.ones(1))
    gc.collect()
    assert all(ref() is None for ref in kept)


def test_threads():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y

    compiled = optimize(f, eager)
    errors = []

    def work(k):
        try:
            for _ in range(20):
                x = torch.full((3,), float(k))
                assert torch.equal(compiled(x), f(x))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in (-1, 0, 1, 2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors


def test_under_a_tracer():
    lines = []

    def tracer(frame, event, arg):
        lines.append(event)
        return tracer

    compiled = optimize(lambda x: x + 1, eager)
    sys.settrace(tracer)
    try:
        assert compiled(torch.ones(1)).item() == 2
        assert compiled(torch.ones(1)).item() == 2
    finally:
        sys.settrace(None)


def test_internal_fault_runs_eagerly():
    def broken(gm, examples):
        raise RuntimeError("no code today")

    compiled = optimize(lambda x: x + 1, broken)
    with config.patch(raise_internal_errors=False), pytest.warns(UserWarning, match="no code today"):
        assert compiled(torch.ones(1)).item() == 2
    assert trace.counters()["skipped_frames"] == 1


def test_backend_sees_grad_mode_of_the_frame():
    seen = []

    def backend(gm, examples):
        seen.append(torch.is_grad_enabled())
        return gm.forward

    def f(x):
        with torch.no_grad():
            return x + 1

    optimize(f, backend)(torch.ones(1))
    assert seen == [True]


def test_generator_inlined():
    def pairs(x, n):
        for k in range(n):
            got = yield x + k
            assert got is None
        return n

    def wrapper(x):
        n = yield from pairs(x, 3)
        yield x * n

    def f(x):
        return sum(list(wrapper(x)), x), [t * 2 for t in pairs(x, 2)]

    compiled = optimize(f, eager)
    x = torch.ones(1)
    assert torch.equal(compiled(x)[0], f(x)[0]) and graphs() == 1


def test_match_statement():
    def f(x, shape):
        match shape:
            case {"kind": "square", "side": side}:
                return x * side
            case [a, *rest]:
                return x * a + len(rest)
            case int(n) if n > 3:
                return x + n
            case _:
                return x

    for shape in ({"kind": "square", "side": 3}, [2, 3, 4], 5, 1):
        assert torch.equal(optimize(f, eager)(torch.ones(1), shape), f(torch.ones(1), shape))


def test_argument_binding():
    def g(a, /, b, *args, c=3, d, **kwargs):
        return a + 10 * b + 100 * c + 1000 * d + sum(args) + sum(kwargs.values())

    def f(x):
        more = {"d": 4, "z": 5}
        return g(x, 2, *(7, 8), **more) + g(x, b=1, d=2, c=x)

    compiled = optimize(f, eager)
    assert torch.equal(compiled(torch.ones(1)), f(torch.ones(1))) and graphs() == 1


def test_wrong_arguments_raise_as_in_eager():
    def g(a):
        return a

    compiled = optimize(lambda x: g(x, x), eager)
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        compiled(torch.ones(1))


def test_in_place_and_aliases():
    def f(x):
        y = x.view(-1)
        y.add_(1)
        z = y
        z *= 2
        return x, y is z, z

    x = torch.ones(2, 2)
    got = optimize(f, eager)(x)
    assert got[0] is x and got[1] is True and torch.equal(x, torch.full((2, 2), 4.0))


def test_same_tensor_twice_is_guarded():
    def f(a, b):
        a.add_(1)
        return a + b

    compiled = optimize(f, eager)
    for same in (True, False, True):
        a, a2 = torch.ones(1), torch.ones(1)
        b, b2 = (a, a2) if same else (torch.ones(1), torch.ones(1))
        assert torch.equal(compiled(a, b), f(a2, b2))


def test_many_lambdas_leave_nothing_behind():
    dead = []
    for k in range(30):
        scope: dict = {}
        exec(compile(f"f = lambda x: x + {k}", f"/tmp/lambda_{k}.py", "exec"), scope)
        compiled = optimize(scope["f"], eager)
        assert compiled(torch.zeros(1)).item() == k
        dead.append(weakref.ref(scope["f"].__code__))
        del compiled, scope
    gc.collect()
    assert sum(ref() is not None for ref in dead) <= 1


def test_exception_inside_a_handler_after_a_break():
    def f(x, table):
        try:
            table["missing"]
        except KeyError:
            try:
                x = x + table["also missing"]
            except KeyError:
                print(end="")
                raise LookupError("gone") from None
        return x

    compiled = optimize(f, eager)
    for _ in range(2):
        with pytest.raises(LookupError, match="gone"):
            compiled(torch.ones(1), {})
    assert trace.counters()["skipped_frames"] == 0


def test_class_bodies_and_module_code_run_as_they_are():
    def fn(x):
        class Local:
            factor = len([1, 2])

            def scale(self, y):
                return y * self.factor

        scope = {}
        exec("k = 3\nclass Made:\n    size = k + 1", scope)
        return Local().scale(x) + scope["Made"].size

    with warnings.catch_warnings(), config.patch(raise_internal_errors=True):
        warnings.simplefilter("error")
        assert torch.equal(optimize(fn, lambda gm, examples: gm.forward)(torch.ones(2)), fn(torch.ones(2)))


def test_frames_under_function_transforms_run_as_they_are():
    def fn(x):
        return (x.sin() * 2).sum(-1)

    compiled, x = optimize(fn, eager), torch.randn(4, 3)
    for transform in (torch.vmap, lambda f: torch.func.vmap(torch.func.grad(f)), torch.func.jacfwd):
        torch.testing.assert_close(transform(compiled)(x), transform(fn)(x))
    assert graphs() == 0
    compiled(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        tangents = [torch.autograd.forward_ad.unpack_dual(f(dual)).tangent for f in (compiled, fn)]
    assert torch.equal(*tangents) and graphs() == 1


def test_a_frame_that_begins_with_super():
    class Base(torch.nn.Module):
        def forward(self, x):
            return x + 1

    class Derived(Base):
        def forward(self, x):
            return super().forward(x) * 2

    x = torch.ones(2)
    assert torch.equal(optimize(Derived().forward, eager)(x), x * 4) and graphs() == 1
