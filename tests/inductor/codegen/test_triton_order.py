"""Kernels that begin where the step before them ended."""
from dataclasses import replace

import pytest
import torch

from minipt2 import prims as P
from minipt2.inductor.hardware import TINY
from tests.inductor.codegen.test_triton import check, generated

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TURNED = "tl.num_programs(0) - 1 - tl.program_id(0)"


def standardized(x):
    """By the statistics of each channel over the batch."""
    var, mean = P.var_mean(x, [0, 2, 3], 0.0, True)
    spread = lambda v: P.broadcast_in_dim(v, x.shape, [0, 1, 2, 3])
    return P.mul(P.sub(x, spread(mean)), spread(P.rsqrt(P.add(var, 1e-5))))


def images(*shape):
    return torch.empty(shape, device="meta").to(memory_format=torch.channels_last)


def texts(fn, *tensors):
    source = generated(fn, *tensors)[1]
    return [source.programs[c.kernel].text for launch in source.launches for c in launch.calls]


def test_results_begin_where_statistics_end():
    statistics, *_, results = texts(standardized, images(334, 64, 56, 56))
    assert TURNED not in statistics and TURNED in results


def test_what_the_cache_holds_is_read_in_any_order():
    assert not any("num_programs" in text for text in texts(standardized, images(20, 64, 56, 56)))


def test_a_walk_backwards_is_followed_by_one_forwards():
    """Statistics of what was written backwards begin at its beginning."""
    orders = [TURNED in text for text in texts(lambda x: standardized(P.mul(standardized(x), 2.0)), images(334, 64, 56, 56)) if "work" not in text or "program_id(1)" in text]
    assert orders[0] is False and orders[1] is not orders[0] and any(orders)


def test_every_element_once():
    torch.manual_seed(0)
    x = torch.randn(5, 16, 9, 7).to(memory_format=torch.channels_last)
    small = replace(TINY, cache=1000)
    assert any(TURNED in p.text for p in generated(standardized, x, hw=small)[1].programs)
    check(standardized, x, hw=small, tolerance=1e-5)
