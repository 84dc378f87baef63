"""Strides of elementwise results and of views, against eager."""
import pytest
import torch
from hypothesis import given, settings, strategies as st

from minipt2.prims import TensorMeta
from minipt2.prims.meta import contiguous_strides, elementwise_strides, is_channels_last, is_dense, same_layout, view_strides


def strides_like_eager(*xs):
    out = xs[0]
    for x in xs[1:]:
        out = out + x
    return (out if len(xs) > 1 else torch.neg(out)).stride()


@st.composite
def layouts(draw, shape):
    """A tensor of ``shape`` with permuted, expanded or sliced memory."""
    order = draw(st.permutations(range(len(shape))))
    full = [shape[d] * draw(st.sampled_from([1, 1, 2])) if shape[d] > 1 else shape[d] for d in order]
    x = torch.zeros(full)
    x = x[tuple(slice(0, None, full[i] // shape[d] if shape[d] else 1) for i, d in enumerate(order))]
    x = x.permute([order.index(d) for d in range(len(shape))])
    broadcast = [1 if draw(st.sampled_from([False, False, False, True])) else n for n in shape]
    return x[tuple(slice(0, n) for n in broadcast)].expand(shape)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_elementwise_strides(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=5))
    xs = [data.draw(layouts(shape)) for _ in range(data.draw(st.integers(1, 2)))]
    ours = elementwise_strides(*[TensorMeta.of(x) for x in xs])
    assert same_layout(tuple(shape), ours, strides_like_eager(*xs))


def test_channels_last_passes_through_and_first_operand_decides():
    last = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    bias = torch.zeros(3, 1, 1).expand(2, 3, 4, 5)
    rows = torch.zeros(2, 3, 4, 5)
    for xs in [(last,), (last, bias), (bias, last), (rows, last), (last, rows)]:
        assert elementwise_strides(*[TensorMeta.of(x) for x in xs]) == strides_like_eager(*xs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_view_strides(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=4))
    x = data.draw(layouts(shape))
    new, rest = [], x.numel()
    while rest > 1 and len(new) < 5:
        n = data.draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        new.append(n)
        rest //= n
    new.append(rest)
    ours = view_strides(tuple(shape), x.stride(), tuple(new))
    try:
        eager = x.view(new).stride()
    except RuntimeError:
        assert ours is None
    else:
        assert ours is not None and same_layout(tuple(new), ours, eager)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 1), (2, 3, 1, 1)])
def test_channels_last_recognised(shape):
    for x in (torch.zeros(shape), torch.zeros(shape).to(memory_format=torch.channels_last)):
        assert is_channels_last(shape, x.stride()) == (torch._prims_common.suggest_memory_format(x) is torch.channels_last)


def test_dense():
    assert is_dense((2, 3), (1, 2)) and is_dense((2, 1, 3), (3, 77, 1)) and is_dense((2, 0), (1, 1))
    assert not is_dense((2, 3), (4, 1)) and not is_dense((2, 3), (0, 1))
    assert contiguous_strides((2, 0, 3)) == torch.zeros(2, 0, 3).stride()
