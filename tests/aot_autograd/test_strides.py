"""Outputs of compiled functions have eager's strides, dimension by dimension: views with gaps, results of operators that ignore memory order."""
import pytest
import torch
import torch.nn.functional as F

import minipt2

LAYOUTS = {
    "rows": lambda: torch.rand(2, 3, 4, 5),
    "channels_last": lambda: torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "transposed": lambda: torch.rand(4, 3, 2, 5).transpose(0, 2),
    "gaps": lambda: torch.rand(2, 3, 4, 10)[..., ::2],
    "one_channel": lambda: torch.rand(2, 1, 5, 4).transpose(2, 3),
    "expanded": lambda: torch.rand(2, 1, 4, 5).expand(2, 3, 4, 5),
}


def _two_parts(y):
    return y.mT[..., 1:], y[:, :1].squeeze(1)


VIEWS = {
    "diagonal": lambda x: (x * 2).diagonal(dim1=0, dim2=-1), "offset_diagonal": lambda x: (x * 2).diagonal(1, 1, 2),
    "slices": lambda x: ((x * 2)[..., ::2], (x + 1)[:, :, 1:]), "select": lambda x: (x * 2).select(1, 0),
    "windows_apart": lambda x: (x * 2).unfold(-1, 2, 2), "as_strided": lambda x: (x * 2).as_strided((2, 3), (5, 2), 1),
    "expand": lambda x: (x * 2)[:1].expand(3, *x.shape[1:]), "part_of_softmax": lambda x: x.softmax(-1)[..., :2],
    "part_of_shuffle": lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)[..., 1:], "part_of_tiles": lambda x: x.tile(2)[..., 1:],
    "unpadded": lambda x: F.pad(x, (1, 1))[..., 1:-1], "part_of_norm": lambda x: F.batch_norm(x, None, None, training=True)[..., 1:],
    "real_part": lambda x: torch.complex(x, x).real, "chunks": lambda x: (x * 2).chunk(2, -1), "part_of_product": lambda x: (x @ x.mT)[..., 1:],
    "unbound": lambda x: (x * 2).unbind(-1), "expanded_copy": lambda x: (x.clone().unsqueeze(0).expand(2, *x.shape), x + 1),
    "parts_of_one": lambda x: _two_parts(x.sin()),
}
ROW_MAJOR = {
    "poisson": lambda x: torch.poisson(x), "rrelu": lambda x: F.rrelu(x, training=True), "isin": lambda x: torch.isin(x, x[0]),
    "unfold": lambda x: F.unfold(x, 1), "normal": lambda x: torch.normal(x, x), "logsigmoid": lambda x: F.logsigmoid(x),
    "nll": lambda x: F.nll_loss(x, torch.zeros(x.shape[0], *x.shape[2:], dtype=torch.long), reduction="none"),
    "unpool": lambda x: F.max_unpool2d(x, (x * 0).long(), 2), "floor_divide": lambda x: torch.floor_divide(x, x.sum()),
}


def _all(result):
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", [*VIEWS, *ROW_MAJOR])
def test_strides_are_eagers(name, backend, fresh):
    fn = (VIEWS | ROW_MAJOR)[name]
    for layout, make in LAYOUTS.items():
        minipt2.reset()
        x = make()
        expected, found = _all(fn(x)), _all(minipt2.compile(fn, backend=backend, dynamic=False)(x))
        assert [t.stride() for t in found] == [t.stride() for t in expected], layout
        if name not in ("poisson", "rrelu", "normal"):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["diagonal", "slices", "part_of_softmax", "unpadded", "chunks"])
def test_strides_are_eagers_for_any_size(name, fresh):
    compiled = minipt2.compile(VIEWS[name], dynamic=True)
    for shape in ((2, 3, 4, 5), (4, 3, 6, 7)):
        x = torch.rand(*shape)
        expected, found = _all(VIEWS[name](x)), _all(compiled(x))
        assert [t.stride() for t in found] == [t.stride() for t in expected]
        torch.testing.assert_close(found, expected)
