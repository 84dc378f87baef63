"""Compiled graphs as their callers see them: values, strides, memory, threads, errors, and the wrapper's text."""
import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import minipt2
from minipt2 import trace
from minipt2.config import config
from minipt2.inductor import cache, compile_graph, runtime

from .passes.graphs import inference_graph


def compiled(module, *inputs, inference=True):
    """(function of a list of all arguments, these arguments, wrapper texts)."""
    gm, args = inference_graph(module, *inputs)
    texts = []
    unsubscribe = trace.subscribe(lambda stage, name, payload: texts.append(str(payload)) if name.endswith(".py") else None, "code")
    try:
        fn = compile_graph(gm, [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"], inference=inference)
    finally:
        unsubscribe()
    return fn, args, texts


def check(module, *inputs, **settings):
    fn, args, texts = compiled(module, *inputs, **settings)
    with torch.no_grad():
        expected = module(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for _ in range(3):
            given = list(args)
            got = fn(given)
            assert given == []
            for g, e in zip(got, expected, strict=True):
                torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-5)
                assert g.stride() == e.stride()
    return texts


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)) + x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (t.view(2, 10, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / 8 ** 0.5).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(2, 10, 16))


def fn_module(fn):
    class Module(nn.Module):
        def forward(self, *args):
            return fn(*args)
    return Module()


@pytest.mark.parametrize("inference", [True, False])
def test_blocks(inference):
    check(MLP(), torch.randn(4, 16), inference=inference)
    check(Block().eval(), torch.randn(2, 8, 6, 6), inference=inference)
    check(Attention(), torch.randn(2, 10, 16), inference=inference)


def test_text_is_readable_and_calls_are_few():
    text, = check(fn_module(lambda x, y: torch.relu(x * 2 + y)), torch.randn(8), torch.randn(8))
    call = text.split("def call(args):")[1]
    assert call.count("run0(") == 1 and "# " in call
    assert "arena" not in call  # nothing but an output to allocate


def test_consecutive_kernels_are_one_call():
    with config.patch(fusion=False):
        text, = check(fn_module(lambda x: (x.exp().sum(0), x.sin().sum(1))), torch.randn(20, 30))
    assert text.count("bind(library") == 1


def test_intermediates_live_in_an_arena():
    text, = check(MLP(), torch.randn(4, 16))
    assert "arenas.take(" in text
    assert text.count("empty(") == 1  # the output


def test_two_graphs_share_an_arena():
    a, args_a, _ = compiled(MLP(), torch.randn(400, 16))
    b, args_b, _ = compiled(MLP(), torch.randn(4, 16))
    with torch.no_grad():
        a(list(args_a)), b(list(args_b))
    assert len(runtime.arena_pool().free) == 1


def test_arenas_go_with_the_last_graph():
    gc.collect()
    runtime._pools.clear()
    fn, args, _ = compiled(MLP(), torch.randn(4, 16))
    with torch.no_grad():
        fn(list(args))
    pool = weakref.ref(runtime.arena_pool())
    del fn
    gc.collect()
    assert pool() is None


def test_outputs_survive_later_calls():
    fn, args, _ = compiled(MLP(), torch.randn(4, 16))
    with torch.no_grad():
        first, = fn(list(args))
        kept = first.clone()
        fn([*args[:-1], torch.randn(4, 16)])
    assert torch.equal(first, kept)


def test_two_threads():
    m = MLP()
    fn, args, _ = compiled(m, torch.randn(64, 16))
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(64, 16, generator=generator)
            with torch.no_grad():
                if not torch.allclose(fn([*args[:-1], x])[0], m(x), atol=1e-5):
                    wrong.append(seed)
    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_inputs_die_as_soon_as_they_can():
    fn, args, (text,) = compiled(fn_module(lambda x, y: torch.mm(torch.mm(x, y), y)), torch.randn(8, 8), torch.randn(8, 8))
    x = torch.randn(8, 8)
    gone = weakref.ref(x)
    given = [x, args[1]]
    del x
    with torch.no_grad():
        fn(given)
    assert gone() is None
    body = text.split("def call")[1]
    assert body.index("del in0") < body.rindex("mm_out(")


