import itertools
import math
import random

import torch
from torch import fx

import minipt2
from minipt2.aot_autograd.partition import backward_nodes, min_cut, needed_from_forward, split
from minipt2.aot_autograd.trace import trace_joint
from minipt2.course.checks import same
from minipt2.prims.kinds import kind


def joint_graph(rng, forward=6, backward=4):
    """A random joint graph; each node has a price for saving and one for running it again."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{k}") for k in range(2)]
    price = {n: rng.choice([1, 2, 4, 8]) for n in nodes}
    again = {}
    for k in range(forward):
        args = rng.sample(nodes, min(len(nodes), rng.choice([1, 2])))
        node = graph.call_function(torch.add, tuple(args))
        price[node], again[node] = rng.choice([1, 2, 4, 8]), rng.choice([0.0, 0.5, 1.5, math.inf])
        nodes.append(node)
    tangent = graph.placeholder("tangent")
    tangent.meta["tangent"] = True
    grads = [tangent]
    for k in range(backward):
        grads.append(graph.call_function(torch.mul, (rng.choice(grads), rng.choice(nodes))))
    graph.output(((nodes[-1],), (grads[-1],)))
    return fx.GraphModule({}, graph), price, again


def total(joint, saved, price, again):
    """What a set costs: saved nodes, and each node that is run again; infinite if it does not suffice."""
    cost, pending, seen = sum(price[n] for n in saved), [n for n in needed_from_forward(joint, backward_nodes(joint)) if n not in saved], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        cost += math.inf if node.op == "placeholder" else again[node]
        if cost == math.inf:
            return cost
        pending += [a for a in node.all_input_nodes if a not in saved]
    return cost


def test_brute_force():
    """On forty small graphs no set is cheaper than yours."""
    rng = random.Random(7)
    for number in range(40):
        joint, price, again = joint_graph(rng)
        candidates = list(price)
        best = min(total(joint, set(chosen), price, again)
                   for size in range(len(candidates) + 1) for chosen in itertools.combinations(candidates, size))
        found = min_cut(joint, price.__getitem__, lambda n: again[n])
        same(float(total(joint, found, price, again)), float(best), where=f"price of what is saved in graph {number}")


def test_a_value_read_twice_is_saved_once():
    """Its price counts once however many backward nodes read it."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    wide, narrow = graph.call_function(torch.exp, (x,)), None
    narrow = graph.call_function(torch.sin, (wide,))
    parts = [graph.call_function(torch.cos, (narrow,)) for _ in range(3)]
    tangent = graph.placeholder("t")
    tangent.meta["tangent"] = True
    grads = tuple(graph.call_function(torch.mul, (tangent, p)) for p in parts)
    graph.output(((parts[0],), grads))
    price = {x: 100, wide: 100, narrow: 2, **{p: 1 for p in parts}}
    found = min_cut(fx.GraphModule({}, graph), price.__getitem__, lambda n: 0.0)
    same({n.name for n in found}, {narrow.name})


def test_never_computes_a_contraction_again():
    """Matrix products of a real joint graph are saved, or not needed; pointwise work may be done twice."""
    w = torch.randn(8, 8, requires_grad=True)
    joint = trace_joint(lambda x, w: torch.relu(torch.relu(x @ w) @ w).sum(), [torch.randn(4, 8), w])
    saved = min_cut(joint, lambda n: float(n.meta["val"].numel()))
    _, backward = split(joint, saved)
    forward_products = sum(kind(n) == "contraction" for n in joint.graph.nodes if n.op == "call_function" and n not in backward_nodes(joint))
    in_backward = sum(kind(n) == "contraction" for n in backward.graph.nodes if n.op == "call_function")
    same(forward_products, 2)
    same(in_backward, sum(kind(n) == "contraction" for n in backward_nodes(joint) if n.op == "call_function"))


def test_trains_a_resnet():
    """The whole compiler on your cut: gradients of a small ResNet equal eager's."""
    torch.manual_seed(0)
    model, inputs = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)), torch.randn(2, 3, 8, 8)
    model(inputs).square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    minipt2.compile(model, backend="aot_eager")(inputs).square().sum().backward()
    same([p.grad for p in model.parameters()], expected, rtol=1e-4, atol=1e-5)
