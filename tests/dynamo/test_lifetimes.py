"""What a compiled function keeps alive: nothing that the user has dropped; and memory stays flat."""
import gc
import weakref

import pytest
import torch
from torch import nn

import minipt2

X = torch.ones(1, 3, 8, 8)


def entries(compiled):
    return sum(len(record.cache.entries) for record in compiled._minipt2_callback.records.values())


def dead(*references):
    gc.collect()
    return [reference() is None for reference in references]


def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())


@pytest.mark.parametrize("grad", [True, False])
def test_a_compiled_module_dies_with_its_last_reference(grad):
    model = net().train(grad)
    compiled = minipt2.compile(model)
    with torch.set_grad_enabled(grad):
        out = compiled(X)
    if grad:
        out.sum().backward()
    references = weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(model[1].running_mean)
    del model, compiled, out
    assert dead(*references) == [True] * 3


def test_a_function_keeps_no_module_it_was_called_with_and_drops_its_entries():
    minipt2.reset()  # frames that other tests left alone are counted too
    fn = minipt2.compile(lambda model, x: model(x).relu(), backend="aot_eager")
    references = []
    for k in range(12):  # more than the recompile limit
        kind = type("Own", (nn.Module,), {"forward": lambda self, x: x * self.k})
        model = kind()
        model.k = k
        assert torch.equal(fn(model, X), X * k)
        references.append(weakref.ref(model))
        del model, kind
        gc.collect()
    assert all(dead(*references)) and entries(fn) <= 1 and minipt2.counters()["skipped_frames"] == 0


def test_tensors_and_modules_that_were_replaced():
    model, weight = net(), torch.ones(4, 1, 1)
    fn = minipt2.compile(lambda x: model(x) * weight, backend="aot_eager")
    fn(X)
    references = weakref.ref(model[0].weight), weakref.ref(weight)
    model[0], weight = nn.Conv2d(3, 4, 3), torch.zeros(4, 1, 1)
    assert dead(*references) == [True, True]
    assert fn(X).abs().sum() == 0


def test_arguments_and_results_are_not_kept():
    fn = minipt2.compile(lambda x: (x + 1, x))
    x = torch.ones(5)
    out = fn(x)
    references = weakref.ref(x), weakref.ref(out[0])
    del x, out
    assert dead(*references) == [True, True]


def test_memory_is_flat():
    fn = minipt2.compile(lambda x: (x + 1).relu())

    def calls():
        for _ in range(200):
            fn(X)

    def lambdas():
        for _ in range(10):
            minipt2.compile(lambda x: x * 2 + 1)(X)

    for work in (calls, lambdas):
        work()
        gc.collect()
        before = len(gc.get_objects())
        work()
        gc.collect()
        assert len(gc.get_objects()) - before < 100  # ten entries would be thousands
