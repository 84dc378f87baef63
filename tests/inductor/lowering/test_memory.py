import pytest
import torch

from minipt2 import prims as p

from ..programs import check, loops


def test_cat():
    x, y = torch.randn(2, 3), torch.randn(2, 4)
    program = check(lambda x, y: p.cat((p.exp(x), y, p.neg(y)), 1), x, y)
    assert len(loops(program)) == 3  # computed straight into their places
    check(lambda x, y: p.mul(p.cat((x, y), 1), 2.0), x, y)
    check(lambda x: p.cat((x, p.slice(x, (0, 0), (1, 3), (1, 1))), 0), x)
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x: p.cat((x, p.exp(x)), 1), image)


def test_pad():
    x = torch.randn(3, 4)
    check(lambda x: p.pad(x, (1, 0), (0, 2), 0.0), x)
    check(lambda x: p.sum(p.pad(p.exp(x), (1, 2), (3, 0), -1.0), (0,)), x)
    check(lambda x: p.pad(x, (-1, 2), (1, -2), 5.0), x)
    check(lambda x: p.pad(x, (-1, 0), (0, -2), 5.0), x)
    check(lambda x: p.pad(p.reshape(p.pad(x, (0, 1), (0, 1), 0.0), (18,)), (2,), (2,), 1.0), x)
    check(lambda x: p.pad(x, (1, 1), (0, 0), 2.0), torch.randn(0, 3))
    check(lambda x: p.pad(x, (1, 1), (0, 0), True), x > 0)


def test_copy_strided():
    x = torch.randn(3, 4)
    program = check(lambda x: p.copy_strided(x, (1, 3)), x)
    assert len(loops(program)) == 1
    assert len(loops(check(lambda x: p.copy_strided(x, (4, 1)), x))) == 1  # a clone is memory of its own
    assert not loops(check(lambda x, w: p.mm(p.copy_strided(x, (4, 1)), w), x, torch.randn(4, 2)))
    check(lambda x: p.exp(p.copy_strided(p.permute(x, (1, 0)), (3, 1))), x)


def test_outputs():
    x = torch.randn(3, 4)
    check(lambda x: (x, p.exp(x), p.exp(x)), x)
    check(lambda x: (p.slice(p.exp(x), (0, 0), (3, 2), (1, 1)), p.broadcast_in_dim(p.exp(x), (2, 3, 4), (1, 2))), x)


def test_mutated_inputs():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    program = check(lambda x, y: (p.add(x, y), p.mul(x, 2.0)), x, y, mutated={0: 0})
    assert program.outputs[0].ref.buffer == "in0"
    check(lambda x, y: (p.add(y, 0.5), p.add(x, 0.5)), x, y, mutated={0: 0, 1: 1})  # a swap
    check(lambda x, y: (p.flip(x, (1,)), p.exp(y)), x, y, mutated={0: 0})
    check(lambda x, y: (p.add(x, y), x), x, y, mutated={0: 0})
    check(lambda x, y: (p.sum(y, (0,)), p.exp(y)), torch.randn(4), y, mutated={0: 0})
    check(lambda x, y: (p.permute(p.add(p.permute(x, (1, 0)), 1.0), (1, 0)), p.add(x, y)), x, y, mutated={0: 0, 1: 1})


def test_running_statistics():
    def fn(x, running):
        mean = p.var_mean(x, (0, 2, 3), 0, False)[1]
        centred = p.sub(x, p.broadcast_in_dim(mean, x.shape, (1,)))
        return p.add(p.mul(running, 0.9), p.mul(mean, 0.1)), centred
    check(fn, torch.randn(2, 3, 4, 4), torch.randn(3), mutated={0: 1})


@pytest.mark.parametrize("strides", [(0, 1), (0, 0)])
def test_expanded_input_is_not_written(strides):
    from minipt2.inductor.lowering import lower
    from ..programs import graph_of
    x = torch.randn(4).as_strided((3, 4), strides)
    gm = graph_of(lambda x: p.add(x, 1.0), x)
    gm.meta["mutated_inputs"] = {0: 0}
    assert lower(gm).outputs[0].ref.buffer != "in0"


def test_a_value_in_more_bits_is_kept_in_few():
    """What two kernels read is stored once: as bfloat16, or as a mask, where float32 only repeats it."""
    x, y = torch.randn(64, 32, dtype=torch.bfloat16), torch.randn(64, 32, dtype=torch.bfloat16)

    def gradient(x, y):
        wide = p.convert(p.exp(x), torch.float32)
        return p.sum(wide, (0,)), p.sum(p.mul(wide, wide), (1,))

    def mask(x, y):
        wide = p.convert(p.lt(p.exp(p.convert(x, torch.float32)), p.exp(p.convert(y, torch.float32))), torch.float32)
        return p.sum(wide, (0,)), p.sum(p.mul(wide, p.convert(x, torch.float32)), (1,))
    for fn, dtype in ((gradient, torch.bfloat16), (mask, torch.bool)):
        stored = [b.layout.dtype for b in check(fn, x, y).buffers if b.layout.sizes == (64, 32)]
        assert stored == [dtype]
