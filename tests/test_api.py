"""The public API: forms of ``compile``, what an OptimizedModule shares with its module, clear refusals."""
import copy
import gc
import pickle
import warnings
import weakref

import pytest
import torch
from torch import nn

import minipt2
from minipt2 import InvalidArgument
from minipt2.api import MODES
from minipt2.config import config

from .compare import assert_same, check


class Net(nn.Module):
    registry = []

    def __init_subclass__(cls, **kwargs):
        Net.registry.append(cls)

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x, scale=1.0):
        return torch.relu(self.norm(self.linear(x))) * scale

    def twice(self, x):
        return self(self(x))


@pytest.fixture
def net(fresh):
    torch.manual_seed(0)
    return Net()


def test_function_decorator_with_and_without_arguments(fresh):
    @minipt2.compile
    def plain(x):
        return torch.sin(x) + 1

    @minipt2.compile(fullgraph=True, backend="eager")
    def configured(x):
        return torch.sin(x) + 1

    x = torch.randn(5)
    assert_same(torch.sin(x) + 1, plain(x))
    assert_same(torch.sin(x) + 1, configured(x))
    assert minipt2.counters()["graphs"] == 2
    assert plain.__name__ == "plain"


def test_bound_methods_builtins_and_callables(fresh):
    class Scale:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x * self.k

        def method(self, x):
            return x + self.k

    check(Scale(3).method, torch.randn(4))
    check(Scale(3), torch.randn(4))
    check(torch.sin, torch.randn(4))


