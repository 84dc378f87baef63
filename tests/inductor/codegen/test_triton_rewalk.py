"""Rows too long for registers: a softmax that walks them twice or thrice, and what the cache is told."""
from dataclasses import replace

import pytest
import torch

from minipt2 import prims as P
from minipt2.prims.decompositions import decompositions
from minipt2.inductor import triton_pool
from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.codegen.triton_blocks import choose
from tests.inductor.codegen.test_triton import generated, run
from tests.inductor.scheduler.test_fusion import softmax

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
LONG = 40000


def layer_norm(x, w):
    wide = P.convert(x, torch.float32)
    var, mean = P.var_mean(wide, [1], 0.0, True)
    scaled = P.mul(P.sub(wide, P.broadcast_in_dim(mean, x.shape, [0, 1])), P.broadcast_in_dim(P.rsqrt(P.add(var, 1e-5)), x.shape, [0, 1]))
    return P.convert(P.mul(scaled, P.convert(P.broadcast_in_dim(w, x.shape, [1]), torch.float32)), x.dtype)


def log_softmax(x):
    return decompositions[torch.ops.aten._log_softmax.default](x, -1, False)


def rows(dtype=torch.float32):
    torch.manual_seed(0)
    x = torch.randn(7, LONG) * 5
    x[1, 7], x[2, 39999], x[3] = float("nan"), float("inf"), float("-inf")
    x[4, :39000] = float("-inf")
    x[5] = torch.linspace(-300, 300, LONG)
    x[6] = torch.linspace(300, -300, LONG)
    return x.to(dtype)


@pytest.mark.parametrize("dtype, many", [(torch.float32, False), (torch.float64, False), (torch.bfloat16, False), (torch.float32, True)])
def test_softmax_of_long_rows(dtype, many):
    """NaN, infinities, rows of nothing but -inf, maxima that grow in every piece and that never do; few rows are shared by programs."""
    x = rows(dtype).repeat(20 if many else 1, 1)
    found, = run(softmax if dtype is not torch.bfloat16 else half_softmax, x)
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, torch.softmax(x, -1), rtol=tolerance, atol=1e-7, equal_nan=True)


def test_log_softmax():
    x = rows()
    found, = run(log_softmax, x)
    torch.testing.assert_close(found, torch.log_softmax(x, -1), rtol=1e-5, atol=1e-4, equal_nan=True)


def test_walks_and_what_is_kept():
    text = generated(softmax, torch.empty(140, 1 << 16, device="meta"))[1].text
    assert text.count("for start in") == 2
    first, second = text.split("for start in")[1:]
    assert 'eviction_policy="evict_last"' in first and 'eviction_policy="evict_first"' in second


def half_softmax(x):
    return P.convert(softmax(P.convert(x, torch.float32)), torch.bfloat16)


def test_what_stays_in_registers_is_read_once(monkeypatch):
    """The first pieces are loaded on the first walk alone; what is left of a row, here with a ragged end, on each."""
    monkeypatch.setattr(codegen, "choose", lambda *args: replace(choose(*args), r=4096, held=3))
    x = rows()[5:].repeat(70, 1)
    text = generated(softmax, x)[1].text
    assert text.count("tl.load") == 3 + 2 and text.count("range(12288, 40000, RBLOCK)") == 2 and text.count("tl.store") == 3 + 1
    torch.testing.assert_close(run(softmax, x)[0], torch.softmax(x, -1), rtol=1e-5, atol=1e-7)
    for fn in (lambda u: P.var_mean(u, [1], 0.0, True), lambda u: P.sum(P.sub(u, P.broadcast_in_dim(P.amax(u, [1]), u.shape, [0])), [1])):
        for found, wanted in zip(run(fn, x), fn(x) if isinstance(fn(x), (list, tuple)) else [fn(x)]):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


def test_more_pieces_than_a_row_has(monkeypatch):
    monkeypatch.setattr(codegen, "choose", lambda *args: replace(choose(*args), r=16384, held=5))
    x = rows()[5:]
    assert "range(32768, 40000" in generated(softmax, x.repeat(80, 1))[1].text
    torch.testing.assert_close(run(softmax, x.repeat(80, 1))[0][:2], torch.softmax(x, -1), rtol=1e-5, atol=1e-7)


