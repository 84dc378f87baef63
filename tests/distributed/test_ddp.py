"""A compiled DDP model trains as an eager one does, and its gradients are on their way while the backward still runs."""
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import minipt2
from minipt2 import models
from minipt2.distributed import bucket_cuts

from .processes import on_two_ranks

CAP_MB = 0.05
pytestmark = pytest.mark.timeout(900)


class Net(nn.Module):
    """Six blocks with a batch norm (which writes its buffers) and a weight that is used at both ends."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(64, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()) for _ in range(6))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x) + x
        return x @ self.embed.weight


def seeded(make):
    torch.manual_seed(0)
    return make()


def parallel(model, how, backend="inductor"):
    if how == "module inside":
        return DistributedDataParallel(minipt2.compile(model, backend=backend), bucket_cap_mb=CAP_MB)
    model = DistributedDataParallel(model, bucket_cap_mb=CAP_MB)
    return model if how == "eager" else minipt2.compile(model, backend=backend)


def trained(rank, how, backend="inductor", steps=3):
    """Parameters and buffers after ``steps`` steps on this rank's batches, and the counters."""
    minipt2.reset()
    model = seeded(Net)
    call, optimizer = parallel(model, how, backend), torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(rank + 1)
    for _ in range(steps):
        call(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {k: v.clone() for k, v in model.state_dict().items()}, dict(minipt2.counters())


def compare(rank):
    eager, _ = trained(rank, "eager")
    worst, graphs = {}, {}
    for how, backend in (("module inside", "inductor"), ("all of it", "aot_eager")):
        ours, counters = trained(rank, how, backend)
        worst[how, backend] = max((ours[k].double() - eager[k].double()).abs().max().item() for k in eager)
        graphs[how, backend] = counters["graphs"]
    return worst, graphs


def test_training_equals_eager(found):
    worst, graphs = found["compare"]
    assert max(worst.values()) < 1e-5, worst
    assert set(graphs.values()) == {1}, graphs


def order_of_events(rank):
    """Gradients as DDP's reducer takes them, and pieces of the graph as their backward begins."""
    events, count = [], iter(range(100))

    def backend(gm, inputs):
        from minipt2.aot_autograd import aot_eager
        compiled, number = aot_eager(gm, inputs), next(count)

        def run(*args):
            results = compiled(*args)
            tensor = next(r for r in results if isinstance(r, torch.Tensor) and r.requires_grad)
            tensor.register_hook(lambda grad: events.append(("backward of piece", number)))
            return results
        return run

    def sent(state, bucket):
        events.append(("bucket", bucket.index()))
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future
    call = parallel(seeded(Net), "module inside", backend)
    for _ in range(2):
        events.clear()
        call.register_comm_hook(None, sent) if not call._comm_hooks else None
        call(torch.randn(8, 64)).square().mean().backward()
    return events


def test_buckets_leave_while_the_backward_runs(found):
    events = found["events"]
    kinds = [kind for kind, _ in events]
    pieces = kinds.count("backward of piece")
    assert pieces > 2, events
    before_the_last_piece = kinds[: len(kinds) - 1 - kinds[::-1].index("backward of piece")]
    assert before_the_last_piece.count("bucket") >= pieces - 2, events


def no_sync(rank):
    """Two batches, one all-reduce: the largest difference of a gradient from eager's."""
    grads = []
    for how in ("eager", "module inside"):
        model = seeded(Net)
        call = parallel(model, how, "aot_eager")
        torch.manual_seed(rank + 1)
        with call.no_sync():
            call(torch.randn(8, 64)).square().mean().backward()
        call(torch.randn(8, 64)).square().mean().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    return max((a - b).abs().max().item() for a, b in zip(*grads))


def everything(rank):
    return {"compare": compare(rank), "events": order_of_events(rank), "no_sync": no_sync(rank)}


@pytest.fixture(scope="module")
def found():
    """One start of two processes for all tests."""
    return on_two_ranks(everything)


def test_accumulation_without_sending(found):
    assert found["no_sync"] < 1e-5


def test_outside_of_ddp_nothing_is_cut(fresh):
    whole = []
    model = models.build("resnet18", "small")
    minipt2.compile(model, backend=lambda gm, _: whole.append(gm) or gm.forward)(*models.inputs("resnet18", "small"))
    gm, = whole
    assert len(bucket_cuts(gm, 1 << 16)) > 3 and len(bucket_cuts(gm, 1 << 30)) <= 1
