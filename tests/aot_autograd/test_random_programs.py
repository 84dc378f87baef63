"""Random programs of views and writes, with gradients: all that eager shows, the functional graph shows too.

A few hundred programs, always the same; ``pytest --hypothesis-profile=thorough`` draws thousands of new ones.
"""
from contextlib import nullcontext

import torch
from hypothesis import event, given
from hypothesis import strategies as st

from minipt2.aot_autograd import aot_eager
from minipt2.config import config
from minipt2.errors import Unsupported

from .lifting import copies, graph_of
from .observing import differences, may_overlap, observe


def dim(x, k):
    return k % x.dim()


VIEWS = {
    "transpose": lambda x, k: x.transpose(dim(x, k), dim(x, k + 1)),
    "select": lambda x, k: x.select(dim(x, k), k % x.shape[dim(x, k)]),
    "narrow": lambda x, k: x.narrow(dim(x, k), k % 2, x.shape[dim(x, k)] - 1),
    "steps": lambda x, k: x[k % 2::2],
    "inner steps": lambda x, k: x[..., ::k % 3 + 1],
    "none and ellipsis": lambda x, k: x[None, ..., k % x.shape[-1]],
    "unsqueeze": lambda x, k: x.unsqueeze(k % (x.dim() + 1)),
    "squeeze": lambda x, k: x.squeeze(),
    "squeeze dim": lambda x, k: x.squeeze(dim(x, k)),
    "flat view": lambda x, k: x.view(-1),
    "reshape": lambda x, k: x.reshape(2, -1),
    "movedim": lambda x, k: x.movedim(0, -1),
    "diagonal": lambda x, k: x.diagonal(k % 3 - 1),
    "split": lambda x, k: x.split([1, x.shape[0] - 1])[k % 2],
    "chunk": lambda x, k: x.chunk(2, dim(x, k))[-1],
    "unbind": lambda x, k: x.unbind(dim(x, k))[-1],
    "as_strided": lambda x, k: x.as_strided((2, 2), (1, k % 3 + 1), k % 2),
    "detach": lambda x, k: x.detach(),
    "expand": lambda x, k: x.expand(2, *x.shape),
    "unfold": lambda x, k: x.unfold(dim(x, k), 2, k % 2 + 1),
    "as complex": lambda x, k: torch.view_as_complex(x.reshape(-1, 2)),
    "as real": lambda x, k: torch.view_as_real(x),
    "real": lambda x, k: x.real,
    "imag": lambda x, k: x.imag,
    "conj": lambda x, k: x.conj(),
}
VALUES = {
    "clone": lambda x, y, k: x.clone(),
    "twice": lambda x, y, k: x * (k + 1),
    "sum of both": lambda x, y, k: x + y.sum(),
    "product": lambda x, y, k: x * y,
    "sin": lambda x, y, k: x.sin(),
}
WRITES = {
    "add_": lambda x, y, k: x.add_(y),
    "add_ alpha": lambda x, y, k: x.add_(y.sum(), alpha=2),
    "mul_": lambda x, y, k: x.mul_(0.5),
    "mul_ tensor": lambda x, y, k: x.mul_(y),
    "sin_": lambda x, y, k: x.sin_(),
    "fill_": lambda x, y, k: x.fill_(k),
    "zero_": lambda x, y, k: x.zero_(),
    "copy_": lambda x, y, k: x.copy_(y),
    "copy_ sum": lambda x, y, k: x.copy_(y.sum() + torch.arange(x.numel()).view(x.shape)),
    "clamp_": lambda x, y, k: x.clamp_(-k, k),
    "masked_fill_": lambda x, y, k: x.masked_fill_(x > 1, k),
    "index_fill_": lambda x, y, k: x.index_fill_(dim(x, k), torch.tensor([0]), k),
    "index_put_": lambda x, y, k: x.index_put_((torch.tensor([0, -1]),), y.sum(), accumulate=bool(k % 2)),
    "index_add_": lambda x, y, k: x.index_add_(0, torch.tensor([0, 0]), torch.stack([x[0] * k, x[-1]])),
    "set item": lambda x, y, k: x.__setitem__(k % x.shape[0], y.sum()),
    "set slice": lambda x, y, k: x.__setitem__((..., slice(k % 2, None, 2)), y.mean()),
    "set mask": lambda x, y, k: x.__setitem__(x > 0, k),
    "set number": lambda x, y, k: x.__setitem__((0,) * x.dim(), k),
    "out": lambda x, y, k: torch.add(x.detach().clone(), 1, out=x),
    "foreach": lambda x, y, k: torch._foreach_add_([x, y], k),
    "lerp_": lambda x, y, k: x.lerp_(x * 2, 0.5),
    "t_": lambda x, y, k: x.clone().t_().mul_(k),
}
COMMON = [*VIEWS, *VALUES, *WRITES, *WRITES]
step = st.tuples(st.sampled_from(COMMON), st.integers(0, 9), st.integers(0, 9), st.integers(0, 5), st.sampled_from([False, False, False, True]))


