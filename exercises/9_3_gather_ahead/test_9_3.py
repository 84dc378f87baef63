import pytest
import torch
import torch.distributed as dist
from torch import fx, nn

import minipt2
from minipt2 import trace
from minipt2.course.checks import same
from minipt2.distributed import shard
from minipt2.distributed.fsdp import GATHER, WAIT, chain, gather_ahead, is_gather


@pytest.fixture(scope="module", autouse=True)
def one_rank():
    """A group of this process alone: collectives run, and are what they are on many."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def early(layers=5, late_waits=False, twice=False):
    """A graph that gathers everything at its beginning: ``x = relu(x @ w)`` for each layer."""
    graph = fx.Graph()
    import torch.distributed._functional_collectives  # noqa: F401
    collectives = torch.ops._c10d_functional
    x = graph.placeholder("x")
    parts = [graph.placeholder(f"part{k}") for k in range(layers)]
    for part in parts:
        part.meta["static"] = True
    gathers = [graph.call_function(collectives.all_gather_into_tensor.default, (part, 1, dist.group.WORLD.group_name)) for part in reversed(parts)][::-1]
    waits = [graph.call_function(collectives.wait_tensor.default, (g,)) for g in gathers]
    weights = [graph.call_function(torch.ops.aten.view.default, (w, [4, 4])) for w in waits]
    for weight in weights:
        x = graph.call_function(torch.ops.aten.relu.default, (graph.call_function(torch.ops.aten.mm.default, (x, weight)),))
    if twice:
        x = graph.call_function(torch.ops.aten.mm.default, (x, weights[0]))
    graph.output((x,))
    return fx.GraphModule({}, graph)


def steps(gm):
    """The graph as letters: ``g0`` gathers part 0, ``w0`` waits for it, ``m0`` is the layer that uses it."""
    number, found = {}, []
    for node in gm.graph.nodes:
        if node.op == "placeholder" and node.name.startswith("part"):
            number[node] = int(node.name[4:])
        elif node.op == "call_function":
            kin = [number[a] for a in node.all_input_nodes if a in number]
            name = node.target._opname
            if kin and name in (GATHER, WAIT, "view"):
                number[node] = kin[0]
            letter = {GATHER: "g", WAIT: "w", "mm": "m"}.get(name)
            if letter:
                found.append(f"{letter}{kin[0]}")
    return found


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_starts_stand_depth_layers_early(depth):
    """Before the wait of the layer that stands so many layers earlier, and not before the layer in front of that."""
    found = steps(gather_ahead(early(), depth))
    at = {s: k for k, s in enumerate(found)}
    for k in range(depth, 5):
        assert at[f"g{k}"] < at[f"w{k - depth}"], found
        assert k == depth or at[f"g{k}"] > at[f"m{k - depth - 1}"], found


def test_the_first_layers_start_at_the_beginning():
    """There is nothing to hide them behind but each other, and the first is needed first."""
    same(steps(gather_ahead(early(), 3))[:4], ["g0", "g1", "g2", "g3"])


def test_waits_stand_before_their_layer():
    """Between the wait and the layer nothing is computed."""
    for depth in (0, 1, 3):
        found = steps(gather_ahead(early(), depth))
        for k in range(5):
            same(found[found.index(f"w{k}") + 1], f"m{k}", where=f"what follows the wait of layer {k}: {found}")


@pytest.mark.parametrize("depth", [0, 1, 2, 9])
def test_how_many_are_there_at_a_time(depth):
    """From the start of its gather until its layer has run."""
    there, most = set(), 0
    for step in steps(gather_ahead(early(), depth)):
        there.add(step[1:]) if step[0] == "g" else there.discard(step[1:]) if step[0] == "m" else None
        most = max(most, len(there))
    same(most, min(depth + 1, 5), where=f"parameters at a time, depth {depth}")


def test_a_parameter_that_is_used_twice():
    """It is needed where it is used first."""
    gm = gather_ahead(early(twice=True), 1)
    gm.graph.lint()
    found = steps(gm)
    assert found.index("w0") < found.index("m0") < found.index("m1"), found


def test_the_graph_computes_what_it_did():
    """With every depth; and what is no parameter's gather stays."""
    inputs = [torch.randn(2, 4), *torch.randn(5, 16)]
    expected = early()(*inputs)
    for depth in range(7):
        gm = gather_ahead(early(), depth)
        gm.graph.lint()
        gm.recompile()
        same(gm(*inputs), expected, where=f"depth {depth}")
    gm = early()
    for node in gm.graph.nodes:
        node.meta.clear()
    before = steps(gm)
    same([is_gather(n) for n in gm.graph.nodes].count(True), 0)
    same(steps(gather_ahead(gm, 1)), before, where="a graph without parameters")
    same([len(chain(n)) for n in early().graph.nodes if n.name.startswith("all_gather")], [2] * 5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_sharded_model_trains_as_eager(backend):
    """Losses of three steps, gathered once more in the backward."""
    torch.manual_seed(0)
    plain, ours = Net(), Net()
    ours.load_state_dict(plain.state_dict())
    compiled = minipt2.compile(shard(ours), backend=backend, fullgraph=True)
    losses, graphs = [], []
    stop = trace.subscribe(lambda stage, name, graph: graphs.append(graph) if name in ("forward", "backward") else None, "aot")
    try:
        for model, step in ((plain, plain), (ours, compiled)):
            optimizer, mine = torch.optim.SGD(model.parameters(), 0.1), []
            for k in range(3):
                loss = step(torch.full((2, 8), 0.1 * (k + 1))).square().sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                mine.append(loss.item())
            losses.append(torch.tensor(mine))
    finally:
        stop()
    same(losses[1], losses[0])
    same([sum(is_gather(n) for n in g.graph.nodes) > 2 for g in graphs], [True, True], where="gathers in forward and backward")
