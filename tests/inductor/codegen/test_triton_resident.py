"""Rows of half types that stay in registers as pairs: what they mean, what is read, and where they cannot."""
from dataclasses import replace

import pytest
import torch

from minipt2 import prims as P
from minipt2.inductor import triton_pool
from minipt2.inductor.codegen import triton as codegen, triton_resident
from minipt2.inductor.codegen.triton_blocks import choose
from tests.inductor.codegen.test_triton import generated, run
from tests.inductor.codegen.test_triton_rewalk import half_softmax, layer_norm

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
LENGTH = 1200


@pytest.fixture
def pieces(monkeypatch):
    """Five pieces, of which the last is ragged."""
    monkeypatch.setattr(codegen, "choose", lambda *args: replace(choose(*args), x=1, r=256, held=5, split=1))


def rows(dtype, length=LENGTH):
    torch.manual_seed(0)
    x = torch.randn(6, length) * 5
    x[1, 7], x[2, length - 1], x[3] = float("nan"), float("inf"), float("-inf")
    x[4, :length - 50] = float("-inf")
    return x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_softmax(dtype, pieces):
    x = rows(dtype)
    found, = run(lambda u: P.convert(P.convert(half_softmax(u), torch.float32), dtype) if dtype is torch.bfloat16 else half_softmax(u), x)
    torch.testing.assert_close(found.float(), torch.softmax(x.float(), -1), rtol=1e-2, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_layer_norm_of_any_mean(dtype, mean, pieces):
    """Distances are taken from the mean, not from sums of squares: no worse than eager against float64."""
    torch.manual_seed(1)
    x, w = (torch.randn(5, LENGTH) + mean).to(dtype), torch.randn(LENGTH).to(dtype)
    found, = run(layer_norm, x, w)
    exact = torch.nn.functional.layer_norm(x.double(), (LENGTH,), w.double())
    eager = torch.nn.functional.layer_norm(x, (LENGTH,), w)
    assert (found.double() - exact).norm() <= 2.5 * (eager.double() - exact).norm() + 1e-6  # the interpreter cuts bfloat16 off


def test_vectors_of_all_rows_are_kept_near(pieces, monkeypatch):
    """As many as fit into an SM's own cache; rows, which are read once, pass it by."""
    def scaled(x, w, b):
        return P.convert(P.add(P.convert(layer_norm(x, w), torch.float32), P.convert(P.broadcast_in_dim(b, x.shape, [1]), torch.float32)), x.dtype)
    x, w = rows(torch.bfloat16), torch.randn(LENGTH).bfloat16()
    text = generated(scaled, x, w, w)[1].text
    assert text.count("evict_last") == 10 and text.count('cache_modifier=".cg"') == 5
    monkeypatch.setattr(triton_resident, "FIRST_CACHE", 3000)
    text = generated(scaled, x, w, w)[1].text
    assert text.count("evict_last") == 5 and text.count('cache_modifier=".cg"') == 10


def test_memory_is_read_once_and_at_once(pieces):
    text = generated(half_softmax, rows(torch.bfloat16))[1].text
    head, tail = text.split("acc", 1)
    assert head.count("tl.load(in0_pairs") == 5 and "tl.load" not in tail and "for start" not in text
    assert "(q < 600)" in head and tail.count("halves(p") == 3 * 5
    assert tail.count("^ again, tl.bfloat16") == tail.count("^ anew, tl.bfloat16") == 5
    vectors = generated(layer_norm, rows(torch.bfloat16), torch.randn(LENGTH).bfloat16())[1].text
    assert vectors.count("tl.load(in0_pairs") == 5 and vectors.count("halves(p") == 3 * 5


def test_rows_that_begin_anywhere_are_read_as_they_are(pieces):
    """An odd row length leaves every other row between pairs; so does a slice that begins at an odd element."""
    odd = generated(half_softmax, rows(torch.bfloat16, LENGTH - 1))[1].text
    sliced = generated(lambda u: half_softmax(P.slice(u, [0, 1], [6, LENGTH - 1], [1, 1])), rows(torch.bfloat16))[1].text
    assert "pairs" not in odd and "pairs" not in sliced
    x = rows(torch.bfloat16, LENGTH - 1)
    torch.testing.assert_close(run(half_softmax, x)[0].float(), torch.softmax(x.float(), -1), rtol=1e-2, atol=1e-6, equal_nan=True)


def test_float32_stays_as_it_is(pieces):
    assert "pairs" not in generated(lambda u: P.sum(P.sub(u, P.broadcast_in_dim(P.amax(u, [1]), u.shape, [0])), [1]), rows(torch.float32))[1].text


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_machine_code(capability, pieces):
    source = generated(half_softmax, rows(torch.bfloat16))[1]
    for made in triton_pool.submit([vars(p) for p in source.programs], capability):
        assert made.result()[0][:4] == b"\x7fELF"
