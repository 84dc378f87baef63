"""Operands of unlike dtypes that eager's kernels refuse are refused of fake tensors too, and no others."""
from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2.fake import FakeMode

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
ONE, AT = torch.tensor([0]), torch.tensor([[0, 1]])
CALLS = {
    "mm": lambda a, b: torch.mm(a(3, 3), b(3, 3)), "bmm": lambda a, b: torch.bmm(a(2, 3, 3), b(2, 3, 3)), "mv": lambda a, b: torch.mv(a(3, 3), b(3)),
    "dot": lambda a, b: torch.dot(a(3), b(3)), "vdot": lambda a, b: torch.vdot(a(3), b(3)), "addmm of a bias": lambda a, b: torch.addmm(a(3), b(3, 3), b(3, 3)),
    "addmm": lambda a, b: torch.addmm(a(3), a(3, 3), b(3, 3)), "addmv": lambda a, b: torch.addmv(a(3), b(3, 3), b(3)),
    "baddbmm": lambda a, b: torch.baddbmm(a(2, 3, 3), b(2, 3, 3), b(2, 3, 3)), "addbmm": lambda a, b: torch.addbmm(a(3, 3), b(2, 3, 3), b(2, 3, 3)),
    "linear": lambda a, b: F.linear(a(2, 3), b(3, 3), b(3)), "linear in 3 dimensions": lambda a, b: F.linear(a(2, 2, 3), b(3, 3)),
    "convolution": lambda a, b: F.conv2d(a(1, 3, 5, 5), b(2, 3, 3, 3)), "convolution's bias": lambda a, b: F.conv1d(a(1, 3, 5), a(2, 3, 3), b(2)),
    "transposed convolution": lambda a, b: F.conv_transpose2d(a(1, 3, 5, 5), b(3, 2, 3, 3)),
    "batch norm": lambda a, b: F.batch_norm(a(2, 3), b(3), b(3)), "batch norm, training": lambda a, b: F.batch_norm(a(2, 3), b(3), b(3), training=True),
    "batch norm's weight": lambda a, b: F.batch_norm(a(2, 3), a(3), a(3), b(3), b(3)), "layer norm": lambda a, b: F.layer_norm(a(2, 3), (3,), b(3), b(3)),
    "group norm": lambda a, b: F.group_norm(a(2, 4, 3), 2, b(4), b(4)), "instance norm": lambda a, b: F.instance_norm(a(2, 4, 3), weight=b(4)),
    "index_put": lambda a, b: a(3).index_put((ONE,), b(1)), "index_add": lambda a, b: a(3).index_add(0, ONE, b(1)),
    "index_copy_": lambda a, b: a(3).index_copy_(0, ONE, b(1)), "grid_sample": lambda a, b: F.grid_sample(a(1, 1, 3, 3), b(1, 2, 2, 2), align_corners=False),
    "embedding_bag": lambda a, b: F.embedding_bag(AT, a(3, 3), per_sample_weights=b(1, 2), mode="sum"), "cross": lambda a, b: torch.cross(a(3, 3), b(3, 3), dim=1),
    "binary cross entropy": lambda a, b: F.binary_cross_entropy(a(3), b(3)), "nll's weight": lambda a, b: F.nll_loss(a(3, 3), torch.tensor([0, 1, 2]), b(3)),
    "heaviside": lambda a, b: torch.heaviside(a(3), b(3)), "prelu": lambda a, b: F.prelu(a(2, 3), b(3)), "add": lambda a, b: a(3) + b(3), "cat": lambda a, b: torch.cat([a(3), b(3)]),
    "where": lambda a, b: torch.where(a(3) > 0, a(3), b(3)), "rms norm": lambda a, b: F.rms_norm(a(2, 3), (3,), b(3)),
}  # fmt: skip


@pytest.mark.parametrize("pair", itertools.product(DTYPES, repeat=2), ids=lambda pair: " and ".join(str(d)[6:] for d in pair))
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_unlike_dtypes_are_refused_where_eager_refuses_them(call, pair):
    def run():
        try:
            return CALLS[call](*(lambda *size, dtype=dtype: torch.ones(size, dtype=dtype) * 0.5 for dtype in pair)).dtype
        except RuntimeError:
            return None

    eager = run()
    with FakeMode():
        assert run() == eager


def test_what_came_before_the_refused_operator_has_happened(fresh):
    log, layer = [], torch.nn.Linear(3, 3)

    def fn(x):
        log.append("before")
        return layer(x)

    for run in (fn, minipt2.compile(fn, backend="eager")):
        log.clear()
        with pytest.raises(RuntimeError, match="dtype"):
            run(torch.ones(2, 3, dtype=torch.float64))
        assert log == ["before"]
