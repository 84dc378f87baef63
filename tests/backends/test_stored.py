"""What the inductor backend keeps on disk of a whole captured graph: found again, made again, never mistaken."""
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import fx

import minipt2
from minipt2 import trace
from minipt2.backends import graph_key, stored
from minipt2.config import config
from minipt2.prims import portable
from minipt2.shapes import ShapeEnv

from ..symbolic import At

pytest.importorskip("minipt2.inductor")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(h) + x, h.view(-1)


@pytest.fixture(autouse=True)
def fresh(tmp_path):
    with config.patch(cache_dir=str(tmp_path), raise_internal_errors=True):
        yield tmp_path


def step(model, x, **options):
    """Outputs and gradients of one compiled step in a process that has compiled nothing, and how many plans came from disk."""
    minipt2.reset()
    trace.reset()
    model.zero_grad()
    outputs = minipt2.compile(model, **options)(x)
    sum(o.square().sum() for o in outputs).backward()
    return [o.detach() for o in outputs], [p.grad for p in model.parameters()], trace.counters().get("plans_reused", 0)


def same(a, b):
    torch.testing.assert_close(a[:2], b[:2])


def test_a_second_process_reuses_forward_and_backward(fresh):
    model, x = Net(), torch.randn(4, 8)
    first, second = step(model, x), step(model, x)
    assert (first[2], second[2]) == (0, 1)
    same(first, second)
    assert sorted(p.suffix for p in fresh.iterdir() if p.suffix in (".plan", ".backward")) == [".backward", ".plan"]


def test_a_plan_of_symbolic_sizes_serves_other_sizes(fresh):
    model = Net()
    for reused, batch in ((0, 4), (1, 7)):
        x = torch.randn(batch, 8)
        found = step(model, x, dynamic=True)
        assert found[2] == reused
        model.zero_grad()
        outputs = model(x)
        sum(o.square().sum() for o in outputs).backward()
        same(([o.detach() for o in outputs], [p.grad for p in model.parameters()]), found)


def test_a_backward_of_symbolic_sizes_that_no_process_compiled_yet(fresh):
    model = Net()
    minipt2.compile(model, dynamic=True)(torch.randn(4, 8))
    assert not list(fresh.glob("*.backward"))
    x = torch.randn(7, 8)
    second = step(model, x, dynamic=True)
    assert second[2] == 1 and len(list(fresh.glob("*.backward"))) == 1
    model.zero_grad()
    outputs = model(x)
    sum(o.square().sum() for o in outputs).backward()
    same(([o.detach() for o in outputs], [p.grad for p in model.parameters()]), second)


def test_facts_that_a_plan_relies_on_are_decided_again():
    env, other = ShapeEnv(), ShapeEnv()
    entry = stored._Entry(None, "graph")
    entry.symbols = {"s0": env.symbol(8, At("x")), "s1": env.symbol(5, At("y"))}
    assert entry.decided(["s0 % 4 == 0", "s1 <= s0"]) and [str(r.fact) for r in env.recorded] != []
    assert env.implied((entry.symbols["s0"] % 4 == 0).node.expr)
    entry.symbols = {"s0": other.symbol(6, At("x"))}
    assert not entry.decided(["s0 % 4 == 0"]) and not other.recorded


def test_views_and_inference():
    model, x = Net().eval(), torch.randn(4, 8)
    for reused in (0, 1):
        minipt2.reset()
        trace.reset()
        with torch.no_grad():
            out, flat = minipt2.compile(model)(x)
            want, want_flat = model(x)
        torch.testing.assert_close((out, flat), (want, want_flat))
        assert trace.counters().get("plans_reused", 0) == reused and flat.shape == want_flat.shape


