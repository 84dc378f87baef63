"""The cut: cheapest by brute force, valid whatever is saved, never repeating what must not run twice."""
import itertools
import math
import random
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import minipt2
from minipt2 import prims
from minipt2.aot_autograd import min_cut, split, trace_joint
from minipt2.aot_autograd.budget import flops, within, work
from minipt2.aot_autograd.functionalize import functionalize
from minipt2.aot_autograd.partition import (backward_nodes, choose_saved, default_cost, default_recompute, nbytes, needed_from_forward, partition,
                                            recompute_nothing_dear)
from minipt2.aot_autograd.simplify import simplify

from .lifting import lift
from .test_modules import Attention, Dropped


def joint_of(fn, *primals):
    joint = trace_joint(fn, primals)
    functionalize(joint.graph)
    simplify(joint.graph)
    joint.recompile()
    return joint


def random_program(seed):
    choose = random.Random(seed)

    def fn(a, b):
        values = [a, b]
        for _ in range(7):
            x, y = choose.choice(values), choose.choice(values)
            values.append(choose.choice([
                lambda: x * y, lambda: x.sin(), lambda: x.exp(), lambda: x + y, lambda: x.t() * y, lambda: x @ y, lambda: x.softmax(0)])())
        return values[-1], values[-2].sum()
    return fn


def sufficient(joint, saved):
    """Whether the backward can run from ``saved``: nothing that must not run twice is missing, and no input either."""
    backward = backward_nodes(joint)
    pending = needed_from_forward(joint, backward)
    while pending:
        node = pending.pop()
        if node in saved:
            continue
        if node.op == "placeholder" or math.isinf(recompute_nothing_dear(node)):
            return False
        pending.extend(node.all_input_nodes)
    return True


@pytest.mark.parametrize("seed", range(40))
def test_min_cut_against_brute_force(seed):
    joint = joint_of(random_program(seed), *torch.randn(2, 3, 3).requires_grad_().unbind(0))
    pricing = random.Random(seed)
    prices = {n: float(pricing.randint(1, 6)) for n in joint.graph.nodes}
    cost = lambda n: math.inf if math.isinf(nbytes(n)) else prices[n]  # noqa: E731
    saved = min_cut(joint, cost)
    assert sufficient(joint, saved)
    backward = backward_nodes(joint)
    candidates = [n for n in joint.graph.nodes if n not in backward and n.op != "output" and not math.isinf(cost(n))]
    best = min(sum(map(cost, subset)) for size in range(len(saved) + 1) for subset in itertools.combinations(candidates, size)
               if sum(map(cost, subset)) <= sum(map(cost, saved)) and sufficient(joint, set(subset)))
    assert sum(map(cost, saved)) == best


@pytest.mark.parametrize("seed", range(12))
def test_any_sufficient_set_gives_the_same_gradients(seed):
    primals = [torch.randn(3, 3, requires_grad=True) for _ in range(2)]
    joint = joint_of(random_program(seed), *primals)
    tangents = [torch.ones(t.meta["val"].shape) for t in joint.graph.nodes if t.meta.get("tangent")]
    outs, grads = joint(*primals, *tangents)
    backward = backward_nodes(joint)
    candidates = [n for n in joint.graph.nodes if n not in backward and n.op not in ("output", "get_attr") and not math.isinf(nbytes(n))]
    for saved in (set(candidates), set(needed_from_forward(joint, backward)), min_cut(joint, nbytes)):
        if not sufficient(joint, saved):
            continue
        forward, back = split(joint, saved)
        results = forward(*primals)
        torch.testing.assert_close(results[:len(outs)], outs)
        torch.testing.assert_close(back(*results[len(outs):], *tangents), grads)


