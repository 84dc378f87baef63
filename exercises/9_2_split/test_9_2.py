import torch
from torch import nn
from torch.nn import functional as F

import minipt2
from minipt2.aot_autograd import aot_eager, in_pieces
from minipt2.course.checks import same
from minipt2.distributed.ddp import bucket_cuts, cuts, ready_order


class Layers(nn.Module):
    """Five layers of 64 * 64 weights (16 KiB each), and one more use of the first one's if they are tied."""

    def __init__(self, tied=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(5))
        self.tied = tied

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x @ self.layers[0].weight if self.tied else x


def captured(model, *inputs):
    """The graph that ``model`` is captured as."""
    graphs = []
    minipt2.compile(model, backend=lambda gm, _: graphs.append(gm) or gm.forward)(*inputs)
    gm, = graphs
    return gm


def names(nodes):
    return [n.meta["source"].split("layers'].")[-1].replace("_modules['", "").replace("']._parameters['", ".").replace("']", "") for n in nodes]


def test_ready_order_is_that_of_the_backward():
    """The last layer's first."""
    gm = captured(Layers(), torch.randn(2, 64))
    same([name.split(".")[0] for name in names(ready_order(gm))], ["4", "4", "3", "3", "2", "2", "1", "1", "0", "0"])


def test_a_tied_parameter_is_complete_at_its_first_use():
    """The last node uses it too, but its gradient is a sum of two."""
    gm = captured(Layers(tied=True), torch.randn(2, 64))
    assert {"0.weight", "0.bias"} == set(names(ready_order(gm))[-2:]), names(ready_order(gm))


def test_what_gets_no_gradient_is_left_out():
    """Frozen parameters, buffers, and the input."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[0].weight.requires_grad_(False)
    gm = captured(model, torch.randn(3, 4, requires_grad=True))
    same(len(ready_order(gm)), 5, where="parameters that are trained")
    placeholder = ready_order(gm)[0]
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        unused = gm.graph.placeholder("unused")
    unused.meta = dict(placeholder.meta)
    same(len(ready_order(gm)), 5, where="parameters, with one that nobody reads")


def test_cuts_stand_before_first_uses():
    """Of each bucket but the one that is complete last; whatever order the buckets come in."""
    gm = captured(Layers(), torch.randn(2, 64))
    order = ready_order(gm)
    buckets = [order[:2], order[2:4], order[4:]]
    first_use = [next(n for n in gm.graph.nodes if n.op != "placeholder" and set(n.all_input_nodes) & set(b)) for b in buckets]
    same([n.name for n in cuts(gm, buckets)], [n.name for n in first_use[1::-1]])
    same([n.name for n in cuts(gm, [order])], [], where="one bucket")
    same(list(cuts(gm, [])), [], where="no bucket")


def test_a_layer_in_two_buckets():
    """Weight and bias begin at one node: one cut."""
    gm = captured(Layers(), torch.randn(2, 64))
    order = ready_order(gm)
    same(len(cuts(gm, [order[:1], order[1:2], order[2:]])), 1)


def events_of(model, x, cap):
    """What happens in a backward of ``model``, compiled in pieces: pieces as they begin, parameters as their gradients are there."""
    events, made = [], []

    def piece(gm, inputs):
        compiled = aot_eager(gm, inputs)
        number = len(made)
        made.append(gm)

        def run(*args):
            results = compiled(*args)
            for r in results:
                if isinstance(r, torch.Tensor) and r.requires_grad:
                    r.register_hook(lambda grad: events.append(f"piece {number}"))
                    break
            return results
        return run

    def backend(gm, inputs):
        return in_pieces(gm, inputs, piece, bucket_cuts(gm, cap))
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: events.append(name))
    minipt2.compile(model, backend=backend, fullgraph=True)(x).square().sum().backward()
    return events, made


def test_a_bucket_is_there_before_the_backward_goes_on():
    """Buckets of two layers, the last two first: their gradients, then the next piece."""
    torch.manual_seed(0)
    events, made = events_of(Layers(), torch.randn(2, 64), 34000)
    same(len(made), 3, where="pieces")
    when = {e: k for k, e in enumerate(events)}
    for layers, following in (((4, 3), "piece 1"), ((2, 1), "piece 0")):
        for k in layers:
            assert when[f"layers.{k}.weight"] < when[following] and when[f"layers.{k}.bias"] < when[following], events


def test_gradients_are_eagers():
    """In however many pieces, tied or not."""
    for tied in (False, True):
        for cap in (1, 34000, 1 << 20):
            torch.manual_seed(0)
            ours, eager = Layers(tied), Layers(tied)
            eager.load_state_dict(ours.state_dict())
            x = torch.randn(2, 64)
            events_of(ours, x, cap)
            eager(x).square().sum().backward()
            for (name, p), q in zip(ours.named_parameters(), eager.parameters()):
                same(p.grad, q.grad, where=f"gradient of {name}, buckets of {cap} bytes")


def test_in_place_and_functional_calls():
    """What crosses a cut may be written later, or read by several pieces."""
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            h = self.a(x)
            y = F.relu_(self.b(h)) + h
            return self.c(y).add_(h)
    torch.manual_seed(0)
    ours, eager = Mixed(), Mixed()
    eager.load_state_dict(ours.state_dict())
    x = torch.randn(3, 8)
    _, made = events_of(ours, x, 1)
    assert len(made) == 3, f"{len(made)} pieces"
    eager(x).square().sum().backward()
    for p, q in zip(ours.parameters(), eager.parameters()):
        same(p.grad, q.grad)
