import itertools
import random

import torch

import minipt2
from minipt2.course.checks import same
from minipt2.prims.core import TensorMeta
from minipt2.prims.meta import elementwise_strides


def ours(*xs):
    xs = torch.broadcast_tensors(*xs)
    return elementwise_strides(*map(TensorMeta.of, xs))


def agrees(*xs):
    """With the strides of eager's result, where a stride means something: those of sizes 1 do not."""
    result = [torch.neg, torch.add, torch.addcmul][len(xs) - 1](*xs)
    counts = [n != 1 for n in result.shape]
    same([s for s, c in zip(ours(*xs), counts) if c], [s for s, c in zip(result.stride(), counts) if c], where=" + ".join(f"{tuple(x.shape)}/{x.stride()}" for x in xs))


def test_row_major():
    """Nothing special in, nothing special out."""
    agrees(torch.randn(2, 3, 4))
    agrees(torch.randn(2, 3), torch.randn(2, 3))


def test_channels_last_stays():
    """Of one operand, of both, and with a per-channel one."""
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    agrees(x)
    agrees(x, x.clone(memory_format=torch.preserve_format))
    agrees(x, torch.randn(3, 1, 1))


def test_the_first_operand_decides():
    """Where two layouts compete."""
    x = torch.randn(2, 3, 4, 5)
    y = x.to(memory_format=torch.channels_last)
    agrees(x, y)
    agrees(y, x)


def test_broadcasts_tell_nothing():
    """A stride of 0 is no opinion."""
    column, row = torch.randn(4, 1).expand(4, 3), torch.randn(4, 3).t().contiguous().t()
    agrees(column)
    agrees(column, row)
    agrees(torch.randn(1, 3, 1).expand(2, 3, 4), torch.randn(4, 3, 2).permute(2, 1, 0))


def test_sizes_of_one():
    """Their strides mean nothing."""
    x = torch.randn(3, 4, 1).transpose(0, 2)
    agrees(x)
    agrees(torch.randn(1, 4, 1), torch.randn(1, 4, 1).transpose(0, 2))


def test_gaps_are_closed():
    """A slice is not dense: the result is."""
    agrees(torch.randn(4, 8)[:, ::2])
    agrees(torch.randn(8, 4).t()[:, ::2])


def test_against_eager():
    """Two hundred random pairs of permuted, expanded, sliced operands."""
    rng = random.Random(0)

    def operand(shape):
        perm = list(range(len(shape)))
        rng.shuffle(perm)
        base = torch.empty([shape[d] if rng.random() > 0.2 else 1 for d in perm])
        return base.permute([perm.index(d) for d in range(len(shape))])
    for _ in range(200):
        shape = [rng.choice([1, 2, 3]) for _ in range(rng.choice([2, 3, 4]))]
        agrees(*(operand(shape) for _ in range(rng.choice([1, 2, 3]))))


def test_compiled_outputs_lie_as_in_eager():
    """The whole compiler on your strides."""
    def fn(x, y):
        return x + y, (x * 2).relu(), y - x
    layouts = [torch.contiguous_format, torch.channels_last]
    for a, b in itertools.product(layouts, layouts):
        x, y = (torch.randn(2, 3, 4, 4).to(memory_format=m) for m in (a, b))
        agrees(x, y)
        same(list(minipt2.compile(fn)(x, y)), list(fn(x, y)), stride=True)
