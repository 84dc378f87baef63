"""Symbolic sizes from lowering to C: one compilation, right at every size, with the kernels that known sizes get."""
import pytest
import torch
from torch import fx

import minipt2
from minipt2 import config, trace
from minipt2 import prims as P
from minipt2.inductor import compile_graph, runtime
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import schedule

from minipt2.prims.core import Recorder, TensorMeta
from minipt2.shapes import ShapeEnv

from .symbolic import Named, check, graph_of

PAIRS = [dict(s0=a, s1=b) for a, b in [(2, 3), (3, 2), (7, 8), (8, 7), (16, 17), (17, 16), (64, 65), (65, 1000), (1, 1), (3, 9000)]]


def spread(small, like, dims):
    return P.broadcast_in_dim(small, like.shape, dims)


def softmax(x):
    e = P.exp(P.sub(x, spread(P.amax(x, (1,), False), x, (0,))))
    return P.div(e, spread(P.sum(e, (1,), False), x, (0,)))


def heads(x):
    """Attention's way with a projection: split, swap, scale, softmax over keys, and back."""
    b, n, _ = x.shape
    q = P.permute(P.reshape(x, (b, n, 4, 16)), (0, 2, 1, 3))
    copied = P.reshape(P.copy_strided(q, (n * 64, n * 16, 16, 1)), (b * 4, n, 16))
    scores = P.bmm(copied, P.permute(copied, (0, 2, 1)))
    scores = P.reshape(scores, (b, 4, n, n))
    e = P.exp(P.sub(scores, spread(P.amax(scores, (3,), True), scores, (0, 1, 2, 3))))
    return P.div(e, spread(P.sum(e, (3,), True), scores, (0, 1, 2, 3)))


def causal(x):
    n = x.shape[1]
    rows = P.broadcast_in_dim(P.iota(n, 0, 1, torch.int64, x.device), (n, n), (0,))
    columns = P.broadcast_in_dim(P.iota(n, 0, 1, torch.int64, x.device), (n, n), (1,))
    return P.where(P.le(columns, rows), P.broadcast_in_dim(x[0] if isinstance(x, torch.Tensor) else P.reshape(P.slice(x, (0, 0), (1, n), (1, 1)), (n,)), (n, n), (1,)), float("-inf"))


def layer_norm(x):
    var, mean = P.var_mean(x, (1,), 0, True)
    return P.mul(P.sub(x, spread(mean, x, (0, 1))), spread(P.rsqrt(P.add(var, 1e-5)), x, (0, 1)))


def transposed(x):
    return P.add(P.copy_strided(P.permute(x, (1, 0)), (x.shape[0], 1)), 1.0), P.mul(x, 2.0)


def joined(x, y):
    """A cache that grows: old and new along the length, and what lies around the seam."""
    whole = P.cat([x, y], 0)
    n = whole.shape[0]
    return P.mul(whole, 2.0), P.slice(P.exp(whole), (n - 2, 0), (n, 8), (1, 1)), P.flip(whole, (0,))


def padded(x):
    a, b = x.shape
    return P.pad(x, (1, 2), (0, 3), 0.5), P.sum(P.pad(x, (0, 1), (1, 0), 1.0), (0,), False)


def column_sums(x):
    return P.sum(x, (0,), False), P.amax(x, (0,), False), P.sum(P.mul(x, x), (0, 1), False)


def positions(x):
    return P.argmax(x, 1, False), P.argmin(x, None, False), P.iota(x.shape[0], 3, 2, torch.float32, x.device)


def merged(x):
    a, b, c = x.shape
    flat = P.reshape(x, (a * b, c))
    return P.reshape(P.add(P.exp(flat), 1.0), (a, b * c)), P.sum(P.mul(P.reshape(flat, (a, b, c)), x), (2,), False)


def gathered(x, index):
    return P.index_select(x, 0, index), P.scatter_add(P.mul(x, 0.0), 0, P.broadcast_in_dim(index, (index.shape[0], 8), (0,)), P.index_select(x, 0, index))


def scaled(x, n, f):
    a = x.shape[0]
    return P.mul(x, n), P.add(P.div(P.sum(x, (0,), False), a * 3), f), P.full((a, n), f, torch.float32, x.device), P.iota(a, n, 1, torch.int64, x.device), a * n