def test_dear_and_random_operators_run_once():
    module = Attention(True)
    gm, state, _ = lift(module)
    joint = joint_of(gm, *state, torch.randn(2, 6, 16))
    _, backward = partition(joint)
    contractions = [n for n in backward.graph.nodes if n.op == "call_function" and prims.kind(n) == "contraction"]
    assert len(contractions) == 2 * 6, "two per matrix product of the forward, none of them again"
    gm, state, _ = lift(Dropped())
    _, backward = partition(joint_of(gm, *state, torch.randn(4, 8)))
    assert not [n for n in backward.graph.nodes if n.op == "call_function" and prims.kind(n) == "random"]


def test_dropout_masks_are_saved_as_booleans():
    joint = joint_of(lambda t: nn.functional.dropout(t, 0.5, True), torch.randn(8, 8, requires_grad=True))
    saved = min_cut(joint, default_cost(prims.kind), default_recompute(prims.kind))
    assert [n.meta["val"].dtype for n in saved] == [torch.bool]


def test_long_chains_are_not_recomputed():
    def fn(a, w):
        x = a
        for _ in range(40):
            x = x * 1.5 + x.relu()
        return x @ w
    joint = joint_of(fn, torch.randn(8, 8), torch.randn(8, 8, requires_grad=True))
    saved = min_cut(joint, default_cost(prims.kind), default_recompute(prims.kind))
    assert all(n.op == "call_function" for n in saved)


def test_recomputation_stands_where_it_is_needed():
    def fn(a):
        for _ in range(3):
            a = a.softmax(0).exp() * 2
        return a
    _, backward = partition(joint_of(fn, torch.randn(4, 4, requires_grad=True)))
    nodes = [n for n in backward.graph.nodes if n.op == "call_function"]
    for node in nodes:
        if not any(a in nodes for a in node.all_input_nodes):
            assert min(nodes.index(u) for u in node.users if u in nodes) - nodes.index(node) <= 3


def test_saved_bytes_of_a_transformer_block():
    module = Attention(True)
    gm, state, _ = lift(module)
    x = torch.randn(2, 8, 16)
    storages = {}

    def pack(t):
        storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        module(x)
    own = {t.untyped_storage().data_ptr() for t in [*state, x]}
    eager = sum(b for p, b in storages.items() if p not in own)
    joint = prims.expand(joint_of(gm, *state, x))
    saved = min_cut(joint, default_cost(prims.kind), default_recompute(prims.kind))
    assert sum(nbytes(n) for n in saved if n.op != "placeholder") <= 0.75 * eager


