import re

import torch
from torch import nn

import minipt2
from minipt2.course.checks import same
from minipt2.course.programs import generated


def sorts(x):
    """Eager calls whose results are tensors of their own, each read by the next."""
    for k in range(4):
        x = torch.sort(x * 1.5, dim=k % 2)[0]
    return x + 1


def check(fn, *tensors, stride=True):
    """``fn`` compiled computes what it does eagerly; returns the generated module's text."""
    found = []
    with torch.no_grad():
        texts = generated(lambda: found.append(minipt2.compile(fn)(*tensors)), ".py")
        same(found[0], fn(*tensors), stride=stride)
    return texts[0]


def lines_of(text):
    return [line.strip() for line in text.partition("def call(args):")[2].splitlines() if line.strip() and not line.strip().startswith("#")]


def test_results_have_eagers_strides():
    """Transposed, permuted, channels last: made with the layout's strides, not in row order."""
    check(lambda x: x.t() * 2, torch.randn(5, 7))
    check(lambda x: (x.permute(2, 0, 1) + 1, x.sum(0)), torch.randn(3, 4, 5))
    check(lambda x: torch.relu(x) * 3, torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))


def test_nothing_is_dropped_before_its_last_use():
    """A value that is read again further down."""
    def fn(x):
        first = torch.sort(x * 2)[0]
        second = torch.sort(first.cumsum(0))[0]
        return torch.sort(second + first)[0] * first
    check(fn, torch.randn(6, 6))
    check(sorts, torch.randn(5, 6))


def test_everything_is_dropped_at_its_last_use():
    """Each variable but results: a ``del`` stands behind the last line that names it."""
    lines = lines_of(check(sorts, torch.randn(5, 6)))
    made = {m[1] for line in lines if (m := re.match(r"(buf\d+)(?:, _)* = ", line))}
    returned = lines[-1]
    assert returned.startswith("return") and len(made) > 4, lines
    for name in made:
        last = [line for line in lines if re.search(rf"\b{name}\b", line)][-1]
        assert last == returned or last.startswith("del "), f"{name} is named last by {last!r}"


def test_a_chain_needs_two_links():
    """However long it is: one value is made while one is read."""
    def fn(x):
        for _ in range(6):
            x = torch.sort(torch.sort(x)[0], descending=True)[0]
        return x
    there, most = set(), 0
    for line in lines_of(check(fn, torch.randn(16, 16))):
        there |= {m[1] for m in [re.match(r"(buf\d+)(?:, _)* = ", line)] if m}
        if line.startswith("del "):
            there -= set(re.findall(r"\w+", line))
        most = max(most, len(there))
    same(most, 2, where="tensors at a time")


def test_inputs_are_dropped_too():
    """The caller may hold nothing but the list that it gives away."""
    lines = lines_of(check(sorts, torch.randn(5, 6)))
    assert any(re.match(r"del .*\bin0\b", line) for line in lines), lines
    assert not any("in0" in line for line in lines[next(k for k, line in enumerate(lines) if line.startswith("del ")) + 1:]), lines


def test_parameters_are_not():
    """They are the caller's for as long as the model lives: no line is spent on them."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).eval()
    lines = lines_of(check(model, torch.randn(2, 4)))
    assert not any(line.startswith("del") and name in line for line in lines for name in ("in1", "in2")), lines


def test_results_stay():
    """Also one that is read on, and one that is returned twice."""
    def fn(x):
        a = torch.sort(x)[0]
        b = torch.sort(a * 2)[0]
        return a, b, a
    check(fn, torch.randn(4, 4))


def test_made_once():
    """What several kernels fill in turn is one tensor."""
    text = check(lambda x: torch.cat([x * 2, torch.sort(x)[0], x + 1]), torch.randn(3, 5))
    names = re.findall(r"(buf\d+) = empty\(", text)
    same(sorted(names), sorted(set(names)), where="buffers that are made")


def test_views_of_inputs():
    """An eager call of a part of an input that is itself a part of something."""
    base = torch.randn(6, 8)
    check(lambda x: torch.sort(x[1:, 2:])[0], base[2:, 1:])
    check(lambda x: torch.sort(x.t())[0] + 1, base)


def test_views_of_what_lies_in_the_arena():
    """Two layouts of one buffer are two views, each made once."""
    def fn(x):
        a = x * 2
        return torch.sort(a)[0] + torch.sort(a.t())[0].t() + torch.sort(a, 0)[0]
    text = check(fn, torch.randn(5, 5))
    views = re.findall(r"^ +over\(.*# (buf\d+)$", text, re.M)
    assert 1 <= len(views) <= 2 * len(set(views)), text


def test_training():
    """Forward and backward, with what is saved in between."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), torch.randn(2, 3, 6, 6)
    grads = []
    for call in (model, minipt2.compile(model)):
        model.zero_grad()
        call(x).square().mean().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    same(grads[1], grads[0], rtol=1e-4, atol=1e-5)