def windows(x):
    """Sizes that are quotients: every second row, and the rows that are left."""
    a = x.shape[0]
    half = (a - 1) // 2 + 1
    even = P.slice(x, (0, 0), (a, 8), (2, 1))
    return P.exp(even), P.sum(P.reshape(P.add(even, 1.0), (half * 8,)), (0,), False), P.mul(P.permute(even, (1, 0)), 3.0)


CASES = {
    "softmax": (softmax, [("s0", "s1")], dict(s0=4, s1=96), PAIRS),
    "heads": (heads, [("s0", "s1", 64)], dict(s0=2, s1=24), [dict(s0=a, s1=b) for a, b in [(1, 1), (3, 17), (5, 64), (2, 65)]]),
    "causal": (causal, [("s0", "s1")], dict(s0=2, s1=24), PAIRS[:-2]),
    "layer norm": (layer_norm, [("s0", 48)], dict(s0=16), [dict(s0=n) for n in (1, 2, 17, 1000)]),
    "layer norm of any length": (layer_norm, [("s0", "s1")], dict(s0=40, s1=600), [p for p in PAIRS if p["s1"] > 1]),
    "transposed": (transposed, [("s0", "s1")], dict(s0=80, s1=60), PAIRS),
    "joined": (joined, [("s0", 8), ("s1", 8)], dict(s0=12, s1=1 + 1), [dict(s0=a, s1=b) for a, b in [(1, 1), (17, 3), (64, 1)]]),
    "padded": (padded, [("s0", "s1")], dict(s0=5, s1=9), PAIRS[:-1]),
    "column sums": (column_sums, [("s0", "s1")], dict(s0=300, s1=40), PAIRS + [dict(s0=5000, s1=3), dict(s0=2, s1=5000)]),
    "column sums, few": (column_sums, [("s0", 24)], dict(s0=3), [dict(s0=n) for n in (1, 2, 64, 100_000)]),
    "positions": (positions, [("s0", "s1")], dict(s0=5, s1=9), PAIRS),
    "merged": (merged, [("s0", "s1", 12)], dict(s0=3, s1=10), PAIRS[:-1]),
    "gathered": (gathered, [("s0", 8), ("s1",)], dict(s0=6, s1=11), [dict(s0=a, s1=b) for a, b in [(3, 2), (64, 100), (3, 1000)]]),
    "scaled": (scaled, [("s0", 5), "n0", "f0"], dict(s0=4, n0=7, f0=0.3), [dict(s0=a, n0=b, f0=c) for a, b, c in [(3, 2, 1e-3), (100, 1, -2.5), (2, 0, 0.0)]]),
    "windows": (windows, [("s0", 8)], dict(s0=10), [dict(s0=n) for n in (2, 3, 17, 64, 65)]),
}


def dtypes_of(name):
    return [torch.float32, torch.int64] if name == "gathered" else None


@pytest.mark.parametrize("name", CASES)
def test_right_at_every_size(name):
    fn, shapes, hints, others = CASES[name]
    if name == "causal":
        def fn(x, causal=causal):
            return causal(x)
    check(fn, shapes, hints, *others, dtypes=dtypes_of(name))


@pytest.mark.parametrize("name", CASES)
def test_as_many_kernels_as_with_known_sizes(name):
    fn, shapes, hints, _ = CASES[name]
    symbolic = schedule(lower(graph_of(fn, shapes, hints, dtypes_of(name))))
    known = [tuple(hints.get(n, n) for n in shape) if isinstance(shape, tuple) else shape for shape in shapes]
    static = schedule(lower(graph_of(fn, known, {k: v for k, v in hints.items() if k[0] != "s"}, dtypes_of(name))))
    assert len(symbolic.kernels) == len(static.kernels)
    assert symbolic.bytes_moved() == static.bytes_moved()


def test_offsets_of_64_bits(monkeypatch):
    """Where 32 bits do not reach, the same text is compiled a second time."""
    monkeypatch.setattr(runtime, "WIDE_FROM", 200 * 4)
    made = []
    unsubscribe = trace.subscribe(lambda stage, name, payload: made.append(payload), "recipe")
    check(gathered, [("s0", 8), ("s1",)], dict(s0=6, s1=11), dict(s0=64, s1=100), dtypes=[torch.float32, torch.int64])
    check(causal, [("s0", "s1")], dict(s0=2, s1=5), dict(s0=2, s1=40))
    unsubscribe()
    assert all("typedef int64_t idx" in recipe.c[0] for recipe in made)


