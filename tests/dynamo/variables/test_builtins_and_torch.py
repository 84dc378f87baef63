"""Builtins, operators, text, functions of the standard library, torch functions, contexts, and what must break."""
from __future__ import annotations

import collections
import contextlib
import copy
import functools
import logging
import math
import operator
import pickle
import re
import types
import pathlib
import subprocess
import sys
import typing
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minipt2
from minipt2 import trace
from minipt2.dynamo import optimize
from minipt2.errors import Unsupported

from .checking import Recorder, check

X = torch.arange(6.0).reshape(2, 3)


def numbers(x):
    return (x + int("3") + float(2) + abs(-1) + round(2.6) + divmod(7, 2)[1] + pow(2, 3) + math.sqrt(16) + math.pi, complex(1, 2), max([1, 5, 2], key=lambda v: -v),
            min((3, 1)), sum([1, 2], 10), bool([]), int(3.7), "7" * 2, 7 // 2, 7 % 3, -7 // 2, 2 ** -1, 1 << 3, ~5, 5 & 3, not 0, math.prod([2, 3]), 3 / 2, isinstance(True, int))


def tensor_operators(x):
    y = x + 1
    return (y // 2, y % 2, y ** 2, -y, +y, ~(y > 2), y @ y.T, abs(y - 3), 1 / y, 2 - y, 5 // y, y == x, y != x, (y > 1) & (y < 4), y[0] <= 3, 2 ** y,
            operator.add(y, 1), operator.getitem(y, 0), y is y, y is not None, y is x)


def inplace_operators(x):
    y = x * 1
    z = y
    y += 1
    y *= 2
    y[0] = 5
    y[:, 1] -= 3
    z.add_(1)
    n = [1]
    m = n
    m += [2]
    return y, z is y, n


def text(x, name):
    return x + 1, f"{name}-{x.shape[0]:03d}-{3.14159:.2f}-{'a'!r}", "{} {k}".format(1, k=2), "%s=%d" % ("a", 3), ", ".join(["a", name]), name.upper().split("B"), str(x.dtype), repr("q"), str(
        (1, "a")), "a" in name, name[0], name.startswith("a"), str(torch.float32), f"{x.device}", str(None), "abc".replace("b", name)


def functions(x):
    def scaled(v, *, k=2):
        return v * k

    triple = functools.partial(scaled, k=3)
    nested = functools.partial(triple, k=4)

    @functools.wraps(scaled)
    def wrapped(v):
        return scaled(v)

    return (triple(x), nested(x), wrapped(x), wrapped.__name__, functools.reduce(lambda a, b: a + b, [x, x, x]), typing.cast(int, 3), triple.keywords["k"], callable(scaled), callable(3),
            copy.copy([1]), (lambda *a, **k: (a, k))(1, b=2))


@functools.lru_cache
def cached(n):
    return n * 2


class Switch:
    on = True


SWITCH = Switch()


def attributes(x):
    s = SWITCH
    s2 = Switch()
    setattr(s2, "v", 4)
    had = hasattr(s2, "v")
    delattr(s2, "v")
    return x * cached(3), had, hasattr(s2, "v"), getattr(s, "on"), getattr(s, "off", 7), type(s2) is Switch, type(3), isinstance(x, torch.Tensor), isinstance(3, (str, int)), issubclass(bool, int)


def torch_questions(x):
    return (x * 2 if torch.is_grad_enabled() else x, torch.is_tensor(x), torch.get_default_dtype(), torch.finfo(x.dtype).max, torch.finfo(torch.float16).eps, torch.iinfo(torch.int32).max,
            x.dtype.is_floating_point, torch.is_floating_point(x), x.device.type, x.numel(), x.dim(), x.size(0), x.stride(), x.is_contiguous(), torch.promote_types(torch.int32, torch.float16),
            torch.jit.is_scripting(), torch.result_type(x, 1), x.ndim, len(x), torch.broadcast_shapes((2, 1), (1, 3)), x.shape == (2, 3), torch.Size([2]), x.layout, torch.device("cpu"))


def torch_functions(x):
    a, b = torch.split(x, 1, dim=0)
    values, indices = torch.max(x, dim=1)
    top = x.topk(2)
    return (torch.cat([a, b]), F.softmax(x, -1), F.layer_norm(x, (3,)), torch.einsum("ij,kj->ik", x, x), torch.zeros(2), torch.zeros_like(x), torch.full((2,), 3.0), torch.arange(3, dtype=torch.float32),
            values, indices, top.values, top[1], torch.where(x > 1, x, 0.0), torch.stack([r for r in x]), x.view(3, 2), x.to(torch.float64), x.type(torch.float16), torch.tensor([1.0, 2.0]), F.pad(x, (1, 1)),
            F.gelu(x), torch.linalg.norm(x), x.sum().sqrt(), x.new_zeros(2), x.T, x.mT, torch.ops.aten.add(x, 1), F.one_hot(torch.tensor([0, 2]), 3), torch.unbind(x), x.chunk(3, -1), x.unbind(0)[0])


def grad_modes(x, w):
    with torch.no_grad():
        a = x @ w
        inside = torch.is_grad_enabled()
    with torch.enable_grad():
        b = x @ w
    with torch.set_grad_enabled(False):
        c = x @ w
    return a.requires_grad, b.requires_grad, c.requires_grad, inside, torch.is_grad_enabled(), a + c


@torch.no_grad()
def decorated(x):
    return x * 2


def calls_decorated(x, w):
    y = decorated(x @ w)
    return y, y.requires_grad, (x @ w).requires_grad


def autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        with torch.autocast("cpu", enabled=False):
            z = x @ w
    return y, z, x @ w, y.dtype, z.dtype


@contextlib.contextmanager
def doubled(log):
    log.append("in")
    try:
        yield 2
    finally:
        log.append("out")


def managers(x):
    log = []
    with doubled(log) as k, contextlib.nullcontext(5) as n, torch.profiler.record_function("r"):
        y = x * k + n
    return y, log


@pytest.mark.parametrize("fn", [numbers, tensor_operators, inplace_operators, functions, torch_questions, torch_functions, managers], ids=lambda f: f.__name__)
def test_one_argument(fn):
    check(fn, X)


def test_text():
    check(text, X, "abc")


def test_attributes():
    check(attributes, X)


@pytest.mark.parametrize("fn", [grad_modes, calls_decorated, autocast], ids=lambda f: f.__name__)
def test_modes(fn):
    check(fn, X, torch.ones(3, 2, requires_grad=True))


def test_is_compiling_while_captured():
    fn = lambda x: (x + 1, torch.compiler.is_compiling())  # noqa: E731
    assert optimize(fn, Recorder(), fullgraph=True)(X)[1] is True


BREAKS = {
    "MP101": lambda x: x if x.sum() > 3 else -x,
    "MP102": lambda x: x * x.repeat(8, 8).tolist()[0][0],
    "MP302": lambda x: (print("printed"), x + 1)[1],
    "MP304": lambda x: (id(x), x + 1)[1],
    "MP312": lambda x: (torch.set_num_threads(torch.get_num_threads()), x + 1)[1],
    "MP313": lambda x: torch.vmap(lambda r: r + 1)(x),
}


@pytest.mark.parametrize("code", BREAKS)
def test_codes_of_breaks(code, capsys):
    with pytest.raises(Unsupported) as caught:
        optimize(BREAKS[code], Recorder(), fullgraph=True)(X)
    assert caught.value.code == code and caught.value.frames
    if code != "MP304":
        torch.testing.assert_close(optimize(BREAKS[code], Recorder())(X), BREAKS[code](X))


def data_conversions(x):
    a = x + 1
    n = int(a[0, 0])
    b = a * n
    values = b.repeat(1, 16)[0].tolist()
    return [v + float(b[1, 1]) for v in values], b - 1


def test_data_dependent_conversions_break_and_go_on():
    recorder = check(data_conversions, X, full=False, graphs=None)
    assert len(recorder.graphs) == 2 and trace.counters()["breaks"] == 1  # tolist of many numbers alone


def test_warnings_and_logs_come_after_the_graph(caplog):
    logger = logging.getLogger("values")

    def fn(x):
        warnings.warn("careful", UserWarning)
        logger.warning("x has %d rows", x.shape[0])
        logger.debug("never seen")
        return x + 1

    compiled = optimize(fn, Recorder(), fullgraph=True)
    for _ in range(2):
        caplog.clear()
        with pytest.warns(UserWarning, match="careful"), caplog.at_level(logging.WARNING):
            assert torch.equal(compiled(X), X + 1)
        assert [r.message for r in caplog.records] == ["x has 2 rows"]


class Block(nn.Module):
    def __init__(self, n, depth=0):
        super().__init__()
        self.lin, self.norm, self.drop = nn.Linear(n, n), nn.BatchNorm1d(n), nn.Dropout(0.0)
        self.children_list = nn.ModuleList([nn.Linear(n, n) for _ in range(3)])
        self.by_name = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.params = nn.ParameterList([nn.Parameter(torch.ones(n)) for _ in range(2)])
        self.register_buffer("calls", torch.zeros(()))
        self.register_parameter("absent", None)
        self.count = 0

    def forward(self, x, kind="a"):
        self.count += 1
        self.calls.add_(1)
        x = self.norm(self.lin(x))
        for i, layer in enumerate(self.children_list):
            x = layer(x) * self.params[i % 2]
        for layer in self.children_list[1:]:
            x = layer(x)
        if self.absent is None and not hasattr(self, "unknown") and "b" in self.by_name:
            x = self.by_name[kind](x)
        total = sum(p.numel() for p in self.parameters())
        names = [n for n, _ in self.named_children()]
        return self.drop(x) + total, names, len(self.children_list), self.training, next(self.parameters()).dtype, self.children_list[-1].weight.shape


def test_module():
    torch.manual_seed(0)
    for training in (False, True):
        module = Block(3).train(training)
        twin = copy.deepcopy(module)
        compiled = optimize(module, Recorder(), fullgraph=True)
        for _ in range(2):
            got, expected = compiled(X), twin(X)
            torch.testing.assert_close(got[0], expected[0])
            assert got[1:] == expected[1:]
        if training:
            assert module.count == twin.count == 2
        for (name, a), b in zip(module.state_dict().items(), twin.state_dict().values()):
            torch.testing.assert_close(a, b, msg=name)


def test_module_hooks_and_their_later_addition():
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    recorder = Recorder()
    compiled = optimize(module, recorder, fullgraph=True)
    torch.testing.assert_close(compiled(X), module(X))
    handles = [module[0].register_forward_hook(lambda m, args, out: out * 2), module[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
               module.register_forward_hook(lambda m, args, kwargs, out: out - 1, with_kwargs=True)]
    torch.testing.assert_close(compiled(X), module(X))
    assert len(recorder.graphs) == 2
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(compiled(X), module(X))


def test_module_changes_are_noticed():
    module = Block(3).eval()
    recorder = Recorder()
    compiled = optimize(module, recorder)
    compiled(X)
    module.children_list[1] = nn.Identity()
    module.params = nn.ParameterList([nn.Parameter(torch.ones(3) * 3) for _ in range(2)])
    torch.testing.assert_close(compiled(X)[0], module(X)[0])
    module.train()
    assert compiled(X)[3] is True
    module.forward = lambda x: x * 3
    torch.testing.assert_close(compiled(X), X * 3)


def test_one_graph_serves_layers_of_one_class():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            print(end="")
            return self.lin(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer() for _ in range(4)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    recorder = Recorder()
    model = Model()
    x = X.clone().requires_grad_()  # as the layers' outputs do
    torch.testing.assert_close(optimize(model, recorder)(x), model(x))
    assert len(recorder.graphs) == 1


def test_import_leaves_what_torch_loads_lazily_alone():
    """Handlers of functions below ``torch._dynamo`` are registered when a value from there is met, not before."""
    program = """if True:
        import sys, minipt2, torch
        from minipt2.dynamo.variables.torch_functions import torch_function
        assert not {"torch._dynamo", "torch.onnx", "torch._inductor"} & set(sys.modules)
        assert torch_function(len) is None
        import torch._dynamo
        assert torch_function(torch._dynamo.graph_break) is not None
        import torch.onnx
        assert torch_function(torch.onnx.is_in_onnx_export).call(None, [], {}).as_python_constant() is False
    """
    subprocess.run([sys.executable, "-c", program], check=True, cwd=pathlib.Path(minipt2.__file__).parents[1])


def library(x):
    counted = collections.Counter([1, 1, 2])
    space = types.SimpleNamespace(a=x, b=2)
    space.c = space.b + 1
    return (x + space.c, sorted([(1, "b"), (2, "a")], key=operator.itemgetter(1)), operator.attrgetter("b")(space), operator.methodcaller("upper")("x"), dict(counted), counted[5],
            re.sub("a", "b", "aa"), re.match(r"(\d+)", "12a").group(1), copy.copy(space.b), list(counted))


def numpy_constants(x):
    return (x * np.prod(x.shape) + np.sqrt(16), torch.from_numpy(np.arange(3)), torch.tensor(np.linspace(0, 1, 3)), x * np.float32(2), np.float64(2) * x, int(np.ceil(2.5)),
            torch.Tensor([1.0, 2.0]), torch.LongTensor([3]), torch.tensor([[1, 2], [3, 4]], dtype=torch.float32), torch.as_tensor(2.5), torch.tensor(x.shape[0]))


@pytest.mark.parametrize("fn", [library, numpy_constants], ids=lambda f: f.__name__)
def test_libraries(fn):
    check(fn, X)


def pickled(x, **options):
    """As memoisers do, for a key."""
    return x + len(options), pickle.dumps(options), pickle.dumps((1, "a", "a", None, 1.5), 2), pickle.dumps(["x"], protocol=4), pickle.dumps(b"3")


@pytest.mark.parametrize("options", [{}, {"k": 1, "text": "k", "more": -0.0}])
def test_plain_data_is_pickled_while_tracing(options):
    check(lambda x: pickled(x, **options), X)


def test_nested_data_is_pickled_for_real():
    def fn(x):
        part = [1]
        return x + 1, pickle.dumps([part, part])

    check(fn, X, full=False, graphs=None)


def test_layer_drop_that_is_off_is_no_branch_on_data():
    def fn(x):
        if torch.rand([]) < 0.0:
            return x
        r = torch.rand([])
        if 0 > r:
            return x
        return x + torch.rand(2, 3) * (1 if torch.rand([]) >= 0 else 2)

    torch.manual_seed(3)
    expected, after = fn(X), torch.rand(1)
    torch.manual_seed(3)
    got = optimize(fn, Recorder(), fullgraph=True)(X)
    assert torch.equal(got, expected) and torch.equal(torch.rand(1), after)

    def changed(x):
        r = torch.rand([])
        r.sub_(2)
        return x if r < 0 else -x

    assert torch.equal(optimize(changed, Recorder())(X), X)


HAS, NOTES = frozenset("ab").__contains__, []
note = NOTES.append


def test_what_is_callable():
    def fn(x, table):
        return [callable(v) for v in (x, [x], (x,), table, {x.shape}, len, fn, iter([x]), nn.ReLU)], x + 1

    check(fn, X, {"k": X})


def test_bound_methods_of_c_objects():
    def fn(x, get):
        note(x.shape[0])
        return x + get("k", 0) if HAS("a") and not HAS("c") else x

    table = {"k": 1}
    recorder = Recorder()
    compiled = optimize(fn, recorder, fullgraph=True)
    for method, expected in ((table.get, 1), ({"k": 2}.get, 2), ({}.get, 0), (table.setdefault, 1), (table.pop, 1)):
        assert torch.equal(compiled(X, method), X + expected)
    assert table == {} and NOTES == [2] * 5 and len(recorder.graphs) >= 4


def test_functions_decorated_with_autocast():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.precision = nn.Linear(3, 3), torch.autocast("cpu", dtype=torch.bfloat16)

        @torch.autocast("cpu", enabled=False)
        def precise(self, x):
            return self.linear(x)

        def forward(self, x):
            with self.precision:
                return self.linear(x), self.precise(x)

    check(Mixed(), X)


class Recipe:
    def __init__(self, pattern, size):
        self.axes, self.size, self.uses = pattern.split(), size, []


CALLS = []


@functools.lru_cache(8)
def recipe_for(pattern, size=1, *, scale=2):
    CALLS.append(pattern)
    if size < 0:
        raise ValueError(pattern)
    return Recipe(pattern, size * scale)


@functools.lru_cache
def shape_of(recipe, shape):
    CALLS.append(shape)
    return (*shape, recipe.size)


@functools.lru_cache
def mask_of(n):
    return torch.eye(n)


def test_cached_functions_are_called_once_for_known_arguments():
    def fn(x):
        recipe = recipe_for("a b", size=x.shape[0], scale=3)
        recipe.uses.append(len(recipe.axes))
        return x + recipe.size + len(shape_of(recipe, x.shape)), mask_of.__wrapped__(2) if len(recipe.uses) > 99 else recipe

    recorder = Recorder()
    compiled = optimize(fn, recorder, fullgraph=True)
    CALLS.clear()
    got, recipe = compiled(X)
    assert CALLS == ["a b", (2, 3)] and recipe is recipe_for("a b", size=2, scale=3) and recipe.uses == [2]
    assert torch.equal(compiled(X)[0], got) and torch.equal(got, X + 6 + 3) and recipe.uses == [2, 2] and len(CALLS) == 2
    recipe.size = 10
    assert torch.equal(compiled(X)[0], X + 10 + 3)
    recipe_for.cache_clear()
    assert torch.equal(compiled(X)[0], X + 6 + 3) and recipe.uses == [2, 2, 2]


def test_cached_functions_that_raise_or_return_tensors():
    def fn(x):
        try:
            recipe_for("c", -1)
        except ValueError as error:
            return x @ mask_of(3), str(error)

    CALLS.clear()
    check(fn, X, calls=1)
    assert CALLS == ["c", "c"]  # once by either


def gate(x, bias, n: int = 2):
    for _ in range(n):
        x = torch.tanh(x + bias) * 0.5
    return x


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecated, and found in many a model
    scripted = torch.jit.script(gate)
    traced = torch.jit.trace(lambda x: x * x.shape[0], (X,))


def test_scripted_functions_are_traced_and_traced_ones_are_called():
    check(lambda x: (scripted(x, X) + scripted(x, X, n=3), callable(scripted)), X)
    check(lambda x: traced(x) + 1, torch.ones(3, 3), full=False, graphs=None)


def test_set_grad_enabled_across_breaks():
    def within(x):
        with torch.set_grad_enabled(False):
            y = x * 2
            print(end="")
            z = y * x
        return z.requires_grad, (x * z).requires_grad, torch.is_grad_enabled(), z

    def before(x):
        mode = torch.set_grad_enabled(False)
        y = x * 2
        print(end="")
        with mode:
            z = y * x
        return type(mode), y.requires_grad, z.requires_grad, (x * z).requires_grad, torch.is_grad_enabled(), z

    for fn in (within, before):
        check(fn, torch.ones(2, requires_grad=True), full=False, graphs=2)
        assert torch.is_grad_enabled()
