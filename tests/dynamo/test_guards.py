"""Guards: each property that changes fails one guard; the generated function agrees with reading guards one by one."""
import copy
import gc
import types
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipt2.dynamo.guard_kinds import describe, same_constant
from minipt2.dynamo.guards import Guard, compile_guards, global_state_guard, tensor_guards
from minipt2.dynamo.source import (
    AttrSource, ClosureSource, DefaultSource, DictKeySource, FunctionGlobalSource, GlobalSource, ImportSource, ItemSource,
    KeyedItemSource, LocalSource, TypeSource,
)  # fmt: skip

X, Y = LocalSource("x"), LocalSource("y")


def guard_on(*guards, **f_globals):
    return compile_guards(guards, f_globals)


def failing(guards, f_locals):
    """Kinds of the guards that fail, each checked alone."""
    return [g.kind for g in guards if not compile_guards([g])(f_locals)]


# ---- tensors -----------------------------------------------------------------------------------------------------


def leaf(*size, **options):
    return torch.zeros(*size, **options)


@pytest.mark.parametrize("change, kind", [
    (lambda: leaf(3, 4, dtype=torch.float64), "DTYPE"),
    (lambda: leaf(3, 5), "SIZE"),
    (lambda: leaf(3, 4, 1), "SIZE"),
    (lambda: leaf(3, 4, requires_grad=True), "REQUIRES_GRAD"),
    (lambda: leaf(4, 3).t(), "CONTIGUOUS"),
    (lambda: leaf(3, 8)[:, ::2], "CONTIGUOUS"),
    (lambda: leaf(3, 4, device="meta"), "DEVICE"),
    (lambda: torch.nn.Parameter(leaf(3, 4), requires_grad=False), "TYPE"),
    (lambda: torch.zeros(3, 4, dtype=torch.complex64).conj().imag, "NOT_LAZY"),
])  # fmt: skip
def test_one_changed_property_fails_one_guard(change, kind):
    guards = tensor_guards(leaf(3, 4), X)
    check = compile_guards(guards)
    assert check({"x": leaf(3, 4)})
    changed = change()
    expected = [kind] if kind != "NOT_LAZY" else ["CONTIGUOUS", "NOT_LAZY"]
    assert failing(guards, {"x": changed}) == expected and not check({"x": changed})


def test_strides_of_tensors_that_are_not_contiguous():
    image = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check = compile_guards(tensor_guards(image, X))
    assert check({"x": image.clone()}) and not check({"x": image.contiguous()})
    one = torch.zeros(1, 4)
    check = compile_guards(tensor_guards(one, X))
    assert check({"x": one}) and not check({"x": torch.zeros(4, 1).t()})


def test_changes_inside_a_parameter_are_seen():
    layer = torch.nn.Linear(3, 4)
    source = ItemSource(AttrSource(LocalSource("self"), "_parameters"), "weight")
    check = compile_guards([Guard(LocalSource("self"), "TYPE", torch.nn.Linear), *tensor_guards(layer.weight, source)])
    scope = {"self": layer}
    for change, word in [
        (lambda: layer.double(), "dtype"),
        (lambda: layer.float(), None),
        (lambda: setattr(layer.weight, "data", torch.zeros(5, 3)), "size"),
        (lambda: setattr(layer.weight, "data", torch.zeros(3, 4).t()), "stride"),
        (lambda: setattr(layer.weight, "data", torch.zeros(4, 3)), None),
        (lambda: layer.requires_grad_(False), "requires_grad"),
        (lambda: layer.requires_grad_(True), None),
        (lambda: layer.to("meta"), "device"),
    ]:
        change()
        assert check(scope) == (word is None)
        assert word is None and check.explain(scope) is None or word in check.explain(scope)


def test_sparse_and_symbolic_sizes():
    sparse = torch.eye(3).to_sparse()
    assert compile_guards(tensor_guards(sparse, X))({"x": sparse})
    assert not compile_guards(tensor_guards(torch.eye(3), X))({"x": sparse})
    check = guard_on(Guard(AttrSource(X, "shape"), "SIZES", (None, 4)))
    assert check({"x": leaf(9, 4)}) and not check({"x": leaf(9, 5)}) and not check({"x": leaf(4)})


# ---- other kinds -------------------------------------------------------------------------------------------------


class Plain:
    shared = 1


def fn_a():
    return 1


def fn_b():
    return 2


