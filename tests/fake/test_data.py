"""Operators whose result depends on data: symbols where an environment makes them, with eager's layouts; errors elsewhere."""
from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from minipt2.fake import DataDependent, DynamicShape, FakeMode
from minipt2.shapes import ShapeEnv, value
from minipt2.shapes.relations import solve

aten = torch.ops.aten
PROGRAMS = {
    "nonzero": lambda x: x.nonzero(), "nonzero of a vector": lambda x: x[0, 0].nonzero(), "where": lambda x: torch.where(x > 0),
    "masked_select": lambda x: x.masked_select(x[0] > 0), "mask": lambda x: x[x > 0], "mask in front": lambda x: x[x[:, 0, 0] >= 0],
    "mask within": lambda x: x[:, x[0, :, 0] > 0], "mask and computing": lambda x: (x[x > 0] * 2).float().softmax(0), "joined": lambda x: (a := x[x > 0], b := x[x < 1], torch.cat([a, b])),
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True), "unique alone": lambda x: torch._unique2(x),
    "unique of rows": lambda x: torch.unique(x, dim=2, return_counts=True), "unique_consecutive": lambda x: torch.unique_consecutive(x, return_counts=True),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, x[0, :3, 0], dim=0), "positions times": lambda x: x.argwhere().float() @ torch.ones(3, 2),
    "bincount": lambda x: torch.bincount(x.flatten(), minlength=2), "bincount with weights": lambda x: torch.bincount(x[0, 0], x[0, 0].double()),
    "ctc_loss": lambda x: aten._ctc_loss(x.float(), x[1, :, :3] * 0 + 1, x[0, 0, :4] * 0 + 3, x[0, 0, :4] * 0 + 1),
    "residuals of some rank": lambda x: torch.linalg.lstsq(torch.eye(5, 3) * (x[0, 0, 0] + 1), torch.ones(5, 2), driver="gelsd"),
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
        for n, m in zip(fake.shape, real.shape):
            known.update({s: solve(n.node.expr, s, m, known) for s in n.node.expr.free_symbols - {*known}} if isinstance(n, torch.SymInt) else {})
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


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss", None])
@pytest.mark.parametrize("a, b", [((5, 3), (5, 2)), ((3, 5), (3, 2)), ((4, 4), (4,)), ((2, 5, 3), (2, 5, 2)), ((2, 3, 5), (2, 3, 2)), ((2, 5, 3), (2, 5)),
                                  ((5, 3), (5,)), ((0, 5, 3), (0, 5, 2)), ((5, 0), (5, 2)), ((0, 3), (0, 2)), ((2, 5, 3), (1, 5, 2)), ((3, 2, 4, 3), (3, 2, 4))])
def test_least_squares_by_every_driver(a, b, driver):
    """Where the shape of the residuals depends on ranks, an error; else eager's shapes, strides and dtypes."""
    given, mode = [torch.randn(a, dtype=torch.complex64), torch.randn(b, dtype=torch.complex64)], FakeMode()
    real = torch.linalg.lstsq(*given, driver=driver)
    fakes = [mode.from_tensor(t) for t in given]
    if driver in ("gelsd", "gelss") and a[-2] > a[-1]:
        with mode, pytest.raises(DynamicShape):
            torch.linalg.lstsq(*fakes, driver=driver)
        return
    with mode:
        fake = torch.linalg.lstsq(*fakes, driver=driver)
    for got, want in zip(fake, real, strict=True):
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)


def test_an_answer_about_data_is_a_truth_value():
    x, env, mode = torch.arange(3), ShapeEnv(), FakeMode()
    mode.environment = lambda: env
    with mode:
        answer = (mode.from_tensor(x) > 1).any().item()
    assert isinstance(answer, torch.SymBool) and answer.node.hint is None
