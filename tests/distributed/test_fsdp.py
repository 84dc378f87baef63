"""Sharded parameters: our own, gathered inside the graph, and fully_shard's, gathered by hooks between graphs."""
import pytest
import torch
from torch import nn

import minipt2
from minipt2 import trace
from minipt2.config import config
from minipt2.distributed import shard
from minipt2.distributed.fsdp import is_gather

from .processes import on_two_ranks

pytestmark = pytest.mark.timeout(900)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(self.inner(x))) + x


class Net(nn.Module):
    """Sizes that two ranks do not divide evenly, and a tied weight."""

    def __init__(self, width=33):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.last = nn.Linear(width, width)
        self.last.weight = self.first.weight

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def train(model, call, batches):
    """Losses of some steps."""
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for x in batches:
        loss = call(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def data(rank=None):
    """Batches of both ranks, or of one."""
    torch.manual_seed(7)
    both = [torch.randn(2, 8, 33) for _ in range(4)]
    return both if rank is None else [x[rank] for x in both]


def sharded(rank):
    """After training: the largest difference of a parameter from one process with both batches, for eager and compiled."""
    torch.manual_seed(0)
    reference = Net()
    train(reference, reference, data())
    worst, local = {}, 0
    for backend in ("none", "inductor"):
        minipt2.reset()
        torch.manual_seed(rank)  # the first rank's values hold
        model = Net()
        if rank == 0:
            torch.manual_seed(0)
            model = Net()
        shard(model)
        local = sum(p.numel() for p in model.parameters())
        call = model if backend == "none" else minipt2.compile(model, backend=backend, fullgraph=True)
        train(model, call, data(rank))
        with torch.no_grad():
            pairs = [(getattr(m, name), p) for (path, p) in reference.named_parameters()
                     for m, name in [(model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2])]]
        worst[backend] = max((a - b).abs().max().item() for a, b in pairs)
    return worst, local, sum(p.numel() for p in reference.parameters())


def both(rank):
    return sharded(rank), fully_sharded(rank)


@pytest.fixture(scope="module")
def found():
    """One start of two processes for both tests."""
    return on_two_ranks(both)


def test_a_sharded_model_trains_as_one_process(found):
    worst, local, whole = found[0]
    assert max(worst.values()) < 1e-4, worst
    assert whole / 2 <= local < whole / 2 + 50, "each rank holds half, and what fills up the last part"


def fully_sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh, losses = init_device_mesh("cpu", (2,)), []
    for compiled in (False, True):
        minipt2.reset()
        torch.manual_seed(0)
        model = Net()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        losses.append(train(model, minipt2.compile(model) if compiled else model, data(rank)))
    return losses, dict(minipt2.counters())


def test_fully_shard_compiles_unit_by_unit(found):
    (eager, ours), counters = found[1]
    assert ours == pytest.approx(eager, rel=1e-5)
    assert counters["graphs"] >= 1, counters


def alone(depth):
    """Graphs of a sharded model's step in a group of one."""
    graphs = []
    with config.patch(gather_ahead=depth):
        stop = trace.subscribe(lambda stage, name, gm: graphs.append((name, gm)) if name in ("forward", "backward") else None, "aot")
        try:
            torch.manual_seed(0)
            model = shard(Net(8))
            minipt2.compile(model, backend="aot_eager", fullgraph=True)(torch.randn(4, 8)).sum().backward()
        finally:
            stop()
    return dict(graphs), model


@pytest.fixture
def group_of_one():
    import torch.distributed as dist
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_shards_are_saved_and_gathered_again(group_of_one, fresh):
    graphs, model = alone(1)
    saved = [n for n in graphs["backward"].graph.nodes if n.op == "placeholder" and n.meta.get("static")]
    assert saved and all(n.meta["val"].ndim == 1 for n in saved), "parameters are saved as flat parts"
    assert any(is_gather(n) for n in graphs["backward"].graph.nodes)


def test_the_depth_is_a_setting(group_of_one, fresh):
    def early(depth):
        """Gathers before the first matrix product."""
        names = [getattr(n.target, "_opname", "") for n in alone(depth)[0]["forward"].graph.nodes]
        return names[: names.index("addmm")].count("all_gather_into_tensor")
    minipt2.reset()
    counts = [early(depth) for depth in (0, 1, 3)]
    assert counts[0] < counts[1] < counts[2], counts


def test_tied_parameters_stay_tied(group_of_one):
    model = shard(Net(8))
    tied = [p for name, p in model.named_parameters(remove_duplicate=False) if name.endswith("weight.original") and ("first" in name or "last" in name)]
    assert len(tied) == 2 and tied[0] is tied[1]
    assert torch.equal(model.first.weight, model.last.weight) and model.first.weight.shape == (8, 8)
