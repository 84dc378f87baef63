import pytest
import sympy
import torch

from minipt2.inductor.ir import MemDep, reads, record
from minipt2.inductor.ir.interpret import run_body
from minipt2.inductor.ops import ops

FLOAT = lambda name: torch.float32  # noqa: E731
N = sympy.Integer


def test_reads():
    """The same buffer at two indices is two dependencies; a load under a mask counts."""
    def fn(index):
        (i,) = index
        inside = ops.lt(ops.index_expr(i, torch.int64), ops.constant(3, torch.int64))
        return ops.add(ops.load("a", i), ops.add(ops.load("a", i + 1), ops.masked(inside, lambda: ops.load("b", 2 * i), 0.0)))
    (p0,) = (sympy.Symbol("p0", integer=True, nonnegative=True),)
    assert reads(fn, [4]) == {MemDep("a", p0, (N(4),)), MemDep("a", p0 + 1, (N(4),)), MemDep("b", 2 * p0, (N(4),))}


def test_common_subexpressions():
    def fn(index):
        (i,) = index
        value = ops.add(ops.exp(ops.load("a", i)), ops.exp(ops.load("a", i)))
        ops.store("b", i, ops.add(value, ops.mul(ops.constant(0.0, torch.float32), ops.constant(-0.0, torch.float32))))
    body = record(fn, [4], [], FLOAT)
    assert [i.op for i in body.instrs].count("exp") == 1 and [i.op for i in body.instrs].count("constant") == 2


def test_reindex_and_rename():
    body = record(lambda index: ops.store("b", index[0], ops.load("a", index[0])), [6], [], FLOAT)
    x, y = (sympy.Symbol(n, integer=True, nonnegative=True) for n in "xy")
    split = body.reindex((x, y), (N(2), N(3)), (), (), {body.vars[0]: 3 * x + y}).rename({"b": "c"})
    memory = {"a": torch.randn(6), "c": torch.zeros(6)}
    run_body(split, memory)
    assert torch.equal(memory["a"], memory["c"])


def test_masked_values_stay_inside():
    """What is first computed under a mask is computed again outside it."""
    def fn(index):
        (i,) = index
        key = "shared"
        value = lambda: ops.memo(key, lambda: ops.exp(ops.load("a", i)))
        never = ops.constant(False, torch.bool)
        ops.store("b", i, ops.add(ops.masked(never, value, 1.0), value()))
    memory = {"a": torch.zeros(3), "b": torch.zeros(3)}
    run_body(record(fn, [3], [], FLOAT), memory)
    assert torch.equal(memory["b"], torch.full((3,), 2.0))


def test_interpreter_checks_bounds():
    body = record(lambda index: ops.store("b", index[0], ops.load("a", index[0] + 1)), [4], [], FLOAT)
    with pytest.raises(IndexError):
        run_body(body, {"a": torch.zeros(4), "b": torch.zeros(4)})