def test_pieces_of_a_softmax():
    """In float32 they are twice as long where few elements lie beyond the end."""
    for length, piece in ((1 << 16, 32768), (40000, 16384), (60000, 32768), (50257, 16384)):
        assert f"RBLOCK: tl.constexpr = {piece}\n" in generated(softmax, torch.empty(140, length, device="meta"))[1].text


def test_pieces_of_a_half_type_stay():
    """Of one operand that cannot be read in pairs; where vectors are read beside the row there is no room."""
    half = torch.empty(140, (1 << 16) - 1, device="meta", dtype=torch.bfloat16)
    assert "range(40960, 65535, RBLOCK)" in generated(half_softmax, half)[1].text
    assert "range(0, 65535, RBLOCK)" in generated(softmax, half.float())[1].text
    scaled = lambda x, v: half_softmax(P.mul(x, P.broadcast_in_dim(v, x.shape, [1])))
    assert "range(0, 65535, RBLOCK)" in generated(scaled, half, torch.empty(half.shape[1], device="meta", dtype=torch.bfloat16))[1].text


@pytest.mark.parametrize("length, walks", [((1 << 16) - 1, 3), (1 << 17, 2)])
def test_short_rows_of_half_types_are_walked_once_more(length, walks):
    """Where a row stays near, one exponential less an element is worth a walk."""
    assert generated(half_softmax, torch.empty(140, length, device="meta", dtype=torch.bfloat16))[1].text.count("for start in") == walks


def test_pieces_read_ahead(monkeypatch):
    """With stages, the loops over a row say so to Triton; the results are the same."""
    monkeypatch.setattr(codegen, "choose", lambda *args: replace(choose(*args), stages=3))
    x = rows(torch.bfloat16)[:, 1:].repeat(20, 1)
    assert "tl.range(32768, 39999, RBLOCK, num_stages=3)" in generated(half_softmax, x)[1].text
    torch.testing.assert_close(run(half_softmax, x)[0], torch.softmax(x, -1), rtol=1e-2, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("length", [1200, 1024])
@pytest.mark.parametrize("held", [0, 2])
def test_a_piece_is_asked_for_while_the_one_before_is_worked_on(monkeypatch, length, held):
    """Each element is read once a walk; nothing beyond the end. Halves wait as halves."""
    monkeypatch.setattr(codegen, "choose", lambda *args: replace(choose(*args), x=1, r=256, held=held, split=1, ahead=True))
    torch.manual_seed(0)
    x = torch.randn(5, length) * 5
    torch.testing.assert_close(run(softmax, x)[0], torch.softmax(x, -1), rtol=1e-5, atol=1e-7)
    odd, w = x[:, 1:].bfloat16(), torch.randn(length - 1).bfloat16()
    torch.testing.assert_close(run(half_softmax, odd)[0].float(), torch.softmax(odd.float(), -1), rtol=1e-2, atol=1e-6)
    text = generated(softmax, x)[1].text
    for body in text.split("for start in")[1:]:
        assert body.index(" = n") < body.index(" = tl.load") < body.index("r = start + tl.arange")
    torch.testing.assert_close(run(layer_norm, odd, w)[0], torch.nn.functional.layer_norm(odd, w.shape, w), rtol=2e-2, atol=2e-2)
    waiting = [line for line in generated(layer_norm, odd, w)[1].text.splitlines() if line.strip()[:1] == "n"]
    assert waiting and not any("float32" in line for line in waiting)


def test_other_sums_are_taken_on_their_own_walk():
    def fn(x):
        top = P.broadcast_in_dim(P.amax(x, [1]), x.shape, [0])
        return P.sum(P.exp(P.sub(P.mul(x, 2.0), top)), [1])
    x = torch.rand(140, 33000)
    assert generated(fn, x)[1].text.count("for start in") == 2
    torch.testing.assert_close(run(fn, x[:3])[0], fn(x[:3]), rtol=1e-5, atol=1e-5)


def test_what_is_read_once_is_no_matter():
    assert "eviction_policy" not in generated(lambda x: P.sum(x, [1]), torch.empty(1000, 1 << 17, device="meta"))[1].text


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_machine_code(capability):
    source = generated(softmax, torch.empty(140, 33000, device="meta"))[1]
    for made in triton_pool.submit([vars(p) for p in source.programs], capability):
        assert made.result()[0][:4] == b"\x7fELF"