def applies(name, x, y, k):
    """Whether the operation has a meaning for these shapes (a program skips it otherwise: the same in eager and when traced)."""
    if x.dim() == 0 and name not in ("clone", "twice", "detach", "mul_", "sin_", "add_ alpha", "fill_", "zero_", "unsqueeze", "sum of both"):
        return False
    if x.dim() > 3 and (name in ("unsqueeze", "expand", "unfold", "as real", "none and ellipsis")):
        return False
    if name in ("narrow", "split", "unfold"):
        return x.shape[dim(x, k) if name != "split" else 0] > 1
    if name in ("diagonal", "t_"):
        return x.dim() == 2
    if name in ("reshape", "as complex"):
        return x.numel() % 2 == 0 and (name == "reshape" or not x.is_complex() and x.is_contiguous() and x.storage_offset() % 2 == 0)
    if name == "flat view":
        return x.is_contiguous()
    if name == "as_strided":
        return x.untyped_storage().nbytes() // x.element_size() > x.storage_offset() + 6
    if name in ("as real", "imag", "conj", "real"):
        return x.is_complex() and not x.is_conj() and not x.is_neg()
    if name in ("add_", "mul_ tensor", "copy_", "product"):
        return torch.broadcast_shapes(x.shape, y.shape[-1:]) == x.shape and y.dim() < 2 and (x.is_complex() or not y.is_complex()) \
            if y.shape[-1:] in (x.shape[-1:], (1,), ()) else False
    if name in ("clamp_", "masked_fill_", "set mask"):
        return not x.is_complex()
    if name in ("foreach",):
        return x is not y
    if name in WRITES or name == "sum of both":
        return x.is_complex() or not y.is_complex()
    return True


def program(steps, keep):
    def fn(*inputs):
        values = [*inputs, inputs[0] * 2, torch.zeros(2, 3).t()]
        for name, i, j, k, untracked in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            if x.numel() == 0 or y.numel() == 0 or not applies(name, x, y, k):
                continue
            with torch.no_grad() if untracked else nullcontext():
                if name in VIEWS:
                    values.append(VIEWS[name](x, k))
                elif name in VALUES:
                    values.append(VALUES[name](x, y, k))
                elif not may_overlap(x) and not may_overlap(y):  # writes there are refused, or done in no order
                    WRITES[name](x, y, k)
        return [values[i % len(values)] for i in keep]
    return fn


INPUTS = (torch.arange(12.0).view(3, 4) / 5, torch.arange(4.0) - 1, torch.arange(8.0).view(2, 2, 2) / 3)


@given(st.lists(step, min_size=1, max_size=12), st.lists(st.integers(0, 15), min_size=1, max_size=4),
       st.tuples(*[st.booleans()] * 3), st.booleans())
def test_random_programs_with_gradients(steps, keep, tracked, leaf):
    fn = program(steps, keep)
    inputs = [t.clone().requires_grad_(need) for t, need in zip(INPUTS, tracked)]
    expected = observe(fn, inputs, leaf)
    if "error" in expected:  # what eager refuses (overlapping operands, say) need not be refused where nothing is written in place
        event("refused by eager")
        return
    examples = copies(inputs) if leaf else [t * 1 if t.requires_grad else t for t in copies(inputs)]
    with config.patch(raise_internal_errors=True):
        try:
            run = aot_eager(graph_of(fn, 3), examples)
        except Unsupported as reason:
            event(f"runs eagerly: {reason.code}")
            return
        found = observe(run, inputs, leaf)
    assert not differences(expected, found)