@pytest.mark.parametrize("kind, value, good, bad", [
    ("NONE", None, [None], [0, False]),
    ("NOT_NONE", None, [0], [None]),
    ("TYPE", int, [1], [True, 1.0]),
    ("ID", fn_a, [fn_a], [fn_b, None]),
    ("ID", None, [None], [0]),
    ("CONST", 1, [1], [True, 1.0, 2]),
    ("CONST", True, [True], [1]),
    ("CONST", "a", ["a"], ["b", b"a"]),
    ("CONST", 1.5, [1.5], [2.5]),
    ("CONST", 0.0, [0.0], [-0.0, 0, False]),
    ("CONST", float("nan"), [float("nan")], [1.0]),
    ("CONST", float("inf"), [float("inf")], [float("-inf"), 1]),
    ("CONST", (1, (2.0, "a")), [(1, (2.0, "a"))], [(1, (2, "a")), (True, (2.0, "a")), [1, (2.0, "a")]]),
    ("CONST", torch.float32, [torch.float32], [torch.float64, None]),
    ("CONST", torch.device("cpu"), [torch.device("cpu")], [torch.device("meta"), "cpu"]),
    ("CONST", torch.Size([1, 2]), [torch.Size([1, 2])], [(1, 2), torch.Size([2, 1])]),
    ("CONST", slice(1, None), [slice(1, None)], [slice(True, None), slice(1, 2)]),
    ("CONST", range(3), [range(3)], [range(4), (0, 1, 2)]),
    ("BOOL", False, [False], [0, True]),
    ("TRUTH", True, [[1], 2], [[], 0]),
    ("TRUTH", False, [[], 0], [[1]]),
    ("LEN", 2, [[1, 2], {1: 1, 2: 2}], [[1], 5, None]),
    ("EMPTY", None, [{}, []], [{1: 1}]),
    ("DICT_KEYS", ("a", "b"), [{"a": 1, "b": 2}], [{"b": 2, "a": 1}, {"a": 1}, {}]),
    ("DICT_KEYS", (int, str), [{int: 1, str: 2}], [{str: 2, int: 1}, {float: 1, str: 2}]),
    ("CONTAINS", "a", [{"a": 1}], [{}]),
    ("NOT_CONTAINS", "a", [{}], [{"a": 1}]),
    ("SET", {1, 2}, [{2, 1}], [{1}, {1, 2, 3}]),
    ("SET", {int, fn_a}, [{fn_a, int}], [{int, fn_b}]),
    ("HASATTR", ("shared", True), [Plain()], [1]),
    ("HASATTR", ("shared", False), [1], [Plain()]),
    ("DICT_LACKS", "extra", [Plain(), types.SimpleNamespace()], [types.SimpleNamespace(extra=1), 3]),
    ("FUNC_CODE", fn_a.__code__, [fn_a], [fn_b, 1]),
    ("CHECK", callable, [fn_a], [1]),
    ("ITER_LEN", 2, [iter([1, 2])], [iter([1]), 5]),
    ("TENSOR_VERSION", 0, [torch.zeros(1)], [torch.zeros(1).add_(1)]),
    ("MODULE_TRAINING", True, [torch.nn.ReLU()], [torch.nn.ReLU().eval()]),
    ("PLAIN_MODULE", None, [torch.nn.ReLU()], [3]),
])  # fmt: skip
def test_kinds(kind, value, good, bad):
    check = guard_on(Guard(X, kind, value))
    for x in good:
        assert check({"x": x}) and check.explain({"x": x}) is None
    for x in bad:
        assert not check({"x": x}) and check.explain({"x": x}).startswith("L['x']")
    assert not check({})  # missing is a failed guard, never an error
    assert "can't be read" in check.explain({})


def test_modules_with_hooks_or_their_own_forward_are_not_plain():
    check = guard_on(Guard(X, "PLAIN_MODULE"))
    for change in [
        lambda m: m.register_forward_hook(lambda *a: None),
        lambda m: m.register_forward_pre_hook(lambda *a: None),
        lambda m: m.register_full_backward_hook(lambda *a: None),
        lambda m: setattr(m, "forward", lambda x: x),
    ]:
        module = torch.nn.ReLU()
        assert check({"x": module})
        change(module)
        assert not check({"x": module})


