"""The race between a packed product and the vendor's kernel: who wins at which times."""
import pytest

from minipt2.inductor.autotune import cpu
from minipt2.inductor.products import Problem


@pytest.mark.parametrize("bare, own, winner", [
    (True, 1.0, cpu.VENDOR), (True, 0.99, cpu.VENDOR), (True, 0.9, cpu.OWN),
    (False, 1.0, cpu.OWN), (False, 1.04, cpu.OWN), (False, 1.2, cpu.VENDOR),
])
def test_a_bare_product_is_the_vendors_unless_ours_is_faster(monkeypatch, bare, own, winner):
    """With a bias the vendor's kernel leaves passes to others, and is in turn the one that has to be faster."""
    monkeypatch.setattr(cpu, "_contenders", lambda problem: ({cpu.OWN: own, cpu.VENDOR: 1.0}, lambda: True))
    monkeypatch.setattr(cpu, "seconds_of", lambda seconds: seconds)
    assert cpu._race(Problem(64, 64, 64, None, None, bare), 1.0, {}) == winner


@pytest.mark.parametrize("bare", [False, True])
def test_both_compute_the_same(bare):
    contenders, check = cpu._contenders(Problem(20, 33, 40, None, None, bare))
    assert check()
    for run in contenders.values():
        run()
