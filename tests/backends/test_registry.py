import pytest
import torch

from minipt2 import backends
from minipt2.backends import registry
from minipt2.errors import InvalidArgument


@pytest.fixture(autouse=True)
def restored():
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_builtin_names():
    assert {"eager", "aot_eager", "inductor"} <= set(backends.list_backends())


def test_decorator_with_and_without_arguments():
    @backends.register_backend
    def mine(gm, example_inputs):
        return gm.forward

    @backends.register_backend(name="other")
    def theirs(gm, example_inputs):
        return gm.forward

    assert backends.lookup("mine") is mine and backends.lookup("other") is theirs
    assert {"mine", "other"} <= set(backends.list_backends())


def test_a_callable_is_its_own_backend():
    def fn(gm, example_inputs):
        return gm.forward
    assert backends.lookup(fn) is fn


def test_unknown_name_lists_what_exists():
    with pytest.raises(InvalidArgument, match="inducter.*aot_eager.*inductor") as caught:
        backends.lookup("inducter")
    assert isinstance(caught.value, ValueError)


def test_not_callable():
    with pytest.raises(InvalidArgument, match="callable"):
        backends.register_backend(3)


def test_entry_points(monkeypatch):
    class Point:
        name = "from_a_package"

        def load(self):
            return lambda gm, example_inputs: gm.forward
    monkeypatch.setattr(registry, "_installed", lambda: {"from_a_package": Point()})
    assert "from_a_package" in backends.list_backends()
    assert callable(backends.lookup("from_a_package"))


def test_eager_runs_the_graph():
    gm = torch.fx.symbolic_trace(lambda x: (x + 1,))
    assert backends.lookup("eager")(gm, [torch.zeros(2)])(torch.zeros(2))[0].sum() == 2
