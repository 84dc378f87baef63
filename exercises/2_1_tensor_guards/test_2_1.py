import gc
import weakref

import pytest
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.guard_kinds import tensor_guards
from minipt2.dynamo.guards import compile_guards
from minipt2.dynamo.source import LocalSource

X = LocalSource("x")


def failing(made_for, given):
    """How many of the guards made for one tensor fail on another."""
    return sum(not compile_guards([guard])({"x": given}) for guard in tensor_guards(made_for, X))


TENSORS = {
    "float": lambda: torch.randn(3, 4), "half": lambda: torch.randn(3, 4).bfloat16(), "int": lambda: torch.arange(6).view(2, 3),
    "scalar": lambda: torch.tensor(1.0), "empty": lambda: torch.randn(0, 3), "column": lambda: torch.randn(4, 1),
    "transposed": lambda: torch.randn(3, 4).t(), "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "channels_last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "leaf": lambda: torch.randn(3, requires_grad=True), "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "complex": lambda: torch.randn(3, dtype=torch.complex64),
}


@pytest.mark.parametrize("name", TENSORS)
def test_holds_for_the_tensor_itself(name):
    """The guards made for a tensor hold for it."""
    t = TENSORS[name]()
    same(failing(t, t), 0, where=name)


FLIPS = {
    "size": (lambda: torch.randn(3, 1), lambda: torch.randn(4, 1)),
    "dtype": (lambda: torch.randn(3, 4), lambda: torch.randn(3, 4).double()),
    "stride": (lambda: torch.randn(3, 4, 1), lambda: torch.randn(4, 3, 1).transpose(0, 1)),
    "contiguous": (lambda: torch.randn(3, 4), lambda: torch.randn(4, 3).t()),
    "requires_grad": (lambda: torch.randn(3, 4), lambda: torch.randn(3, 4, requires_grad=True)),
    "type": (lambda: torch.nn.Parameter(torch.randn(3)), lambda: torch.randn(3, requires_grad=True)),
    "device": (lambda: torch.randn(3), lambda: torch.randn(3, device="meta")),
    "expanded": (lambda: torch.randn(3, 1).expand(3, 4), lambda: torch.randn(3, 4)),
}


@pytest.mark.parametrize("flip", FLIPS)
def test_one_property_one_guard(flip):
    """Flipping one property fails exactly one guard."""
    before, after = (make() for make in FLIPS[flip])
    same(failing(before, after), 1, where=f"guards that fail when {flip} changes")


def test_lazy_conjugate_is_noticed():
    """A conj view has the same sizes, dtype and strides, and other numbers."""
    x = torch.randn(3, dtype=torch.complex64)
    same(failing(x, x.conj()), 1)


def test_guards_do_not_keep_the_tensor():
    """Guards outlive the call: they must not keep its tensors in memory."""
    t = torch.randn(5)
    alive = weakref.ref(t)
    guards = compile_guards(tensor_guards(t, X))
    del t
    gc.collect()
    assert alive() is None, "the guards keep the tensor alive"
    assert guards({"x": torch.randn(5)})


def test_transposed_inputs_are_not_mixed_up():
    """The whole compiler on your guards: one function, two layouts, two programs, right numbers."""
    fn = minipt2.compile(lambda x: (x * 2 + 1).sum(0), backend="eager")
    for x in (torch.randn(4, 5, 1), torch.randn(5, 4, 1).transpose(0, 1), torch.randn(4, 5, 1)):
        same(fn(x), (x * 2 + 1).sum(0))
    same(minipt2.counters()["graphs"], 2, where="graphs made for two layouts")