def test_aliases():
    a, b = [1], [1]
    same, other = guard_on(Guard(X, "ALIAS", Y)), guard_on(Guard(X, "NOT_ALIAS", Y))
    assert same({"x": a, "y": a}) and not same({"x": a, "y": b})
    assert other({"x": a, "y": b}) and not other({"x": a, "y": a})
    assert same.explain({"x": a, "y": b}) == "L['x']: object L['y'], found (1,)"


# ---- sources -----------------------------------------------------------------------------------------------------

counter = 3


def test_sources_read_what_they_name():
    def outer(k):
        def inner(a, b=2, *, c=3):
            return a + b + c + k + counter
        return inner

    function = outer(7)
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    f_locals = {"f": function, "m": module, "d": {"a": [10, 20], int: "int", (1, "x"): 5}, "o": types.SimpleNamespace(**{"not name": 4})}
    f_globals = {"g": 5}
    cases = {
        GlobalSource("g"): 5,
        ItemSource(ItemSource(LocalSource("d"), "a"), 1): 20,
        ItemSource(LocalSource("d"), (1, "x")): 5,
        KeyedItemSource(LocalSource("d"), ImportSource("builtins", "int")): "int",
        DictKeySource(LocalSource("d"), (1,)): int,
        ClosureSource(LocalSource("f"), function.__code__.co_freevars.index("k")): 7,
        DefaultSource(LocalSource("f"), 0): 2,
        DefaultSource(LocalSource("f"), "c"): 3,
        FunctionGlobalSource(LocalSource("f"), "counter"): 3,
        TypeSource(LocalSource("m")): torch.nn.Sequential,
        AttrSource(LocalSource("o"), "not name"): 4,
        ImportSource("torch.nn.functional", "relu"): torch.nn.functional.relu,
        ItemSource(AttrSource(ItemSource(AttrSource(LocalSource("m"), "_modules"), "0"), "_parameters"), "bias"): module[0].bias,
    }
    for source, value in cases.items():
        assert source.fetch(f_locals, f_globals) is value or source.fetch(f_locals, f_globals) == value
        kind = "ID" if isinstance(value, (type, types.FunctionType, torch.Tensor)) else "CONST"
        check = compile_guards([Guard(source, kind, value)], f_globals)
        assert check(f_locals), check.text
        assert not check({}) or source.root().name().startswith(("G", "_modules"))


def test_each_source_is_read_once_and_parents_before_children():
    reads = []

    class Spy:
        def __init__(self, name, **children):
            self.__dict__.update(name_=name, children=children)

        def __getattr__(self, name):
            reads.append(f"{self.name_}.{name}")
            return self.children[name]

    leaf_a = AttrSource(AttrSource(X, "a"), "b")
    guards = [
        Guard(leaf_a, "TYPE", int), Guard(leaf_a, "CONST", 3), Guard(AttrSource(AttrSource(X, "a"), "c"), "CONST", 4),
        Guard(AttrSource(X, "a"), "TYPE", Spy), Guard(AttrSource(X, "a"), "NOT_NONE"),
    ]  # fmt: skip
    check = compile_guards(guards)
    tree = Spy("x", a=Spy("a", b=3, c=4))
    assert check({"x": tree}) and reads == ["x.a", "a.b", "a.c"]
    reads.clear()
    assert not check({"x": Spy("x", a=None)}) and reads == ["x.a"]


def test_errors_of_user_code_are_failed_guards():
    class Bad:
        def __len__(self):
            raise ZeroDivisionError("no length")

        def __eq__(self, other):
            raise KeyError

    assert not guard_on(Guard(X, "LEN", 1))({"x": Bad()})
    assert "ZeroDivisionError" in guard_on(Guard(X, "LEN", 1)).explain({"x": Bad()})
    assert not guard_on(Guard(X, "CONST", (1,)))({"x": (Bad(),)})


# ---- torch's modes -----------------------------------------------------------------------------------------------


class SomeMode(torch.overrides.TorchFunctionMode):
    pass


@pytest.mark.parametrize("mode", [
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    SomeMode,
    lambda: torch.device("meta"),
])  # fmt: skip
def test_modes_are_one_guard(mode):
    outside = compile_guards([global_state_guard()])
    assert outside({})
    with mode():
        assert not outside({}) and "torch's modes" in outside.explain({})
        inside = compile_guards([global_state_guard()])
        assert inside({})
    assert outside({}) and not inside({})


