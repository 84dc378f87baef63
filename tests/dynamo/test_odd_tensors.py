"""Tensors that graphs cannot hold, values of NumPy, and what is told of a break: eager's result, and a reason that says what was met."""
import inspect
import warnings

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map

import minipt2
from minipt2 import trace

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")


@pytest.fixture
def reasons():
    """What broke, as texts."""
    found = []
    unsubscribe = trace.subscribe(lambda stage, name, payload: found.append(str(payload)) if stage == "breaks" else None)
    minipt2.reset()
    yield found
    unsubscribe()


def cut():
    """Breaks the graph of its caller."""
    print(end="")


def quantized():
    return torch.quantize_per_tensor(torch.tensor([0.11, 0.52, -0.37]), 0.1, 0, torch.qint8)


def quantize_and_back(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() * 2


def quantize_through_operator(x):
    return torch.ops.aten.quantize_per_tensor.default(x + 1, 0.1, 0, torch.quint8).int_repr() + 1


def quantize_per_channel(x):
    return torch.quantize_per_channel(x.reshape(3, 1), torch.ones(3) * 0.1, torch.zeros(3), 0, torch.quint8).dequantize() - 1


@pytest.mark.parametrize("f", [quantize_and_back, quantize_through_operator, quantize_per_channel])
def test_quantizing_breaks_the_graph(f, reasons):
    x = torch.tensor([0.11, 0.52, -0.37])
    assert torch.equal(minipt2.compile(f)(x), f(x))
    assert "[MP304]" in reasons[0] and "quantized tensor" in reasons[0]
    assert minipt2.compile(quantize_and_back)(x).dtype is torch.float32


def test_a_quantized_input_and_result():
    q = quantized()
    assert torch.equal(minipt2.compile(lambda q: q.dequantize() * 2 + 1)(q), q.dequantize() * 2 + 1)
    made = minipt2.compile(lambda x: torch.quantize_per_tensor(x + 0, 0.1, 0, torch.qint8))(q.dequantize())
    assert made.is_quantized and torch.equal(made.int_repr(), q.int_repr())


LAZY = {
    "conjugated": (lambda c: c.conj(), lambda c: (c * 2).imag + 1),
    "negated": (lambda c: c.conj().imag, lambda x: x * 2 + 1),
    "returned as it is": (lambda c: c.conj(), lambda c: (c, c + 1)),
    "written in place": (lambda c: c.clone().conj(), lambda c: c.mul_(2)),
}


@pytest.mark.parametrize("name", LAZY)
def test_pending_bits_of_an_input(name, reasons):
    make, f = LAZY[name]
    c = torch.tensor([1 + 2j, 3 - 4j])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(minipt2.compile(f)(make(c)), f(make(c)))
    assert "pending conjugation or negation" in reasons[0] and "resolve_conj()" in reasons[0]


def test_pending_bits_across_a_break(reasons):
    def f(c):
        d = c.conj().imag
        cut()
        return d * 2

    c = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(minipt2.compile(f)(c), f(c))
    assert any("pending conjugation or negation" in reason for reason in reasons)


def test_a_compiled_entry_is_not_taken_for_a_tensor_with_pending_bits():
    f = minipt2.compile(lambda x: x * 2 + 1)
    c = torch.tensor([1 + 2j, 3 - 4j])
    for x in (c.imag.clone(), c.conj().imag, c, c.conj()):
        assert torch.equal(f(x), x * 2 + 1)


def test_what_cannot_be_wrapped_is_still_there_after_the_break():
    def f(a, b):
        return a, b + 1

    odd = torch.eye(2).to_sparse()
    result = minipt2.compile(f)(odd, torch.ones(2))
    assert result[0] is odd and torch.equal(result[1], torch.full((2,), 2.0))


# ------------------------------------------------------------------ numpy
def test_numpy_arrays_as_operands_break_without_a_warning():
    f = minipt2.compile(lambda x: x * np.array(3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert torch.equal(f(torch.ones(2)), torch.full((2,), 3.0))


def test_an_array_made_while_tracing_is_a_new_one_each_time():
    def f(x):
        a = np.zeros(2)
        b = a
        cut()
        a[0] += 1
        return x + 1, b

    compiled = minipt2.compile(f)
    for _ in range(2):
        assert compiled(torch.ones(2))[1].tolist() == [1.0, 0.0]


# ------------------------------------------------------------------ what is told
def inner(x):
    cut()
    return x * 2


def outer(x):
    return inner(x + 1) * 3


def test_a_break_in_an_inlined_function_counts_once(reasons):
    x = torch.ones(2)
    assert torch.equal(minipt2.compile(lambda x: outer(x) + 1)(x), outer(x) + 1)
    assert minipt2.counters()["breaks"] == len(reasons) == 1
    assert torch.equal(minipt2.compile(outer)(x), outer(x))  # another compiled function: its graph is broken too
    assert minipt2.counters()["breaks"] == 2


def test_defaults_given_anew_are_seen():
    def f(x, k=1.0, *, m=2.0):
        return x * k + m

    class Owner:
        def method(self, x, k=1.0):
            return x * k

    x, owner = torch.ones(2), Owner()
    compiled, bound = minipt2.compile(f), minipt2.compile(owner.method)
    assert torch.equal(compiled(x), f(x)) and torch.equal(bound(x), x)
    f.__defaults__, f.__kwdefaults__, Owner.method.__defaults__ = (5.0,), {"m": 7.0}, (3.0,)
    assert torch.equal(compiled(x), torch.full((2,), 12.0)) and torch.equal(bound(x), torch.full((2,), 3.0))


def test_warnings_point_at_the_users_line():
    def backend(gm, examples):
        raise ValueError("no")

    f = minipt2.compile(lambda x: x + 1, backend=backend)
    with minipt2.config.patch(raise_internal_errors=False), pytest.warns(UserWarning, match="runs it eagerly") as seen:
        f(torch.ones(2))
        line = inspect.currentframe().f_lineno - 1
    assert (seen[0].filename, seen[0].lineno) == (__file__, line)


def test_failures_on_fake_tensors_are_not_logged(capfd):
    with pytest.raises(RuntimeError):
        minipt2.compile(lambda x: x.kthvalue(9, 0)[0])(torch.ones(3))
    assert "failed while attempting" not in capfd.readouterr().err


# ------------------------------------------------------------------ kinds of tensors
class Wrapper(torch.Tensor):
    """Holds another tensor; every operator acts on that."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrap = lambda t: t.inner if isinstance(t, Wrapper) else t  # noqa: E731
        result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(lambda t: Wrapper(t) if isinstance(t, torch.Tensor) else t, result)


X = torch.linspace(-1, 1, 16).reshape(4, 4)
SPECIAL = {
    "sparse": (lambda: X.to_sparse(), lambda s: (s @ X) * 2),
    "sparse_csr": (lambda: X.to_sparse_csr(), lambda s: (s @ X) * 2),
    "made sparse": (lambda: X, lambda x: (x * 1).to_sparse().to_dense() * 2),
    "mkldnn": (lambda: X.to_mkldnn(), lambda m: m.relu().to_dense() * 2),
    "nested": (lambda: torch.nested.nested_tensor([X, X[:2]]), lambda n: (n * 2).to_padded_tensor(0.0) + 1),
    "a wrapper": (lambda: Wrapper(X), lambda w: (w * 2 + 1).inner),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", SPECIAL)
def test_kinds_of_tensors_that_break(name, reasons):
    make, f = SPECIAL[name]
    with minipt2.config.patch(raise_internal_errors=False), warnings.catch_warnings():
        warnings.filterwarnings("error", "minipt2")
        torch.testing.assert_close(minipt2.compile(f)(make()), f(make()))
    assert any("[MP310]" in reason for reason in reasons)


def test_tensors_without_values():
    f = minipt2.compile(lambda x: (x * 2 + 1).sum(0))
    for device in ("cpu", "meta", "cpu"):
        assert f(torch.ones(3, 4, device=device)).device.type == device


def test_an_input_in_which_elements_share_memory():
    def f(x):
        x[0] = 5.0
        return x * 1

    overlapping = lambda: torch.arange(10.0).as_strided((4, 4), (2, 1))  # noqa: E731
    with minipt2.config.patch(raise_internal_errors=False), pytest.warns(UserWarning, match="MP502"):
        assert torch.equal(minipt2.compile(f)(overlapping()), f(overlapping()))
    g = lambda x: x * 2 + 1  # noqa: E731
    assert torch.equal(minipt2.compile(g)(overlapping()), g(overlapping()))


def test_function_transforms_around_compiled_code():
    def plain(x):
        return (x * 2).sin().sum(0)

    f, x = minipt2.compile(plain), torch.linspace(-1, 1, 12).reshape(3, 2, 2)
    f(x[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert torch.equal(torch.func.vmap(f)(x), torch.func.vmap(plain)(x))
        assert torch.equal(torch.func.jacrev(f)(x[0]), torch.func.jacrev(plain)(x[0]))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x[0], torch.ones(2, 2))
            for result, expected in zip(forward_ad.unpack_dual(f(dual)), forward_ad.unpack_dual(plain(dual))):
                assert torch.equal(result, expected)


def test_super_before_the_object_is_used():
    class Base:
        def scaled(self, x):
            return x * 3

    class Derived(Base):
        def scaled(self, x):
            return super().scaled(x) + 1

    assert torch.equal(minipt2.compile(Derived().scaled)(X), X * 3 + 1)


def test_class_bodies_run_as_they_are():
    def f(x):
        cut()

        class Local:
            scale = x.shape[0]

        return x * Local.scale

    assert torch.equal(minipt2.compile(f)(X), X * 4)
