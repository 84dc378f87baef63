"""One case for each kind of fault that sweeps over torch's own operator database have found in the inductor backend."""
import pytest
import torch
from torch import nn

import minipt2

from ..compare import check, check_module


def test_complex_results_in_other_strides():
    check(lambda x: torch.fft.irfft(x.t().contiguous().t(), dim=0), torch.randn(6, 5, requires_grad=True), grad=True)
    check(lambda x: torch.fft.hfftn(x, (4, 6)), torch.randn(5, 5, requires_grad=True), grad=True)


def test_gradient_known_in_the_forward():
    check(torch.logdet, torch.empty(0, 0, requires_grad=True), grad=True)


def test_dtypes_that_loops_cannot_hold():
    check(lambda x: x.to(torch.float8_e4m3fn).view(2, 4).t().to(torch.float32) * 2, torch.randn(8))
    check(lambda x: (x.float() + 1, torch.cat([x, x]).float()), torch.randn(8).to(torch.float8_e5m2))
    check(lambda x: x.mul_(2j).real + 1, torch.randn(4, dtype=torch.complex64))
    check(lambda x: x.repeat_interleave(3), torch.randn(4, dtype=torch.complex64))
    check(lambda x: (x * 2).expand(3, 4), torch.randn(4, dtype=torch.complex64))


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_modules(kind):
    """Gates are parts of one product by an operator that does not say so; oneDNN's LSTM keeps a workspace of unknown size."""
    torch.manual_seed(0)
    check_module(kind(5, 6, num_layers=2), torch.randn(3, 2, 5))
    check_module({nn.RNN: nn.RNNCell, nn.GRU: nn.GRUCell, nn.LSTM: nn.LSTMCell}[kind](5, 6), torch.randn(2, 5))


def test_a_value_that_cannot_be_captured_on_the_stack_of_a_resumed_frame():
    def build(module):
        with torch.no_grad():
            module.weight.materialize((4, 3, 2))  # an UninitializedParameter
        return module.weight.shape

    assert minipt2.compile(build)(nn.LazyConv1d(4, 2, bias=False)) == (4, 3, 2)
