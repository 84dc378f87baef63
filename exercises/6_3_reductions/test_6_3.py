import ctypes

import pytest
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.inductor.cache import compile_c
from minipt2.inductor.codegen.c_openmp_reduce import reduce

EAGER = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}
TYPES = {torch.float32: "float", torch.float64: "double", torch.int32: "int32_t", torch.int64: "int64_t"}


def run(kind, x):
    """The generated text as a C function on the memory of ``x``."""
    ctype = TYPES[x.dtype]
    text = f"#include <stdint.h>\nvoid k(const {ctype}* in, {ctype}* out, int n) {{\n{reduce(kind, x.dtype, 'in[i]', 'n')}\nout[0] = acc;\n}}\n"
    out = torch.empty(1, dtype=x.dtype)
    compile_c(text).k(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), x.numel())
    return out[0]


@pytest.mark.parametrize("kind", EAGER)
@pytest.mark.parametrize("dtype", TYPES)
def test_identities_change_nothing(kind, dtype):
    """One element, and a few of both signs."""
    for values in ([-3], [5], [2, -7, 3], [-1, -2]):
        x = torch.tensor(values).to(dtype)
        same(run(kind, x), EAGER[kind](x).to(dtype), where=f"{kind} of {values}")


def test_all_negative():
    """The maximum of negative numbers is negative."""
    x = -torch.rand(100) - 1
    same(run("max", x), x.max())
    same(run("min", -x), (-x).min())


def test_nan_is_remembered():
    """Wherever it stands."""
    for place in (0, 17, 99):
        x = torch.randn(100)
        x[place] = float("nan")
        for kind in ("max", "min", "sum"):
            assert torch.isnan(run(kind, x)), f"{kind} lost the NaN at {place}"


def test_infinities():
    """They are numbers like others."""
    x = torch.tensor([1.0, float("inf"), -float("inf")])
    same(run("max", x), x.max())
    same(run("min", x), x.min())
    same(run("max", torch.full((5,), -float("inf"))), torch.tensor(-float("inf")))


def test_nothing():
    """Over no element comes the identity."""
    same(run("sum", torch.empty(0)), torch.tensor(0.0))
    same(run("prod", torch.empty(0)), torch.tensor(1.0))


def test_ragged_tails():
    """Lengths that fill no whole vector."""
    for n in (1, 7, 8, 9, 31, 33):
        x = torch.randn(n)
        same(run("sum", x), x.sum(), rtol=1e-5, atol=1e-5)
        same(run("max", x), x.max())


def test_compiled_reductions():
    """The whole compiler on your text."""
    def fn(x, k):
        return x.amax(1), x.amin(0), x.sum(), k.prod(1), (x > 0).any(1), (x > -9).all(), k.amax(), x.argmax(1)
    torch.manual_seed(0)
    x, k = torch.randn(5, 33) - 3, torch.randint(1, 4, (3, 5))
    same(list(minipt2.compile(fn)(x, k)), list(fn(x, k)), rtol=1e-4, atol=1e-4)