def test_unaligned_input():
    x = torch.frombuffer(bytearray(4 * 9 + 1), dtype=torch.float32, count=9, offset=1)
    x.copy_(torch.arange(9.0))
    assert x.data_ptr() % 4 == 1
    fn, _, _ = compiled(fn_module(lambda x: x * 2 + 1), torch.randn(9))
    assert torch.equal(fn([x])[0], torch.arange(9.0) * 2 + 1)


def test_empty_tensors():
    check(fn_module(lambda x: (x * 2, x.sum(0), x.sum(1))), torch.randn(0, 3))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_an_empty_result_that_a_product_reads(shape):
    def fn(x):
        y = x + 1
        return y @ torch.ones(x.shape[1], 4), y
    check(fn_module(fn), torch.randn(shape))


def test_index_out_of_range():
    fn, _, _ = compiled(fn_module(lambda x, i: x[i]), torch.randn(5), torch.tensor([0, 1]))
    assert fn([torch.arange(5.0), torch.tensor([4, -5])])[0].tolist() == [4.0, 0.0]
    with pytest.raises(IndexError):
        fn([torch.arange(5.0), torch.tensor([0, 5])])


def test_strided_and_offset_inputs():
    base = torch.randn(10, 12)
    check(fn_module(lambda x: (x.t() * 2, torch.mm(x, x.t()))), base[2:6, 3:9])


def test_inference_mode_and_back():
    m = MLP()
    fn, args, _ = compiled(m, torch.randn(4, 16))
    with torch.inference_mode():
        fn(list(args))
    with torch.no_grad():
        torch.testing.assert_close(fn(list(args))[0], m(args[-1]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", ["in place", "data", "load_state_dict"])
def test_changed_parameters_are_never_stale(change):
    m = Block().eval()
    x = torch.randn(2, 8, 6, 6)
    fn, args, _ = compiled(m, x)
    with torch.no_grad():
        fn(list(args))
        if change == "in place":
            m.conv.weight.mul_(2)
        elif change == "data":
            m.bn.running_var.data.add_(3)
        else:
            m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()})
        torch.testing.assert_close(fn(list(args))[0], m(x), rtol=1e-4, atol=1e-4)


def test_no_compiler_runs_eagerly(monkeypatch):
    from minipt2.inductor import compile as stages
    stages._warn_once.cache_clear()
    with config.patch(cc="no-such-compiler"), pytest.warns(UserWarning, match="without compiled kernels"):
        check(Block().eval(), torch.randn(2, 8, 6, 6))


def test_second_process_skips_everything(monkeypatch, tmp_path):
    from minipt2.inductor import compile as stages
    with config.patch(cache_dir=str(tmp_path)):
        check(Attention(), torch.randn(2, 10, 16))

        def refuse(*args):
            raise AssertionError("generated although it was in the cache")
        monkeypatch.setattr(stages, "_generate", refuse)
        monkeypatch.setattr(cache, "_build", refuse)
        check(Attention(), torch.randn(2, 10, 16))
        with pytest.raises(AssertionError, match="although"):  # another graph
            check(Attention(), torch.randn(2, 10, 16).double().float()[:, :5].repeat(1, 2, 1), inference=False)


@pytest.mark.parametrize("a, b", [
    (lambda x: x + 1, lambda x: x + 2), (lambda x: x + 1, lambda x: x + 1.5), (lambda x: x * 0.0, lambda x: x * -0.0),
    (lambda x: x + torch.tensor([1.0, 2.0]), lambda x: x + torch.tensor([1.0, 3.0]))])
def test_graphs_that_differ_little_have_other_keys(a, b):
    from minipt2.inductor.fingerprint import graph_text
    texts = []
    for fn in (a, b):
        gm, _ = inference_graph(fn_module(fn), torch.randn(2))
        texts.append(graph_text(gm))
    assert texts[0] != texts[1]




def test_a_result_that_the_kernel_leaves_undefined():
    """Of ``need_weights=False`` the meta kernel makes an empty tensor, the kernel none."""
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        got = minipt2.compile(attention)(x, x, x, need_weights=False)
        torch.testing.assert_close(got, attention(x, x, x, need_weights=False))
    assert got[1] is None
