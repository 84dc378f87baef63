"""The set is closed, small and documented; each prim's meta rule says what its reference does."""
import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode, UnsupportedOperatorException
from torch.utils._pytree import tree_map

from minipt2 import prims
from minipt2.prims import TABLE, TensorMeta
from minipt2.prims.meta import same_layout

from .calls import calls

KINDS = {"pointwise", "view", "reduction", "index", "contraction", "creation", "random"}


def test_small_and_documented():
    assert len(TABLE) <= 250
    for name, prim in TABLE.items():
        assert getattr(prims, name) is prim and prim.kind in KINDS and prim.doc and prim.schema.startswith(name + "(")


@pytest.mark.parametrize("name", sorted(TABLE))
def test_meta_is_what_the_reference_gives(name):
    for args in calls(name):
        check(TABLE[name], args, TABLE[name](*args))


def layouts(x):
    """``x`` in other memory: column by column, every second element, one element for a whole dimension."""
    backwards = tuple(reversed(range(x.ndim)))
    yield x.permute(backwards).contiguous().permute(backwards)
    yield torch.stack([x, x], -1)[..., 0]
    if x.ndim:
        yield x[:1].expand(x.shape)


ARRANGED = sorted(n for n, prim in TABLE.items() if prim.kind in ("pointwise", "view", "reduction", "index"))


def arrangements(name):
    """The calls of a prim with its operands in each of the layouts."""
    for args in calls(name):
        if isinstance(args[0], tuple):
            yield args
        else:
            yield from zip(*[layouts(a) if isinstance(a, torch.Tensor) else [a] * 3 for a in args])


@pytest.mark.filterwarnings("ignore:.*non-contiguous")
@pytest.mark.parametrize("name", ARRANGED)
def test_meta_in_other_layouts(name):
    for args in arrangements(name):
        check(TABLE[name], args, TABLE[name](*args))


PYTHON_RULES = ("copysign", "floordiv")
"""Prims whose strides FakeTensor takes from a Python reference that, unlike the kernels, prefers row-major."""


@pytest.mark.parametrize("name", ARRANGED)
def test_meta_is_what_fake_tensors_say(name):
    checked = 0
    for args in list(arrangements(name))[:4]:
        with FakeTensorMode() as mode:
            try:
                results = TABLE[name].ref(*tree_map(lambda a: mode.from_tensor(a) if isinstance(a, torch.Tensor) else a, args))
            except (UnsupportedOperatorException, DataDependentOutputException):  # nothing that FakeTensor could tell
                continue
        check(TABLE[name], args, results, strides=name not in PYTHON_RULES)
        checked += 1
    assert checked or name == "valid"


def check(prim, args, results, strides=True):
    as_meta = lambda a: TensorMeta.of(a) if isinstance(a, torch.Tensor) else tuple(map(as_meta, a)) if isinstance(a, tuple) else a  # noqa: E731
    metas = prim.meta(*map(as_meta, args))
    if isinstance(metas, TensorMeta):
        metas, results = (metas,), (results,)
    for meta, result in zip(metas, results, strict=True):
        if meta is None:
            continue
        assert (meta.shape, meta.dtype, meta.device) == (tuple(result.shape), result.dtype, result.device), prim
        assert not strides or same_layout(meta.shape, meta.strides, result.stride()), (prim, meta, result.stride())


def test_wrong_use_is_refused():
    a = TensorMeta((2, 3), torch.float32, torch.device("cpu"), (3, 1))
    b = TensorMeta((3,), torch.float32, torch.device("cpu"), (1,))
    with pytest.raises(ValueError, match="one dtype and shape"):
        prims.add.meta(a, b)
    with pytest.raises(ValueError, match="has not the elements"):
        prims.reshape.meta(a, (5,))
    with pytest.raises(ValueError, match="inner sizes"):
        prims.mm.meta(a, a)
