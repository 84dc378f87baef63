"""Guards kept as a table for C: what it takes over, what it notices, and that nothing depends on it."""
import gc
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn

import minipt2
from minipt2.config import config
from minipt2.dynamo import eval_frame, guard_table
from minipt2.dynamo.guards import Guard, compile_guards, tensor_guards
from minipt2.dynamo.source import ItemSource, LocalSource

ROOT = LocalSource("d")
X = ItemSource(ROOT, "x")


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(guard_table, "MIN_GUARDS", 1)


def tabled(value, *guards):
    """The check of guards on ``d["x"]``, all of them in a table made for ``value``."""
    made = compile_guards(guards, {}, {"d": {"x": value}})
    assert f"# {len(guards)} guards" in made.text
    return lambda now: made({"d": {"x": now}})


@pytest.mark.parametrize(
    "kept, others",
    [
        (0.0, [-0.0, 0, False, float("nan")]), (float("nan"), [0.0]), (1, [True, 1.0, 2, "1"]), (True, [1, False]), ("a", ["b", b"a"]),
        ((1, 2), [(1, 2, 3), (1, 2.0), [1, 2], (1, True)]), (None, [0, False]), (2**70, [2**70 + 1]), (torch.float32, [torch.float64]),
        ((1, ("a", None)), [(1, ("a", 0)), (1, ("b", None))]),
    ],
)  # fmt: skip
def test_constants(kept, others):
    holds = tabled(kept, Guard(X, "CONST", kept))
    assert holds(kept) and not any(map(holds, others))


def test_an_equal_constant_that_is_another_object():
    assert tabled((10**6, "ab"), Guard(X, "CONST", (10**6, "ab")))((int("1000000"), "".join("ab")))
    assert tabled(1.5, Guard(X, "CONST", 1.5))(float("1.5"))


@pytest.mark.parametrize(
    "kind, expected, right, wrong",
    [
        ("DICT_KEYS", ["a", "b"], [{"a": 3, "b": 4}], [{"b": 1, "a": 2}, {"a": 1}, OrderedDict(a=1, b=2), {}]),
        ("LEN", 2, [{"a": 1, "c": 2}], [{"a": 1}, [1, 2]]),
        ("CONTAINS", "a", [{"a": 1}, {"b": 2, "a": 1}], [{}, {"b": 1}]),
        ("NOT_CONTAINS", "z", [{}, {"b": 1}], [{"z": None}]),
    ],
)
def test_dicts(kind, expected, right, wrong):
    holds = tabled({"a": 1, "b": 2}, Guard(X, kind, expected))
    assert all(map(holds, right)) and not any(map(holds, wrong))


def test_empty_containers():
    for kind in (dict, list, set, OrderedDict):
        holds = tabled(kind(), Guard(X, "EMPTY"))
        assert holds(kind()) and not holds(kind(["ab"]))


TENSORS = {
    "value": (lambda: torch.zeros(2, 3), True), "size": (lambda: torch.ones(3, 2), False), "rank": (lambda: torch.ones(6), False),
    "stride": (lambda: torch.ones(3, 2).t(), False), "dtype": (lambda: torch.ones(2, 3).double(), False),
    "half": (lambda: torch.ones(2, 3).half(), False), "requires_grad": (lambda: torch.ones(2, 3).requires_grad_(), False),
    "class": (lambda: nn.Parameter(torch.ones(2, 3), False), False), "negation": (lambda: torch.ones(2, 3, dtype=torch.cfloat).conj().imag.contiguous(), True),
    "lazy_negation": (lambda: torch._neg_view(torch.ones(2, 3)), False), "meta": (lambda: torch.ones(2, 3, device="meta"), False),
    "sparse": (lambda: torch.ones(2, 3).to_sparse(), False), "no_tensor": (lambda: [1], False),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name):
    make, expected = TENSORS[name]
    value = torch.ones(2, 3)
    assert tabled(value, *tensor_guards(value, X))(make()) is expected


def test_the_stride_of_a_size_of_one():
    value = torch.ones(3, 1)
    holds = tabled(value, *tensor_guards(value, X))
    assert holds(torch.ones(3, 1)) and not holds(torch.ones(3, 1).as_strided((3, 1), (1, 5)))


def test_complex_tensors_and_overridden_dicts_stay_in_python():
    value = torch.ones(2, 3, dtype=torch.cfloat)
    check = compile_guards(tensor_guards(value, X), {}, {"d": {"x": value}})
    assert "# 1 guards" in check.text  # the type
    assert check({"d": {"x": value}}) and not check({"d": {"x": value.conj()}})

    class Odd(dict):
        def __getitem__(self, key):
            return 5

    check = compile_guards([Guard(X, "CONST", 5)], {}, {"d": Odd(x=4)})
    assert "table" not in check.text and check({"d": Odd()})


def test_what_a_table_fails_on_is_explained():
    check = compile_guards([Guard(X, "CONST", 5), Guard(ItemSource(ROOT, "y"), "CONST", 6)], {}, {"d": {"x": 5, "y": 6}})
    assert check.explain({"d": {"x": 5, "y": 7}}) == "L['d']['y']: value 6, found 7"
    assert "can't be read: KeyError" in check.explain({"d": {"x": 5}}) and not check({"d": {"x": 5}})


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.0)) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def checks_of(compiled, monkeypatch, *args):
    made = []
    original = eval_frame.compile_guards
    monkeypatch.setattr(eval_frame, "compile_guards", lambda *given: made.append(original(*given)) or made[-1])
    compiled(*args)
    return made


def test_a_model_is_checked_by_a_table(monkeypatch):
    monkeypatch.undo()
    (check,) = checks_of(minipt2.compile(Deep(), backend="eager"), monkeypatch, torch.ones(3, 4))
    lines = check.text.split("\n")
    assert sum("table" in line for line in lines) == 1 and len(lines) < len(check.checks) / 3


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_only_classes_and_functions_are_left_to_python(monkeypatch, grad, training):
    model = Deep().train(training)
    with torch.set_grad_enabled(grad):
        (check,) = checks_of(minipt2.compile(model, backend="eager"), monkeypatch, torch.ones(3, 4))
    assert check.text.count(".shape") == 1  # the input's


def test_without_a_compiler_everything_is_python(monkeypatch):
    guard_table.library.cache_clear()
    with config.patch(cc="no-such-compiler"):
        model = minipt2.compile(Deep(), backend="eager")
        (check,) = checks_of(model, monkeypatch, torch.ones(3, 4))
    guard_table.library.cache_clear()
    assert "table" not in check.text
    model.layers[5][2].p = 0.5
    assert check.explain({"fn": model._orig_mod, "args": (torch.ones(3, 4),), "kwargs": {}}).endswith("value 0.0, found 0.5")


def test_a_table_keeps_no_model_alive():
    fn = minipt2.compile(lambda model, x: model(x), backend="eager")
    model = Deep()
    fn(model, torch.ones(3, 4))
    references = [weakref.ref(thing) for thing in (model, model.layers[0], model.layers[1][0].weight)]
    del model
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
