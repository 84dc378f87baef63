"""What is told of masks before they are computed is true of them, and enough is told."""
import math

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2.inductor.passes.mask_values import LOST, NEAR, alike, constant, rows

INF = float("inf")


def captured(fn, *args):
    """The node that ``fn`` returns."""
    found = []

    def backend(gm, example_inputs):
        found.append(gm)
        return gm.forward
    minipt2.reset()
    minipt2.compile(fn, backend=backend)(*args)
    return next(n for n in found[-1].graph.nodes if n.op == "output").args[0][0]


def triangle(x):
    return torch.triu(torch.full((x.shape[0], x.shape[0]), -INF, device=x.device), diagonal=1)


CONSTANTS = {
    "triangle": triangle,
    "compared": lambda x: torch.ones(x.shape[0], x.shape[0]).tril() == 0,
    "positions": lambda x: torch.arange(x.shape[0])[None, :] > torch.arange(x.shape[0])[:, None],
    "filled": lambda x: torch.zeros(x.shape[0], x.shape[0]).masked_fill(torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).tril().logical_not(), -INF),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_depends_on_no_input_is_computed(name):
    x = torch.randn(6, 3)
    assert torch.equal(constant(captured(CONSTANTS[name], x)), CONSTANTS[name](x))


def test_what_depends_on_an_input_is_not():
    x = torch.randn(6, 3)
    assert constant(captured(lambda x: torch.triu(x @ x.T), x)) is None
    assert constant(captured(lambda x: torch.rand(6, 6) + 1, x)) is None


def test_sizes_that_vary():
    found = []

    def backend(gm, example_inputs):
        found.append(next(n for n in gm.graph.nodes if n.op == "output").args[0][0])
        return gm.forward
    minipt2.compile(triangle, backend=backend, dynamic=True)(torch.randn(6, 3))
    assert constant(found[0]) is None and rows(found[0]).empty and not rows(found[0]).lost


MASK, TABLE = torch.tensor([[True, False, True], [False, False, False]]), torch.randn(9, 2, requires_grad=True)
PLACES = torch.arange(9).reshape(3, 3)
BIASES = {  # (empty, lost, near) that is told
    "hidden": (lambda m: torch.where(m, 0.0, -INF), (MASK,), (True, False, True)),
    "filled": (lambda m: torch.zeros(2, 3).masked_fill(m, -5.0), (MASK,), (False, False, True)),
    "the least number": (lambda m: torch.where(m, 0.0, torch.finfo(torch.float32).min)[:, None], (MASK,), (False, True, False)),
    "times": (lambda m: (1.0 - m.float()) * -10000.0, (MASK,), (False, False, False)),
    "times the least number": (lambda m: (1.0 - m.float()) * torch.finfo(torch.float32).min, (MASK,), (False, True, False)),
    "in half": (lambda m: ((1.0 - m.float()) * -1e30).half(), (MASK,), (True, False, False)),
    "a table that learns": (lambda t, i: t[i].permute(2, 0, 1).unsqueeze(0), (TABLE, PLACES), (False, False, False)),
    "embedded": (lambda t, i: F.embedding(i, t).permute(2, 0, 1), (TABLE, PLACES), (False, False, False)),
    "a table, and hidden": (lambda t, i: t[i][..., 0] + triangle(i), (TABLE, PLACES), (True, False, False)),
    "anything": (lambda x: x * 2, (torch.randn(3, 3),), (True, True, False)),
    "halves": (lambda x: x * 2, (torch.randn(3, 3).half(),), (True, False, False)),
    "infinite": (lambda m: torch.where(m, 0.0, -INF) * -1.0, (MASK,), (True, True, False)),
    "known": (lambda m: triangle(m), (MASK,), (False, False, True)),
    "known, a row hidden": (lambda m: torch.full((3, 3), -INF), (MASK,), (True, False, True)),
    "known, far": (lambda m: torch.full((3, 3), -1e13), (MASK,), (False, True, False)),
}


@pytest.mark.parametrize("name", BIASES)
def test_rows(name):
    fn, args, told = BIASES[name]
    found = rows(captured(fn, *args))
    assert (found.empty, found.lost, found.near) == told
    top = fn(*args).detach().double().amax(-1)
    finite = top[top > -INF]
    assert found.empty or finite.numel() == top.numel()
    assert found.lost or bool((finite >= LOST).all())
    assert not found.near or bool((finite.abs() <= NEAR).all()) and not math.isnan(float(top.sum()))


PAD = torch.rand(2, 1, 1, 6) > 0.5
SPREAD = {
    "a row": (lambda m: ~m, True),
    "expanded": (lambda m: m.expand(2, 1, 6, 6), True),
    "with all": (lambda m: torch.where(m & (torch.arange(6)[:, None] >= 0), 0.0, -1e9), True),
    "causal too": (lambda m: torch.where(m & torch.ones(6, 6, dtype=torch.bool).tril(), 0.0, -1e9), False),
    "turned": (lambda m: m.expand(2, 1, 6, 6).transpose(-2, -1) & True, False),
    "one sequence": (lambda m: m[0, 0, 0].float(), True),
    "queries": (lambda m: m.float().transpose(-2, -1) + m, False),
}


@pytest.mark.parametrize("name", SPREAD)
def test_masks_alike_for_all_queries(name):
    fn, told = SPREAD[name]
    assert alike(captured(fn, PAD)) == told
    value = fn(PAD)
    assert not told or value.ndim < 2 or bool((value == value[..., :1, :]).all())


def filled_in_place(x):
    mask = torch.zeros(6, 6)
    mask.masked_fill_(torch.ones(6, 6).tril() == 0, -INF)
    return mask


def set_in_a_view(x):
    mask = torch.zeros(6, 6)
    mask[2:].view(-1)[3] = -1e30
    return mask


def added_in_place(x):
    mask = torch.zeros(6, 6)
    mask += x @ x.T
    return mask


def set_on_the_diagonal(x):
    mask = torch.full((6, 6), -INF)
    mask.diagonal().fill_(0)
    return mask


@pytest.mark.parametrize("fn", [filled_in_place, set_in_a_view, added_in_place, set_on_the_diagonal])
def test_what_is_written_into_is_not_what_it_was_made_as(fn):
    node = captured(fn, torch.randn(6, 3))
    assert constant(node) is None and rows(node).lost and rows(node).empty and not alike(node)