def test_frozen_parameters_are_looked_at_again():
    norm = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
    x = torch.randn(1, 3, 8, 8)
    for _ in range(2):
        minipt2.reset()
        with torch.no_grad():
            norm[1].weight.mul_(2)
            torch.testing.assert_close(minipt2.compile(norm)(x), norm(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("suffix", [".plan", ".backward"])
def test_a_damaged_file_is_made_again(fresh, suffix):
    model, x = Net(), torch.randn(4, 8)
    first = step(model, x)
    file, = fresh.glob("*" + suffix)
    file.write_bytes(file.read_bytes()[:-50] + b"x" * 50)
    same(first, step(model, x))
    same(first, again := step(model, x))
    assert again[2] == 1 and file.exists()


def test_an_entry_that_does_not_read_is_made_again(fresh):
    from minipt2.inductor import cache
    model, x = Net(), torch.randn(4, 8)
    first = step(model, x)
    file, = fresh.glob("*.plan")
    cache.store_bytes(file.name, portable.dumps(("nothing", "of use")))
    same(first, again := step(model, x))
    assert again[2] == 0


def test_a_backward_that_no_process_compiled_yet(fresh):
    model, x = Net(), torch.randn(4, 8)
    minipt2.compile(model)(x)
    assert not list(fresh.glob("*.backward"))
    second = step(model, x)
    assert second[2] == 1 and len(list(fresh.glob("*.backward"))) == 1
    x.requires_grad_(False)
    model.zero_grad()
    outputs = model(x)
    sum(o.square().sum() for o in outputs).backward()
    same(([o.detach() for o in outputs], [p.grad for p in model.parameters()]), second)


def test_two_processes(fresh):
    code = ("import torch, minipt2\nfrom minipt2 import trace\ntorch.manual_seed(0)\nm = torch.nn.Linear(4, 4)\n"
            "l = minipt2.compile(m)(torch.ones(2, 4)).sin().sum(); l.backward()\n"
            "print(trace.counters().get('plans_reused', 0), l.item(), m.weight.grad.sum().item())")
    environment = {**os.environ, "MINIPT2_CACHE_DIR": str(fresh), "OMP_NUM_THREADS": "1"}
    lines = [subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout.split()
             for _ in range(2)]
    assert [line[0] for line in lines] == ["0", "1"] and lines[0][1:] == lines[1][1:]


# ------------------------------------------------------------------ keys
def graph(body=lambda x, y: (x + y * 2,)):
    return fx.symbolic_trace(body)


def key(gm, *inputs):
    return "".join(graph_key.graph_key(gm, inputs))


def test_what_tells_keys_apart():
    x, y = torch.zeros(2, 4), torch.zeros(2, 4)
    gm = graph()
    base = key(gm, x, y)
    assert key(graph(), torch.ones(2, 4), torch.ones(2, 4)) == base
    others = [
        key(graph(lambda x, y: (x + y * 3,)), x, y), key(graph(lambda x, y: (x + y * 2.0,)), x, y),
        key(graph(lambda x, y: (torch.sub(x, y),)), x, y), key(graph(lambda x, y: (torch.add(x, y),)), x, y),
        key(gm, torch.zeros(2, 5), torch.zeros(2, 5)), key(gm, x.double(), y), key(gm, torch.zeros(4, 2).t(), y),
        key(gm, x.clone().requires_grad_(), y), key(gm, torch.nn.Parameter(x.clone()), y), key(gm, torch.zeros(3, 4)[1:], y),
        key(gm, x, x), key(gm, x, x[:]), key(gm, x, 2), key(gm, x, 2.0),
    ]
    with torch.no_grad():
        others.append(key(gm, x, y))
    with torch.autocast("cpu", torch.bfloat16):
        others.append(key(gm, x, y))
    with config.patch(fusion=False):
        others.append(key(gm, x, y))
    torch.set_default_dtype(torch.float64)
    try:
        others.append(key(gm, x, y))
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        others.append(key(gm, x, y))
    finally:
        torch.use_deterministic_algorithms(False)
    next(iter(gm.graph.nodes)).meta["static"] = True
    others.append(key(gm, x, y))
    assert len({base, *others}) == len(others) + 1


def test_constants_are_part_of_the_key_by_content():
    def with_constant(value):
        root = torch.nn.Module()
        root.c = torch.tensor(value)
        g = fx.Graph()
        g.output((g.call_function(torch.add, (g.placeholder("x"), g.get_attr("c"))),))
        return key(fx.GraphModule(root, g), torch.zeros(2))
    assert with_constant([1.0, 2.0]) == with_constant([1.0, 2.0]) != with_constant([1.0, 3.0])


def helper(x):
    return x + 1


@pytest.mark.parametrize("target", [helper, lambda x: x, torch.zeros(2).add, [].append, torch.nn.Linear(2, 2), torch.nn.Linear.forward.__get__(1)])
def test_what_has_no_meaning_elsewhere_has_no_name(target):
    with pytest.raises(portable.NotPortable):
        portable.named(target)


def test_graphs_that_call_the_users_functions_have_no_key():
    g = fx.Graph()
    g.output((g.call_function(helper, (g.placeholder("x"),)),))
    with pytest.raises(portable.NotPortable):
        key(fx.GraphModule(torch.nn.Module(), g), torch.zeros(2))


def test_listeners_see_every_stage():
    model, x = Net(), torch.randn(4, 8)
    step(model, x)
    seen = []
    stop = trace.subscribe(lambda stage, name, payload: seen.append((stage, name)))
    try:
        assert step(model, x)[2] == 0
    finally:
        stop()
    assert ("aot", "joint") in seen


def test_custom_autograd_functions_are_right_each_time():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 5

    class User(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return (Double.apply(self.w * x),)
    model, x = User(), torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = step(model, x), step(model, x)
    same(first, second)
    torch.testing.assert_close(first[1][0], 4 * x * 5)


def test_graphs_survive_the_bytes():
    gm = graph(lambda x, y: (torch.cat([x, y])[1:2],))
    read = portable.loads(portable.dumps(gm))
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(read(x, y), gm(x, y))
    assert stored._key(gm, [x, y]) is not None
