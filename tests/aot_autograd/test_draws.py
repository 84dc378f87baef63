"""Random numbers of tensors that do not lie in memory in the order of their dimensions: each element gets the number it gets in eager."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minipt2

pytestmark = pytest.mark.usefixtures("fresh")

PLACES = {
    "transposed": lambda: torch.randn(4, 3).t(),
    "permuted": lambda: torch.randn(2, 3, 1, 4).permute(1, 3, 2, 0),
    "channels-last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "gaps": lambda: torch.randn(6, 8)[:, ::2].t(),
}
DRAWS = {
    "bernoulli": lambda x: x.clone().bernoulli_(0.4), "uniform": lambda x: x.clone().uniform_(-1, 2), "normal": lambda x: x.clone().normal_(1, 3),
    "exponential": lambda x: x.clone().exponential_(), "geometric": lambda x: x.clone().geometric_(0.5), "cauchy": lambda x: x.clone().cauchy_(),
    "log_normal": lambda x: x.clone().log_normal_(), "random": lambda x: x.clone().random_(), "random to": lambda x: x.clone().random_(9),
    "random from": lambda x: x.clone().random_(3, 9), "dropout": lambda x: F.dropout(x, 0.5), "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "in place": lambda x: F.dropout(x * 2, 0.5, inplace=True), "empty_like": lambda x: torch.empty_like(x).uniform_(), "part": lambda x: (x + 1)[1:].normal_(),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("place", PLACES)
def test_numbers_are_those_of_eager(place, backend):
    x = PLACES[place]()

    def drawn(x):
        return [draw(x) for draw in DRAWS.values()]

    torch.manual_seed(3)
    expected = [*drawn(x), torch.rand(1)]
    torch.manual_seed(3)
    torch.testing.assert_close([*minipt2.compile(drawn, backend=backend)(x), torch.rand(1)], expected, rtol=1e-5, atol=1e-5)


def test_dropout_after_attention():
    """Its operand is the transposed result of a product; the backward uses the same mask."""
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True), torch.randn(2, 5, 8)
    compiled, seen = minipt2.compile(layer), []
    for run in (layer, compiled):
        torch.manual_seed(5)
        y = run(x)
        y.square().sum().backward()
        seen.append((y.detach(), [p.grad.clone() for p in layer.parameters()]))
        layer.zero_grad()
    torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-5)
