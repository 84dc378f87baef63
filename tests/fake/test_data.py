"""Operators whose result depends on data: symbols where an environment makes them, with eager's layouts; errors elsewhere."""
from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from minipt2.fake import DataDependent, DynamicShape, FakeMode
from minipt2.shapes import ShapeEnv, value

PROGRAMS = {
    "nonzero": lambda x: x.nonzero(), "nonzero of a vector": lambda x: x[0, 0].nonzero(), "where": lambda x: torch.where(x > 0),
    "masked_select": lambda x: x.masked_select(x[0] > 0), "mask": lambda x: x[x > 0], "mask in front": lambda x: x[x[:, 0, 0] >= 0],
    "mask within": lambda x: x[:, x[0, :, 0] > 0], "mask and computing": lambda x: (x[x > 0] * 2).float().softmax(0), "joined": lambda x: (a := x[x > 0], b := x[x < 1], torch.cat([a, b])),
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True), "unique alone": lambda x: torch._unique2(x),
    "unique of rows": lambda x: torch.unique(x, dim=2, return_counts=True), "unique_consecutive": lambda x: torch.unique_consecutive(x, return_counts=True),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, x[0, :3, 0], dim=0), "positions times": lambda x: x.argwhere().float() @ torch.ones(3, 2),
    "item as a size": lambda x: torch.zeros(x[0, 0, 0].item() + 3), "item of a float": lambda x: x * x.float().mean().item(),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_and_strides_are_eager_s_for_the_sizes_there_are(name):
    torch.manual_seed(0)
    x, env, mode = torch.randint(0, 3, (3, 4, 5)), ShapeEnv(), FakeMode()
    mode.environment = lambda: env
    with mode:
        fakes = tree_leaves(PROGRAMS[name](mode.from_tensor(x)))
    reals = tree_leaves(PROGRAMS[name](x))
    known = {}
    for fake, real in zip(fakes, reals, strict=True):
        known.update({n.node.expr: m for n, m in zip(fake.shape, real.shape) if isinstance(n, torch.SymInt) and n.node.expr.is_Symbol})
        if name != "item as a size":  # a number that nothing here shows
            assert [_number(n, known) for n in (*fake.shape, *fake.stride())] == [*real.shape, *real.stride()]
        assert fake.dtype == real.dtype
    assert not env.guards()


def _number(n, known):
    return value(n.node.expr, known) if isinstance(n, torch.SymInt) else n


def test_sizes_are_bounded_by_what_was_there():
    x, env, mode = torch.arange(6), ShapeEnv(), FakeMode()
    mode.environment = lambda: env
    with mode:
        n = mode.from_tensor(x).nonzero().shape[0]
    assert n >= 0 and n <= 6 and not n > 7


@pytest.mark.parametrize("program, error", [(lambda x: x.sum().item(), DataDependent), (lambda x: x.nonzero(), DynamicShape), (lambda x: x[x > 0], DynamicShape)])
def test_without_an_environment_they_are_errors(program, error):
    x, mode = torch.arange(6), FakeMode()
    with mode, pytest.raises(error):
        program(mode.from_tensor(x))
