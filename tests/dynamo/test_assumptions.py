"""Branches on data whose one way only raises: captured whole, and eager's exception, state and random numbers where it raises."""
from __future__ import annotations

import copy
import gc
import traceback
import weakref

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, Normal, kl_divergence

import minipt2
from minipt2.dynamo.assumptions import MOST_FAILURES

from tests.compare import assert_same

@pytest.fixture(autouse=True)
def fresh():
    minipt2.reset()


GOOD = torch.tensor([0.5, 1.0, 2.0])
BAD = torch.tensor([0.5, -1.0, 2.0])


def raising_after_not(x):
    y = x.log1p()
    if not (x > 0).all():
        raise ValueError(f"found {x}")
    return y * 2


def asserting(x):
    positive = (x > 0).all()
    assert positive, ("not positive", x.shape)
    return x.sqrt()


def several_conditions(x):
    if (x < 0).any() or x.isnan().any() or x.max() > 100:
        raise ArithmeticError("out of range")
    return x + 1


def joined_conditions(x):
    if not ((x > 0).all() and x.sum() < 50):
        message = " and ".join(["positive", "small"])
        raise RuntimeError(message)
    return x + 1


def reading_numbers(x):
    if int(x.min()) < 0:
        raise IndexError("negative")
    if x.max().item() > 50:
        raise OverflowError("large")
    return x + 1


def in_a_loop(x):
    for part in x.unbind(0):
        if part < 0:
            raise ValueError("a negative part")
        x = x + part
    return x


def _validate(x):
    if (x < 0).any():
        raise KeyError("below")
    return x * 2


def in_a_called_function(x):
    return _validate(x + 0) + 1


def caught_by_the_caller(x):
    try:
        return _validate(x)
    except KeyError:
        return x.abs() - 1


def in_a_with_block(x):
    with torch.no_grad():
        if not (x > 0).all():
            raise ValueError("inside no_grad")
        return x * 3


def functions_of_torch(x):
    torch._assert((x > 0).all(), "torch._assert says no")
    return x.exp()


def with_random_numbers(x):
    noise = torch.rand_like(x)
    if not (x > 0).all():
        raise ValueError("after a draw")
    return x + noise


PROGRAMS = [raising_after_not, asserting, several_conditions, joined_conditions, reading_numbers, in_a_loop, in_a_called_function,
            caught_by_the_caller, in_a_with_block, functions_of_torch, with_random_numbers]


def outcome(fn, *args):
    """Result or exception (type, text, the user's line), and the random number drawn after it."""
    torch.manual_seed(0)
    try:
        found = fn(*args)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        found = type(error), str(error), last.lineno, last.name
    return found, torch.rand(1), torch.is_grad_enabled()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_captured_whole_and_raising_as_eager_does(program, backend):
    fn = minipt2.compile(program, backend=backend, fullgraph=True)
    for x in (GOOD, BAD, GOOD * 2, BAD, GOOD):
        assert_same(outcome(program, x), outcome(fn, x))
    assert minipt2.counters()["breaks"] == 0


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.calls, self.seen = nn.BatchNorm1d(3), 0, []
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        self.total += x.sum(0)
        y = self.norm(x)
        if not (x.sum() > 0):
            raise ValueError(f"call {self.calls}")
        self.calls += 10
        self.total.mul_(2)
        return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_state_is_what_eager_leaves(backend):
    plain = Counter()
    model = copy.deepcopy(plain)
    fn = minipt2.compile(model, backend=backend, fullgraph=True)
    for x in (torch.rand(4, 3), -torch.rand(4, 3), torch.rand(4, 3), -torch.rand(4, 3)):
        assert_same(outcome(plain, x), outcome(fn, x))
        assert (plain.calls, plain.seen) == (model.calls, model.seen)
        assert_same(dict(plain.named_buffers()), dict(model.named_buffers()))


def test_in_inference_mode():
    def program(x):
        x.add_(1)
        if not (x > 0).all():
            raise ValueError(f"found {x}")
        return x * 2

    fn = minipt2.compile(program, backend="eager", fullgraph=True)
    for start in (GOOD, BAD - 1, GOOD):
        with torch.inference_mode():
            left, right = start.clone(), start.clone()
            assert_same((outcome(program, left), left.tolist()), (outcome(fn, right), right.tolist()))


def test_an_assumption_that_keeps_failing_is_given_up():
    fn = minipt2.compile(caught_by_the_caller, backend="eager")
    for k in range(2 * MOST_FAILURES):
        assert_same(caught_by_the_caller(BAD), fn(BAD))
    assert minipt2.counters()["assumptions_failed"] <= 2 * MOST_FAILURES  # in this function and in the one it calls
    assert_same(caught_by_the_caller(GOOD), fn(GOOD))
    before = minipt2.counters()["assumptions_failed"]
    assert_same(caught_by_the_caller(BAD), fn(BAD))
    assert minipt2.counters()["assumptions_failed"] == before


def returning(x):
    if (x > 0).all():
        return x + 1
    return x - 1


def always_raising(x):
    if (x > 0).all():
        raise ValueError("all")
    raise ValueError("not all")


@pytest.mark.parametrize("program", [returning, always_raising])
def test_other_branches_on_data_break_as_before(program):
    fn = minipt2.compile(program, backend="eager")
    for x in (GOOD, BAD):
        assert_same(outcome(program, x), outcome(fn, x))
    assert minipt2.counters()["breaks"] >= 1


def test_a_condition_of_several_elements_is_an_error_as_in_eager():
    def program(x):
        if x > 0:
            raise ValueError
        return x

    fn = minipt2.compile(program, backend="eager")
    assert_same(outcome(program, GOOD), outcome(fn, GOOD))


def test_what_a_failed_call_held_is_freed():
    fn = minipt2.compile(raising_after_not, backend="inductor")
    x = BAD.clone()
    with pytest.raises(ValueError):
        fn(x)
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.mean, self.log_scale, self.decoder = nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(3, 6)

    def forward(self, x, shift):
        h = self.encoder(x)
        posterior = Independent(Normal(self.mean(h), self.log_scale(h).exp() + shift), 1)
        z = posterior.rsample()
        prior = Independent(Normal(torch.zeros_like(z), torch.ones_like(z)), 1)
        likelihood = Bernoulli(logits=self.decoder(z)).log_prob((x > 0).float()).sum(-1)
        return (kl_divergence(posterior, prior) - likelihood).mean()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_distributions_are_validated_in_the_graph(backend):
    plain = VAE()
    model = copy.deepcopy(plain)
    fn = minipt2.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(5, 6)
    for shift in (0.0, 0.5, -50.0, 0.25):
        expected, found = outcome(plain, x, shift), outcome(fn, x, shift)
        assert_same(expected, found)
        if isinstance(expected[0], torch.Tensor):
            expected[0].backward()
            found[0].backward()
    assert_same([p.grad for p in plain.parameters()], [p.grad for p in model.parameters()])
    assert_same(dict(plain.named_buffers()), dict(model.named_buffers()))
    assert minipt2.counters()["breaks"] == 0


def policy(logits, action):
    choice = Categorical(logits=logits)
    return choice.log_prob(action), choice.entropy(), choice.sample()


def test_an_action_outside_the_support():
    fn = minipt2.compile(policy, fullgraph=True)
    logits = torch.randn(4, 3)
    for action in (torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 3]), torch.tensor([2, 2, 2, 2])):
        assert_same(outcome(policy, logits, action), outcome(fn, logits, action))
