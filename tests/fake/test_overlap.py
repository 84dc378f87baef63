"""Writes that eager refuses for the memory of their operands are refused of fake tensors too, with eager's words; all others are not."""
from __future__ import annotations

import pytest
import torch

import minipt2
from minipt2.fake import FakeMode

from ..compare import assert_same

WRITES = {
    "add_": lambda t, s, at: t.add_(s), "copy_": lambda t, s, at: t.copy_(s), "cumsum_": lambda t, s, at: t.cumsum_(0), "normal_": lambda t, s, at: t.normal_(),
    "zero_": lambda t, s, at: t.zero_(), "masked_fill_": lambda t, s, at: t.masked_fill_(at > 0, 1.0),
    "index_put_": lambda t, s, at: t.index_put_((at,), s), "setitem": lambda t, s, at: t.__setitem__(at, s),
    "index_copy_": lambda t, s, at: t.index_copy_(0, at, s), "index_add_": lambda t, s, at: t.index_add_(0, at, s),
    "index_reduce_": lambda t, s, at: t.index_reduce_(0, at, s, "prod"), "put_": lambda t, s, at: t.put_(at, s),
    "scatter_": lambda t, s, at: t.scatter_(0, at, s), "scatter_add_": lambda t, s, at: t.scatter_add_(0, at, s),
    "scatter_reduce_": lambda t, s, at: t.scatter_reduce_(0, at, s, "sum"),
    "_foreach_add_": lambda t, s, at: torch._foreach_add_([t], [s]), "_foreach_addcmul_": lambda t, s, at: torch._foreach_addcmul_([t], [s], [s], 1.0),
    "_foreach_lerp_": lambda t, s, at: torch._foreach_lerp_([t], [s], [s]), "_foreach_copy_": lambda t, s, at: torch._foreach_copy_([t], [s]),
    "_foreach_mul_ by a tensor": lambda t, s, at: torch._foreach_mul_([t], s.sum()),
}  # fmt: skip
OPERANDS = {
    "the same": lambda x: (x[:3], x[:3]), "some of it": lambda x: (x[:3], x[1:4]), "apart": lambda x: (x[:3], x[6:9]), "in steps": lambda x: (x[:6:2], x[1:7:2]),
    "written twice": lambda x: (x[:1].expand(3), x[6:9]), "of size 0": lambda x: (x[:1].expand(3)[:0], x[:0]),
}  # fmt: skip


@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.filterwarnings("ignore")
def test_what_eager_refuses_is_refused(write, operands):
    x, at, mode = torch.arange(12.0), torch.arange(3), FakeMode()
    fakes = mode.from_tensor(x), mode.from_tensor(at)
    real = _refusal(write, operands, x, at)
    with mode:
        fake = _refusal(write, operands, *fakes)
    assert fake == real


def _refusal(write, operands, x, at):
    target, source = OPERANDS[operands](x)
    try:
        WRITES[write](target, source, at[:target.shape[0]])
    except RuntimeError as error:
        return str(error).split("memory location.")[0]
    return None


def test_a_compiled_program_raises_what_eager_raises(fresh):
    def fn(x):
        y = x.sum().expand(3)
        return y.add_(1)

    for run in (fn, minipt2.compile(fn, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            run(torch.randn(4))


SIZED = {  # of a matrix of n x 4
    "a row, n times": lambda x: (x[0].expand(x.shape[0], 4), x),
    "a column, n times": lambda x: (x[:, :1].expand(x.shape[0], x.shape[0]), x[:, 1:2].expand(x.shape[0], x.shape[0])),
    "shifted": lambda x: (x[1:], x[:-1]), "shifted by all but one": lambda x: (x[x.shape[0] - 1:], x[:1]), "the same": lambda x: (x[1:], x[1:]),
    "transposed": lambda x: (x[:4], x[:4].t()), "halves": lambda x: (x[:2], x[2:4]),
}  # fmt: skip


@pytest.mark.parametrize("operands", SIZED)
@pytest.mark.parametrize("write", ["add_", "copy_", "index_copy_"])
def test_symbolic_sizes_are_refused_as_known_ones_are(operands, write, fresh):
    """And where eager writes, so does one compilation for all sizes."""
    def fn(x):
        target, source = SIZED[operands](x)
        if write == "index_copy_":
            target.index_copy_(0, torch.arange(source.shape[0]), source)
        else:
            getattr(target, write)(source)
        return x

    compiled = minipt2.compile(fn, backend="aot_eager", dynamic=True)
    for n in (6, 9, 5, 4):
        x = torch.arange(4.0 * n).view(n, 4)
        outcomes = []
        for run in (fn, compiled):
            try:
                outcomes.append(run(x.clone()))
            except RuntimeError as error:
                outcomes.append(str(error).split(" Please")[0])
        assert_same(*outcomes)
