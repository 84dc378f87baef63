"""Backwards of calls some of whose outputs no loss used."""
import pytest
import torch
from torch import nn

import minipt2
from minipt2.aot_autograd import runtime
from minipt2.config import config
from minipt2.trace import subscribe


@pytest.fixture(autouse=True)
def raise_faults():
    with config.patch(raise_internal_errors=True):
        yield


def gradients(fn, args, use):
    """Gradients of all inputs for the loss that sums the outputs whose numbers are in ``use``."""
    leaves = [a.detach().clone().requires_grad_() for a in args]
    outs = fn(*leaves)
    sum((outs[i] * (i + 2)).sum() for i in use).backward()
    return [a.grad for a in leaves]


def check(fn, *args, uses, backend="inductor"):
    """Gradients as eager's, None where eager has None; each set of used outputs in turn, and again. Returns how many backwards were compiled."""
    compiled, graphs = minipt2.compile(fn, backend=backend), []
    unsubscribe = subscribe(lambda stage, name, payload: graphs.append(payload) if name == "backward" else None, "aot")
    for use in [*uses, *uses]:
        for got, want in zip(gradients(compiled, args, use), gradients(fn, args, use), strict=True):
            assert (got is None) == (want is None)
            if want is not None:
                torch.testing.assert_close(got, want)
    unsubscribe()
    return graphs


def block(x, w):
    k = x @ w
    return (k.sin() @ w.t()).tanh(), k.view(2, 2, -1).transpose(0, 1), k * 2


def test_each_set_of_used_outputs_has_a_backward():
    graphs = check(block, torch.randn(4, 3), torch.randn(3, 6), uses=[(0,), (0, 1), (0, 1, 2), (2,)])
    inputs = [len([n for n in g.graph.nodes if n.op == "placeholder"]) for g in graphs]
    assert [n - inputs[2] for n in inputs] == [-2, -1, 0, -2]


def test_no_zeros_are_made_where_nothing_reads_them():
    graphs = check(block, torch.randn(4, 3), torch.randn(3, 6), uses=[(0,)])
    assert not [n for n in graphs[0].graph.nodes if getattr(n.target, "name", "") == "full"]


def test_more_sets_than_are_kept_get_zeros(monkeypatch):
    monkeypatch.setattr(runtime, "MOST_BACKWARDS", 1)
    graphs = check(block, torch.randn(4, 3), torch.randn(3, 6), uses=[(0,), (1,), (2,)])
    assert len(graphs) == 2


def test_gradients_that_depend_on_nothing_used_are_none():
    check(lambda x, y: (x * 2, y.exp(), x - y), torch.randn(3), torch.randn(3), uses=[(0,), (1,), (2,), (0, 1)])


@pytest.mark.parametrize("fn", [
    lambda x, y: (torch.cat([x, y]), torch.stack([x, y]).cumsum(0), x * y),
    lambda x, y: (torch.where(x > 0, x, y), x.flip(0), (x - y).abs()),
    lambda x, y: (torch.max(x, y), torch.nn.functional.pad(x, (1, 1)), y.gather(0, torch.tensor([0, 2, 1]))),
    lambda x, y: (x.repeat(2, 1) @ torch.outer(y, x), torch.softmax(y, 0), y.to(torch.float64).sum()),
])
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_operators(fn, backend):
    check(fn, torch.randn(3), torch.randn(3), uses=[(0,), (1,), (2,), (1, 2)], backend=backend)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_infinities_that_zeros_would_have_met_leave_no_trace(backend):
    """The second output's derivative is infinite: zeros times it would be NaN."""
    check(lambda x: (x * 2, x.sqrt()), torch.zeros(3), uses=[(0,)], backend=backend)


def test_other_backends():
    for backend in ("aot_eager", "numpy"):
        check(block, torch.randn(4, 3), torch.randn(3, 6), uses=[(0,), (1, 2)], backend=backend)


def test_a_module_with_keys_and_values():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x):
            q, k, v = (t.view(2, 4, 2, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 4, 8)), k, v

    model = Attention()
    state = [p for _, p in model.named_parameters()]

    def steps(call):
        found = []
        for use in ((0,), (0, 1), (0,)):
            model.zero_grad()
            outs = call(torch.ones(2, 4, 8))
            sum(outs[i].pow(2).sum() for i in use).backward()
            found += [p.grad.clone() for p in state]
        return found
    torch.testing.assert_close(steps(minipt2.compile(model)), steps(model))


def test_sizes_that_vary():
    compiled = minipt2.compile(block, dynamic=True)
    for n in (4, 6, 10):
        args = torch.randn(n, 3), torch.randn(3, 2 * n)
        torch.testing.assert_close(gradients(compiled, args, (0,)), gradients(block, args, (0,)))


def test_kept_on_disk(tmp_path):
    """A second process (here: after reset) finds each backward in its file."""
    args = torch.randn(4, 3), torch.randn(3, 6)
    with config.patch(disk_cache=True, cache_dir=str(tmp_path)):
        for _ in range(2):
            minipt2.reset()
            compiled = minipt2.compile(block)
            for use in ((0,), (0, 1, 2)):
                torch.testing.assert_close(gradients(compiled, args, use), gradients(block, args, use))
        assert minipt2.counters()["plans_reused"] == 1
        assert len(list(tmp_path.rglob("*.backward*"))) == 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_states_of_a_recurrent_layer_need_not_be_used(kind, backend, fresh):
    """The LSTM's own backward takes a gradient of the output and of both states: without those of the states there is still one."""
    layer = kind(3, 4)
    compiled = minipt2.compile(layer, backend=backend)
    for use in ("output", "state", "both"):
        found = []
        for call in (layer, compiled):
            layer.zero_grad()
            torch.manual_seed(0)
            x = torch.randn(5, 2, 3, requires_grad=True)
            output, state = call(x)
            state = state[0] if isinstance(state, tuple) else state
            ((use != "state") * (output**2).sum() + state.sum() if use != "output" else (output**2).sum()).backward()
            found.append([x.grad, *[p.grad.clone() for p in layer.parameters()]])
        torch.testing.assert_close(found[1], found[0])


class Truncated(nn.Module):
    """Keeps its state from call to call, detached when it is used."""

    def __init__(self):
        super().__init__()
        self.cell, self.state = nn.LSTM(3, 3), None

    def forward(self, x):
        output, self.state = self.cell(x, None if self.state is None else tuple(s.detach() for s in self.state))
        return output


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_call_whose_outputs_were_only_detached_may_be_differentiated_before(backend, fresh):
    """Autograd comes by the first call again on the way from the second, with nothing to bring: what was saved there is gone."""
    torch.manual_seed(0)
    plain = Truncated()
    other = Truncated()
    other.load_state_dict(plain.state_dict())
    compiled = minipt2.compile(other, backend=backend)
    for _ in range(3):
        x = torch.randn(4, 3)
        (plain(x) ** 2).sum().backward()
        (compiled(x) ** 2).sum().backward()
    for p, q in zip(plain.parameters(), other.parameters()):
        torch.testing.assert_close(q.grad, p.grad)


def test_outputs_for_which_nothing_was_saved_are_differentiated_one_after_another(fresh):
    compiled = minipt2.compile(lambda x, y: (x * 2, y * 3, x + y))
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    first, _, last = compiled(x, y)
    first.sum().backward()
    last.sum().backward()
    assert x.grad.tolist() == [3.0] * 3 and y.grad.tolist() == [1.0] * 3
