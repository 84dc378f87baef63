import random

import torch
from torch import nn

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.guard_kinds import Guard, tensor_guards
from minipt2.dynamo.guards import compile_guards
from minipt2.dynamo.source import AttrSource, ItemSource, LocalSource

X, Y, M = LocalSource("x"), LocalSource("y"), LocalSource("m")


def test_a_failing_guard_fails():
    """One guard, both ways."""
    check = compile_guards([Guard(X, "CONST", 3)])
    assert check({"x": 3}) and not check({"x": 4})


def test_parents_before_children():
    """A scope in which the parent is of another kind is no error but a failure."""
    shape = AttrSource(ItemSource(X, "k"), "shape")
    check = compile_guards([Guard(shape, "LEN", 2), Guard(ItemSource(X, "k"), "TYPE", torch.Tensor), Guard(X, "TYPE", dict)])
    assert check({"x": {"k": torch.ones(2, 2)}})
    for scope in ({"x": [1]}, {"x": {"k": 3}}, {"x": {}}, {}, {"x": {"k": torch.ones(2)}}):
        assert not check(scope), scope


class Counting(dict):
    """Locals that count how often they are read."""

    def __init__(self, *args):
        super().__init__(*args)
        self.reads = 0

    def __getitem__(self, key):
        self.reads += 1
        return super().__getitem__(key)


def test_each_source_is_read_once():
    """However many guards and children it has."""
    t = torch.randn(3, 4)
    check = compile_guards([*tensor_guards(t, X), Guard(AttrSource(X, "shape"), "LEN", 2)])
    scope = Counting({"x": t})
    assert check(scope)
    same(scope.reads, 1, where="times that x was read")


def test_cheap_tests_come_first():
    """In the text, a type is tested before values are compared."""
    text = compile_guards([Guard(X, "CONST", (1, 2)), Guard(X, "TYPE", tuple)]).text
    assert text.index("type(") < text.index("same_constant("), text
    text = compile_guards(list(reversed(tensor_guards(torch.ones(2, 3), Y)))).text
    assert text.index("type(") < text.index(".shape") < text.index("is_contiguous"), text


def test_aliases():
    """``x is y`` and its opposite are tests on two sources."""
    a, b = torch.ones(1), torch.ones(1)
    alias, apart = compile_guards([Guard(X, "ALIAS", Y)]), compile_guards([Guard(X, "NOT_ALIAS", Y)])
    assert alias({"x": a, "y": a}) and not alias({"x": a, "y": b})
    assert apart({"x": a, "y": b}) and not apart({"x": a, "y": a})


def test_agrees_with_single_guards():
    """Two hundred random scopes: all hold exactly if each holds."""
    rng = random.Random(5)
    guards = [Guard(X, "TYPE", int), Guard(X, "CONST", 2), Guard(Y, "TYPE", list), Guard(Y, "LEN", 2), Guard(ItemSource(Y, 0), "CONST", 1)]
    together, apart = compile_guards(guards), [compile_guards([g]) for g in guards]
    for _ in range(200):
        scope = {"x": rng.choice([2, 2, 3, 2.0]), "y": rng.choice([[1, 2], [1, 3], [1], [0, 0], (1, 2)])}
        same(together(scope), all(check(scope) for check in apart), where=str(scope))


def test_explains_what_failed():
    """Each guard is told to ``wrote``: reasons name source, expected and found."""
    reason = compile_guards([Guard(X, "TYPE", int), Guard(X, "CONST", 2)]).explain({"x": 5})
    assert reason is not None and "x" in reason and "2" in reason and "5" in reason, reason


def test_a_module_with_your_guards():
    """The whole compiler: a change of a weight's shape, of training and of a flag recompiles, nothing else does."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    compiled, x = minipt2.compile(net, backend="eager"), torch.randn(2, 4)
    for _ in range(3):
        same(compiled(x), net(x))
    same(minipt2.counters()["graphs"], 1)
    net[0].weight = nn.Parameter(torch.randn(3, 4))
    net[0].bias = nn.Parameter(torch.randn(3))
    same(compiled(x), net(x))
    same(minipt2.counters()["graphs"], 2)