def test_module_shares_everything(net):
    compiled = minipt2.compile(net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert isinstance(compiled, Net) and isinstance(compiled, nn.Module) and isinstance(compiled, minipt2.OptimizedModule)
    assert compiled.linear is net.linear and compiled._orig_mod is net
    assert compiled.eval() is compiled and not net.training
    net.train()
    assert compiled.training
    assert [p is q for p, q in zip(compiled.parameters(), net.parameters())] == [True] * 4
    compiled.extra = 3
    assert net.extra == 3
    assert Net.registry == []


def test_module_numbers_and_methods_run_compiled(net):
    net.eval()
    compiled, x = minipt2.compile(net), torch.randn(3, 4)
    assert_same(net(x), compiled(x))
    assert_same(net(x, scale=2.0), compiled(x, scale=2.0))
    assert_same(net(net(x)), compiled.twice(x))
    assert minipt2.counters()["graphs"] >= 1
    assert_same(net(x), compiled.forward(x))


def test_hooks_run(net):
    compiled, seen = minipt2.compile(net.eval()), []
    x = torch.randn(3, 4)
    handle = compiled.register_forward_hook(lambda m, args, out: out + 1)
    assert_same(net(x), compiled(x))
    handle.remove()
    compiled.register_forward_pre_hook(lambda m, args: seen.append(1))
    compiled(x)
    assert seen == [1]


def test_deepcopy_and_pickle(net):
    compiled, x = minipt2.compile(net.eval(), backend="eager"), torch.randn(3, 4)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(other, minipt2.OptimizedModule) and other.linear is not net.linear
        assert_same(net(x), other(x))


def test_inside_a_larger_module(net):
    x = torch.randn(3, 4)
    larger = nn.Sequential(minipt2.compile(net.eval()), nn.Linear(4, 2)).eval()
    assert list(larger.state_dict())[0] == "0.linear.weight"
    assert_same(larger[1](net(x)), larger(x))
    assert_same(larger[1](net(x)), minipt2.compile(larger)(x))


def test_dropped_models_are_freed(fresh):
    model = Net().eval()
    compiled = minipt2.compile(model)
    compiled(torch.randn(3, 4))
    alive, weight = weakref.ref(model), weakref.ref(model.linear.weight)
    del model, compiled
    gc.collect()
    assert alive() is None and weight() is None


def test_disable(fresh):
    @minipt2.disable
    def inner(x):
        assert not minipt2.is_compiling()
        return x + 1

    check(lambda x: inner(x * 2) * 3, torch.randn(4))
    assert minipt2.counters()["breaks"] >= 1
    module = Net()
    assert minipt2.compile(module, disable=True) is module


def test_is_compiling(fresh):
    def f(x):
        return x + 1 if minipt2.is_compiling() else x - 1
    assert not minipt2.is_compiling()
    x = torch.randn(3)
    assert_same(x + 1, minipt2.compile(f)(x))
    assert_same(x - 1, f(x))


@pytest.mark.parametrize("settings, listed", [
    ({"backend": "inductr"}, "inductor"), ({"mode": "fastest"}, "reduce-overhead"), ({"options": {"fuse": 1}}, "fusion"),
    ({"options": {"fusion": "yes"}}, "takes bool"), ({"options": {"max_fusion_size": "many"}}, "takes int"),
    ({"options": {"memory_budget": 1.5}}, "between 0 and 1"), ({"options": "fusion"}, "a dict of names"), ({"fullgraph": "yes"}, "fullgraph is True"),
    ({"dynamic": 1}, "dynamic is True or False or None"), ({"disable": "x"}, "disable is True")])
def test_unknown_names_are_refused_at_once(settings, listed):
    with pytest.raises(InvalidArgument, match=listed):
        minipt2.compile(lambda x: x, **settings)


def test_backends_are_listed_and_registered(fresh):
    assert {"eager", "aot_eager", "inductor"} <= set(minipt2.list_backends())
    seen = []

    def backend(gm, example_inputs):
        seen.append((gm, example_inputs))
        return gm.forward

    check(lambda x: torch.cos(x) * 2, torch.randn(3), backend=backend)
    assert isinstance(seen[0][0], torch.fx.GraphModule) and isinstance(seen[0][1][0], torch.Tensor)


def f_plus_sine(x):
    return torch.sin(x) + 1, x


inner_compiled = minipt2.compile(f_plus_sine)


@pytest.mark.parametrize("outer", [inner_compiled, minipt2.compile(inner_compiled), lambda x: inner_compiled(x)])
def test_compiling_what_is_compiled(outer, fresh):
    x, seen = torch.randn(3), []

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward
    assert_same(f_plus_sine(x), minipt2.compile(outer, fullgraph=True, backend=backend)(x))
    assert len(seen) == 1


def test_compiled_modules_inside_others_are_captured_with_them(net):
    x, inner = torch.randn(3, 4), minipt2.compile(net.eval())
    larger = nn.Sequential(inner, nn.Linear(4, 2)).eval()
    expected = larger[1](net(x))
    assert_same(expected, minipt2.compile(larger, fullgraph=True, backend="eager")(x))
    assert_same(expected, minipt2.compile(lambda y: larger[1](inner.forward(y)), fullgraph=True, backend="eager")(x))
    assert_same(net(net(x)), minipt2.compile(inner.twice, fullgraph=True, backend="eager")(x))


@pytest.mark.parametrize("made, told", [(lambda gm: None, "returned None for graph"), (lambda gm: lambda *a: None, "a NoneType; a tuple of 1"),
                                        (lambda gm: lambda *a: gm(*a)[0], "a Tensor; a tuple of 1"), (lambda gm: lambda *a: (*a, *a), "2 values")])
def test_backends_that_return_something_else_are_told(made, told, fresh):
    compiled = minipt2.compile(torch.nn.functional.relu, backend=lambda gm, inputs: made(gm))
    with pytest.raises(minipt2.BackendError, match=told):
        compiled(torch.ones(3))


def test_options_apply(fresh):
    def f(x):
        return torch.relu(x + 1).sum() * 2
    check(f, torch.randn(100), options={"fusion": False})
    unfused = minipt2.counters()["kernels"]
    minipt2.reset()
    check(f, torch.randn(100))
    assert minipt2.counters()["kernels"] <= unfused


def test_fullgraph_error_shows_the_users_lines_not_ours(fresh):
    def f(x):
        print("break here")
        return x + 1
    with minipt2.config.patch(raise_internal_errors=False), pytest.raises(minipt2.Unsupported, match="test_api.py") as caught:
        minipt2.compile(f, fullgraph=True)(torch.ones(1))
    assert len(caught.traceback) <= 3 and "What to do" in str(caught.value)


def test_explain(fresh):
    def f(x):
        y = torch.sin(x)
        print("break here")
        return y + 1
    explanation = minipt2.explain(f)(torch.randn(3))
    assert explanation.graph_count == 2 and explanation.break_count == 1
    assert "print" in str(explanation) and "test_api.py" in str(explanation)
    assert str(explanation).startswith("2 graphs, 1 break, ") and ".code" in str(explanation)


def test_explain_names_what_was_disabled(fresh):
    @minipt2.disable
    def logged(x):
        return x + 1
    assert "logged is disabled" in str(minipt2.explain(lambda x: logged(x) * 2)(torch.randn(3)))


def test_a_misspelt_setting_is_refused():
    with pytest.raises(AttributeError, match="fusion"):
        minipt2.config.fuson = False
    with pytest.raises(TypeError, match="int"):
        minipt2.config.max_fusion_size = "many"
    with pytest.raises(AttributeError, match="fusion"), minipt2.config.patch(freeze=False, fuson=False):
        pass
    assert minipt2.config.freeze is True


@pytest.mark.parametrize("name, value, told", [
    ("MINIPT2_FUSON", "0", "MINIPT2_FUSION"), ("MINIPT2_RECOMPILE_LIMIT", "lots", "MINIPT2_RECOMPILE_LIMIT takes int"), ("MINIPT2_CACHE_DIR", "x", ""),
    ("MINIPT2_FUSION", "maybe", "MINIPT2_FUSION takes bool"), ("MINIPT2_FUSION", "Off", "fusion=False")])
def test_a_mistake_in_the_environment_is_told(name, value, told, monkeypatch):
    from minipt2.config import _from_environment

    monkeypatch.setenv(name, value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = str(_from_environment())
        except ValueError as error:
            text = str(error)
    text += "".join(str(w.message) for w in caught)
    assert told in text and (told or not caught)


@pytest.mark.parametrize("mode", [None, *MODES])
def test_modes_set_what_they_say_while_they_compile(mode):
    seen = []

    def backend(gm, example_inputs):
        seen.append(config.cuda_graphs)
        return gm.forward
    minipt2.compile(lambda x: x + 1, backend=backend, mode=mode)(torch.ones(2))
    assert seen == [MODES[mode or "default"].get("cuda_graphs", False)] and not config.cuda_graphs


def test_options_go_before_the_mode():
    seen = []

    def backend(gm, example_inputs):
        seen.append(config.cuda_graphs)
        return gm.forward
    minipt2.compile(lambda x: x + 1, backend=backend, mode="reduce-overhead", options={"cuda_graphs": False})(torch.ones(2))
    assert seen == [False]