class Block(nn.Module):
    def __init__(self, n=16):
        super().__init__()
        self.norm, self.up, self.down, self.drop = nn.LayerNorm(n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Stack(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way, self.blocks = way, nn.Sequential(*(Block() for _ in range(4)))

    def forward(self, x):
        if self.way == "segments":
            return checkpoint_sequential(self.blocks, 2, x, use_reentrant=False)
        for block in self.blocks:
            x = block(x) if self.way == "plain" else checkpoint(block, x, use_reentrant=self.way == "reentrant")
        return x


def step(call, module):
    """Bytes saved by a forward in storages that are neither parameters nor the input, and the gradients."""
    torch.manual_seed(1)
    x = torch.randn(8, 16, requires_grad=True)
    own = {t.untyped_storage().data_ptr() for t in [*module.parameters(), x]}
    kept = {}

    def pack(t):
        kept[t.untyped_storage().data_ptr()] = t
        return t
    module.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = call(x)
    out.square().sum().backward()
    saved = sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in own)
    return saved, [x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("way", ["reentrant", "not reentrant", "segments"])
def test_checkpoints_save_what_their_regions_hand_on(way):
    torch.manual_seed(0)
    plain, module = Stack("plain"), Stack(way)
    module.load_state_dict(plain.state_dict())
    everything, expected = step(plain, plain)
    minipt2.reset()
    saved, found = step(minipt2.compile(module, fullgraph=True, backend="inductor"), module)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    between = {"segments": 1, "reentrant": 3, "not reentrant": 3}[way] * 8 * 16 * 4
    masks = 4 * 8 * 16  # random numbers are not drawn again
    last = everything / 2 if way == "segments" else 0  # the last segment is none, in eager either
    assert saved <= between + masks + last


def test_a_policy_of_the_users_is_left_to_the_partitioner():
    def fn(x):
        contexts = lambda: (nullcontext(), nullcontext())  # noqa: E731
        return checkpoint(lambda t: (t @ t).sin().exp(), x, use_reentrant=False, context_fn=contexts)
    x = torch.randn(4, 4, requires_grad=True)
    expected = torch.autograd.grad(fn(x).sum(), x)
    torch.testing.assert_close(torch.autograd.grad(minipt2.compile(fn, backend="aot_eager", fullgraph=True)(x).sum(), x), expected)


def saved_bytes(joint, saved):
    return sum(nbytes(n) for n in saved if n.op != "placeholder")


def test_memory_budget():
    """Less budget, less saved, more work; the plan of budget 1 is the default one, and all of them give the same gradients."""
    torch.manual_seed(0)
    module = Stack("plain")
    gm, state, _ = lift(module)
    joint = prims.expand(joint_of(gm, *state, torch.randn(8, 16)))
    prices = default_cost(prims.kind), default_recompute(prims.kind)
    effort = work(prims.kind, prices[1])
    curve = []
    for budget in (1, 0.75, 0.5, 0.25, 0):
        saved = within(joint, budget, prims.kind, *prices)
        _, backward = split(joint, saved)
        curve.append((saved_bytes(joint, saved), sum(effort(n) for n in backward.graph.nodes if math.isfinite(effort(n)))))
        assert not [n for n in backward.graph.nodes if n.op == "call_function" and prims.kind(n) == "random"]
    bytes_saved, again = zip(*curve)
    assert list(bytes_saved) == sorted(bytes_saved, reverse=True) and list(again) == sorted(again)
    assert within(joint, 1, prims.kind, *prices) == min_cut(joint, *prices)
    assert bytes_saved[-1] <= 4 * 8 * 16 and bytes_saved[2] <= bytes_saved[-1] + 0.5 * (bytes_saved[0] - bytes_saved[-1])
    assert len(set(bytes_saved)) == len(bytes_saved)


@pytest.mark.parametrize("budget", [0, 0.5])
def test_memory_budget_as_an_option(budget):
    module = Stack("plain")
    everything, expected = step(module, module)
    saved, found = step(minipt2.compile(module, fullgraph=True, options={"memory_budget": budget}), module)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert saved <= (0.05 + 0.7 * budget) * everything


def test_flops():
    joint = joint_of(lambda a, b, w: (torch.conv2d(a, w), torch.addmm(b, b, b.t())), torch.randn(2, 3, 8, 8), torch.randn(5, 5, requires_grad=True),
                     torch.randn(4, 3, 3, 3))
    found = {n.target: flops(n) for n in joint.graph.nodes if n.op == "call_function" and prims.kind(n) == "contraction"}
    assert found[torch.ops.aten.convolution.default] == 2 * (2 * 4 * 6 * 6) * 3 * 9
    assert found[torch.ops.aten.addmm.default] == 2 * 5 * 5 * 5


def test_on_a_gpu_what_contractions_read_is_saved():
    """There the relu between two layers, written once by the forward, is not computed again; on a CPU it is, from what it is made of."""
    def saved_names(device):
        joint = prims.expand(joint_of(*lift_layers()))
        for n in joint.graph.nodes:
            if isinstance(n.meta.get("val"), prims.TensorMeta):
                n.meta["val"].device = torch.device(device)
        return {getattr(n.target, "name", n.op) for n in choose_saved(joint)}

    def lift_layers():
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        gm, state, _ = lift(layers)
        return gm, *state, torch.randn(64, 16)
    assert "relu" not in saved_names("cpu") and "relu" in saved_names("cuda")
