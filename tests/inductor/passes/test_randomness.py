"""Random numbers made in the loops of a GPU's kernels: what they are, that both halves of a step agree about them, how they repeat."""
import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2 import prims as P
from minipt2.prims.random import philox
from minipt2.trace import subscribe
from minipt2.inductor import triton_pool
from tests.inductor.codegen.test_triton import generated, run

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")


def test_the_authors_known_answers():
    """Philox 4x32-10 of zeros, and of the counter 5 with a key of two words, as Triton's and NumPy's users get it."""
    zero = torch.zeros((), dtype=torch.int64)
    assert [hex(w) for w in philox(zero, torch.arange(4), 0).tolist()] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    again = philox(torch.tensor(-1), torch.arange(8) + (1 << 40), 7)
    assert len(set(again.tolist())) == 8 and 0 <= int(again.min()) and int(again.max()) < 1 << 32


@pytest.mark.parametrize("seed", [0, 12345, -7, 1 << 62])
def test_kernels_make_what_the_reference_makes(seed):
    def fn(s):
        return P.random_bits(s, 3, (5, 129))
    seed = torch.tensor(seed)
    assert torch.equal(run(fn, seed)[0], fn(seed))


def test_positions_are_counted_along_the_logical_shape():
    """A transposed reader reads transposed numbers."""
    seed = torch.tensor(5)
    found, = run(lambda s, x: P.mul(P.permute(P.random_bits(s, 0, (33, 65)), [1, 0]), x), seed, torch.ones(65, 33, dtype=torch.int32))
    assert torch.equal(found, P.random_bits(seed, 0, (33, 65)).T)


def dropped(x):
    return F.dropout(F.dropout(x, 0.5, True) * 2 + 0, 0.25, True)


def test_forward_and_backward_agree(interpreted):
    x = torch.ones(64, 100, requires_grad=True)
    compiled = minipt2.compile(dropped)
    y = compiled(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y)
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.375) < 0.03 and minipt2.counters()["fallbacks"] == 0


def test_one_seed_one_result_and_the_generator_advances(interpreted):
    x, compiled = torch.ones(50, 40), minipt2.compile(dropped)
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), first) and torch.equal(compiled(x), second) and not torch.equal(first, second)


def test_any_size(interpreted):
    """Sizes that vary: positions are counted with the sizes at hand."""
    compiled = minipt2.compile(lambda v: F.dropout(v * 2, 0.3, True), dynamic=True)
    for n in (40, 33):
        x = torch.ones(n, 100, requires_grad=True)
        torch.manual_seed(1)
        y = compiled(x)
        y.sum().backward()
        torch.manual_seed(1)
        assert torch.equal(compiled(x), y) and torch.equal(y, x.grad) and abs(float((y != 0).float().mean()) - 0.7) < 0.05


def test_masks_are_not_kept(interpreted):
    """Between the halves of a step lie 8 bytes of seed."""
    x = torch.randn(64, 100, requires_grad=True)
    y = minipt2.compile(lambda v: F.dropout(v, 0.1, True) * 3)(x)
    node = y.grad_fn
    saved = sum(t.nbytes for t in node.saved_tensors) if hasattr(node, "saved_tensors") else 0
    assert saved <= 8
    y.sum().backward()
    torch.testing.assert_close((x.grad != 0), (y != 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_distributions(dtype, interpreted):
    def fn(like):
        return (torch.rand_like(like), torch.randn_like(like), torch.bernoulli(like * 0.25), torch.empty_like(like).bernoulli_(0.75),
                torch.randint(-3, 4, (10000,)), torch.empty_like(like).uniform_(2.0, 4.0))
    uniform, normal, quarter, most, whole, between = minipt2.compile(fn)(torch.ones(10000, dtype=dtype))
    assert uniform.dtype is dtype and 0 <= float(uniform.min()) and float(uniform.max()) < 1
    assert abs(float(uniform.double().mean()) - 0.5) < 0.02 and abs(float(uniform.double().std()) - 12 ** -0.5) < 0.02
    assert abs(float(normal.double().mean())) < 0.04 and abs(float(normal.double().std()) - 1) < 0.04 and normal.isfinite().all()
    assert abs(float(normal.double().pow(4).mean()) - 3) < 0.4
    assert abs(float(quarter.double().mean()) - 0.25) < 0.02 and abs(float(most.double().mean()) - 0.75) < 0.02
    assert sorted(whole.unique().tolist()) == list(range(-3, 4)) and whole.dtype is torch.int64
    assert (whole + 3).bincount().double().std() < 80
    assert 2 <= float(between.min()) and float(between.max()) <= 4 and abs(float(between.double().mean()) - 3) < 0.04
    assert abs(float(torch.corrcoef(torch.stack([uniform.double(), most.double()]))[0, 1])) < 0.04
    assert minipt2.counters()["fallbacks"] == 0


@pytest.mark.parametrize("fn", [lambda x: torch.rand_like(x.double()), lambda x: torch.randperm(50) + x[0].long(),
                                lambda x: torch.poisson(x) + torch.randint(0, 1 << 40, (50,))])
def test_what_loops_do_not_make_is_eagers(fn, interpreted):
    x = torch.ones(50)
    torch.manual_seed(0)
    expected = fn(x)
    torch.manual_seed(0)
    assert torch.equal(minipt2.compile(fn)(x), expected)


def test_eagers_numbers_on_demand(interpreted):
    x = torch.ones(30, 40)
    torch.manual_seed(7)
    expected = dropped(x)
    torch.manual_seed(7)
    assert torch.equal(minipt2.compile(dropped, options={"eager_random": True})(x), expected)


def test_on_a_cpu_they_are_eagers(fresh):
    x = torch.ones(30, 40)
    torch.manual_seed(7)
    expected = dropped(x)
    torch.manual_seed(7)
    assert torch.equal(minipt2.compile(dropped)(x), expected)


def test_channels_last_and_recomputed_regions(interpreted):
    from torch.utils.checkpoint import checkpoint
    x = torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    y = minipt2.compile(lambda v: checkpoint(lambda u: F.dropout(u.sin() * 2, 0.5, True), v, use_reentrant=False))(x)
    y.sum().backward()
    assert torch.equal(y != 0, x.grad != 0) and 0.3 < float((y != 0).float().mean()) < 0.7


def test_dropout_is_one_kernel_each_way(interpreted):
    seen = []
    stop = subscribe(lambda stage, name, payload: seen.append(payload() if callable(payload) else payload), "schedule")
    x, r, w = torch.randn(32, 64, requires_grad=True), torch.randn(32, 64), torch.randn(64)
    minipt2.compile(lambda v: F.layer_norm(r + F.dropout(v + w, 0.1, True), (64,)))(x).sum().backward()
    stop()
    assert [len(s.kernels) for s in seen] == [1, 1]


def test_text():
    text = generated(lambda s: P.mul(P.convert(P.shift_right(P.random_bits(s, 2, (4096,)), 7), torch.float32), 2.0 ** -24), torch.tensor(1))[1].text
    assert "random_bits(v0, v1, 2)" in text and ">> 7" in text


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_machine_code(capability):
    source = generated(lambda s: P.random_bits(s, 1, (40, 1000)), torch.tensor(1))[1]
    for made in triton_pool.submit([vars(p) for p in source.programs], capability):
        assert made.result()[0][:4] == b"\x7fELF"
