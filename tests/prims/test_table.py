"""The set is closed, small and documented; each prim's meta rule says what its reference does."""
import pytest
import torch

from minipt2 import prims
from minipt2.prims import TABLE, TensorMeta
from minipt2.prims.meta import same_layout

KINDS = {"pointwise", "view", "reduction", "index", "contraction", "creation"}


def test_small_and_documented():
    assert len(TABLE) <= 250
    for name, prim in TABLE.items():
        assert getattr(prims, name) is prim and prim.kind in KINDS and prim.doc and prim.schema.startswith(name + "(")
    assert "exp(x: T) -> T" in str(prims.table())


def test_coverage_sorts_every_overload():
    cover = prims.coverage(core_only=True)
    assert not set(cover.decomposed) & set(cover.fallback)
    assert len(cover.decomposed) / (len(cover.decomposed) + len(cover.kept) + len(cover.fallback)) > 0.85


def arguments():
    """One call for each prim that is not elementwise."""
    x, m = torch.randn(2, 3, 4), torch.randn(3, 4)
    image, weight = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last), torch.randn(6, 2, 3, 3)
    conv = ((2, 1), (1, 0), (1, 2), False, (0, 0), 2)
    at = torch.tensor([[0, 1], [1, 0]])
    yield "broadcast_in_dim", (m, (3, 5, 4), (0, 2))
    yield "reshape", (x.permute(2, 0, 1), (8, 3))
    yield "permute", (x, (2, 0, 1))
    yield "slice", (x, (0, 1, 0), (2, 3, 4), (1, 1, 3))
    yield "flip", (x, (0, 2))
    yield "cat", ((x, x), 1)
    yield "pad", (x, (0, 1, -1), (2, 0, 1), 3.0)
    yield "copy_strided", (x, (1, 2, 6))
    yield "full", ((2, 3), 7, torch.int32, torch.device("cpu"))
    yield "iota", (5, 2, 3, torch.float64, torch.device("cpu"))
    yield "gather", (m, 1, at)
    yield "index_select", (x, 1, torch.tensor([2, 0, 2, 1]))
    yield "index", (x, (at, None, at - 1))
    yield "scatter", (m, 1, at, torch.ones(2, 2))
    yield "scatter_add", (m, 0, at, torch.ones(2, 2))
    yield "index_put", (x, (None, at), torch.ones(2, 2, 2, 4), True)
    for name in ("sum", "prod", "amax", "amin"):
        yield name, (x, (0, 2), False)
        yield name, (x, (1,), True)
    yield "any", (x > 0, (0, 1), False)
    yield "all", (x > 0, (0, 1), True)
    yield "argmax", (x, 1, False)
    yield "argmin", (x, None, False)
    yield "var_mean", (x, (0, 2), 1.0, True)
    yield "cumsum", (x, 1)
    yield "mm", (m, m.t())
    yield "bmm", (x, x.transpose(1, 2))
    yield "addmm", (torch.ones(3), m, m.t(), 1, 2)
    yield "baddbmm", (torch.ones(3), x, x.transpose(1, 2), 0.5, 1)
    yield "convolution", (image, weight, torch.ones(6), *conv)
    yield "convolution", (image, torch.randn(4, 3, 2, 2), None, (2, 2), (1, 1), (1, 1), True, (1, 0), 2)
    yield "convolution_backward", (torch.ones(2, 6, 3, 2), image, weight, (6,), *conv, (True, True, False))
    yield "convert", (m, torch.int64)
    yield "bitcast", (m, torch.int32)
    yield "where", (m > 0, m, 1.5)
    yield "valid", (m, m == m)


@pytest.mark.parametrize("name,args", list(arguments()), ids=lambda v: v if isinstance(v, str) else "")
def test_meta_is_what_the_reference_gives(name, args):
    check(TABLE[name], args)


def elementwise_calls():
    floats, ints, bools = torch.rand(3, 4).t() + 1, torch.randint(1, 5, (4, 3)), torch.rand(4, 3) > 0.5
    for prim in TABLE.values():
        if prim.kind != "pointwise" or prim.name in {name for name, _ in arguments()}:
            continue
        x = ints if prim.name.startswith(("bitwise", "shift")) else floats
        other = x.contiguous() if prim.parameters == 2 else None
        yield prim, (x,) if other is None else (x, other)
        if other is not None:
            yield prim, (x, 2)
            yield prim, ((2 if x is ints else 2.0), x)


def test_elementwise_meta():
    calls = list(elementwise_calls())
    assert len(calls) > 100
    for prim, args in calls:
        check(prim, args)


def check(prim, args):
    as_meta = lambda a: TensorMeta.of(a) if isinstance(a, torch.Tensor) else tuple(map(as_meta, a)) if isinstance(a, tuple) else a  # noqa: E731
    metas, results = prim.meta(*map(as_meta, args)), prim(*args)
    if isinstance(metas, TensorMeta):
        metas, results = (metas,), (results,)
    for meta, result in zip(metas, results, strict=True):
        if meta is None:
            continue
        assert (meta.shape, meta.dtype, meta.device) == (tuple(result.shape), result.dtype, result.device), prim
        assert same_layout(meta.shape, meta.strides, result.stride()), (prim, meta, result.stride())


def test_wrong_use_is_refused():
    a = TensorMeta((2, 3), torch.float32, torch.device("cpu"), (3, 1))
    b = TensorMeta((3,), torch.float32, torch.device("cpu"), (1,))
    with pytest.raises(ValueError, match="one dtype and shape"):
        prims.add.meta(a, b)
    with pytest.raises(ValueError, match="has not the elements"):
        prims.reshape.meta(a, (5,))
    with pytest.raises(ValueError, match="inner sizes"):
        prims.mm.meta(a, a)