def test_default_dtype_determinism_and_autocast_dtype():
    check = compile_guards([global_state_guard()])
    try:
        torch.set_default_dtype(torch.float64)
        assert not check({})
    finally:
        torch.set_default_dtype(torch.float32)
    try:
        torch.use_deterministic_algorithms(True)
        assert not check({}) and "deterministic" in check.explain({})
    finally:
        torch.use_deterministic_algorithms(False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = compile_guards([global_state_guard()])
    with torch.autocast("cpu", dtype=torch.float16):
        assert not half({})


def test_functorch_levels_are_seen():
    check = compile_guards([global_state_guard()])
    seen = []
    torch.func.vmap(lambda x: seen.append(check({})) or x)(torch.zeros(2))
    assert check({}) and seen == [False]


# ---- lifetime ----------------------------------------------------------------------------------------------------


def test_nothing_of_the_users_is_kept_alive():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)

    model = Model()
    source = ItemSource(AttrSource(LocalSource("self"), "_parameters"), "weight")
    guards = [
        Guard(LocalSource("self"), "ID", model), Guard(LocalSource("self"), "TYPE", Model), Guard(LocalSource("d"), "DICT_KEYS", (model.fc,)),
        *tensor_guards(model.fc.weight, source), Guard(source, "ID", model.fc.weight), Guard(source, "TENSOR", model.fc.weight),
    ]  # fmt: skip
    check = compile_guards(guards)
    assert len(check.checks) and check.alive
    deaths = []
    check.on_death(lambda: deaths.append(1))
    alive = [weakref.ref(o) for o in (model, model.fc.weight, Model)]
    del model, guards, Model
    gc.collect()
    assert [r() for r in alive] == [None, None, None]
    assert deaths == [1] and not check.alive and not check({"self": None}) and "no longer exists" in check.explain({})


def test_replaced_objects_fail_even_when_they_look_alike():
    first = torch.zeros(2)
    check = guard_on(Guard(X, "ID", first))
    assert check({"x": first}) and not check({"x": first.clone()}) and not check({"x": None})


# ---- against a plain interpreter ---------------------------------------------------------------------------------

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["a", "b", ""]), st.floats(allow_nan=True, width=16)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)


def facts(source, value):
    """Guards that hold of ``value``, and of what is in it."""
    yield Guard(source, "TYPE", type(value))
    if isinstance(value, (list, tuple)):
        yield Guard(source, "LEN", len(value))
        for k, item in enumerate(value):
            yield from facts(ItemSource(source, k), item)
    elif isinstance(value, dict):
        yield Guard(source, "DICT_KEYS", tuple(value))
        yield Guard(source, "NOT_CONTAINS", "z")
        for k, item in value.items():
            yield from facts(ItemSource(source, k), item)
    else:
        yield Guard(source, "CONST", value)
        if isinstance(value, str):
            yield Guard(source, "TRUTH", bool(value))


def holds(guard, f_locals):
    """A guard read the slow way."""
    try:
        value = guard.source.fetch(f_locals, {})
        return {
            "TYPE": lambda: type(value) is guard.value,
            "LEN": lambda: len(value) == guard.value,
            "DICT_KEYS": lambda: tuple(value) == guard.value,
            "NOT_CONTAINS": lambda: guard.value not in value,
            "CONST": lambda: same_constant(value, guard.value),
            "TRUTH": lambda: bool(value) == guard.value,
        }[guard.kind]()
    except Exception:
        return False


@settings(max_examples=200, deadline=None)
@given(before=st.dictionaries(st.sampled_from("xyz"), values, max_size=3), after=st.dictionaries(st.sampled_from("xyz"), values, max_size=3), data=st.data())
def test_agrees_with_a_plain_interpreter(before, after, data):
    guards = [g for name, value in before.items() for g in facts(LocalSource(name), value)]
    guards = data.draw(st.permutations(guards)) if guards else guards
    check = compile_guards(guards)
    assert check(copy.deepcopy(before)), check.text
    for scope in (after, {**before, **after}):
        expected = all(holds(g, scope) for g in guards)
        assert check(scope) == expected
        assert (check.explain(scope) is None) == expected


def test_descriptions_are_short():
    assert describe(torch.zeros(2, 3)) == "a float32 tensor of size (2, 3)"
    assert describe(torch.nn.Linear(1, 1)) == "a Linear module"
    assert describe(fn_a).endswith("fn_a") and len(describe("x" * 500)) <= 80