def test_plans_are_kept_and_bounded():
    plans = runtime.Plans(lambda n: runtime.Plan(nbytes=n))
    first = plans(1)
    assert plans(1) is first
    for n in range(2, 3 * runtime.Plans.KEPT):
        plans(n)
    assert len(plans._made) == runtime.Plans.KEPT and plans(1) is not first


def test_intermediates_share_memory():
    """The arena of a chain of products is no larger than the one known sizes get."""
    def chain(x, w):
        for _ in range(4):
            x = P.exp(P.mm(x, w))
        return x

    text = []
    unsubscribe = trace.subscribe(lambda stage, name, payload: text.append(payload) if name.endswith(".py") else None, "code")
    check(chain, [("s0", 16), (16, 16)], dict(s0=4), dict(s0=100))
    unsubscribe()
    assert "memory.give(" in text[0]
    space = {}
    exec(text[0].split("def make_plan")[1].join(["from minipt2.inductor.arena import MemoryMap\nfrom minipt2.inductor.runtime import Plan\nimport torch\ndef make_plan", ""]).split("plans =")[0], space)
    static = schedule(lower(graph_of(chain, [(100, 16), (16, 16)], {})))
    assert space["make_plan"](100).nbytes == static.arena_bytes


def test_ir_is_verified():
    with config.patch(verify_ir=True):
        lower(graph_of(softmax, [("s0", "s1")], dict(s0=4, s1=96)))


def test_stored_code_serves_other_sizes(tmp_path, monkeypatch):
    """What is kept on disk depends on the symbols, not on what they were: nothing is lowered again."""
    graph = lambda n: graph_of(softmax, [("s0", "s1")], dict(s0=n, s1=2 * n))
    with config.patch(cache_dir=str(tmp_path)):
        compile_graph(graph(4), None, inference=False)
        monkeypatch.setattr("minipt2.inductor.lowering.lower", None)
        again = compile_graph(graph(90), None, inference=False)
    x = torch.randn(5, 33)
    torch.testing.assert_close(again([5, 33, x])[0], x.softmax(1))


def test_known_multiples_are_written_as_such():
    """After ``s0 % 8 == 0`` was decided, rows of eights need no division and no rest."""
    def eights(x):
        a = x.shape[0]
        return P.exp(P.reshape(x, (a // 8, 8, 4))), P.mul(x, 2.0)

    env, recorder = ShapeEnv(), Recorder()
    s0 = env.symbol(64, Named("s0"))
    assert s0 % 8 == 0
    with recorder:
        recorder.graph.placeholder("s0").meta["val"] = s0
        x = recorder.bind(recorder.graph.placeholder("x"), TensorMeta((s0, 4), torch.float32, torch.device("cpu"), (4, 1)))
        recorder.graph.output(tuple(v.node for v in eights(x)))
    s = schedule(lower(fx.GraphModule({}, recorder.graph)))
    kernel, = s.kernels
    assert [str(n) for n in kernel.group.domain.sizes.values()] == ["32*d0"] and str(s.program.derived) == "{d0: (s0)//8}"


def repeated(x, k):
    return x.repeat(k)[:3]


def added(x, a, b):
    return x.reshape(a, -1) + x.reshape(b, -1), x * b


def test_numbers_found_while_compiling_to_be_fixed_or_equal():
    """Once captured as symbols, they are still arguments of the graph."""
    x = torch.arange(12.)
    with config.patch(raise_internal_errors=True):
        for fn, calls in ((repeated, [(2,), (3,), (1,), (4,), (1,)]), (added, [(2, 2), (3, 3), (4, 4), (1, 1)])):
            compiled = minipt2.compile(fn)
            for numbers in calls:
                torch.testing.assert_close(compiled(x, *numbers), fn(x, *numbers))


def test_a_crop():
    """Rows that are left, times columns, are one loop: as many rounds as there are elements."""
    def crop(y):
        return torch.nn.functional.pad(y, (0, 0, -1, -1))
    compiled = minipt2.compile(crop, dynamic=True)
    for shape in ((2, 5, 6), (3, 9, 4), (2, 3, 7)):
        y = torch.randn(shape)
        assert torch.equal(compiled(y), crop(y))
