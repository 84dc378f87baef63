"""Nothing that was captured changes unnoticed: torch's functions and modes, and the tensors that come in."""
import contextlib
import math
import os
import warnings
from unittest import mock

import pytest
import torch
from torch import nn

import minipt2

from changes import fresh, noticed, outcome, patch

ROWS = {
    "torch_function": ("torch.relu(x)", lambda: patch(torch, "relu", torch.neg)),
    "functional": ("torch.nn.functional.relu(x)", lambda: patch(torch.nn.functional, "relu", torch.neg)),
    "functional_used_by_a_module": ("nn.ReLU()(x)", lambda: patch(torch.nn.functional, "relu", lambda x, inplace=False: -x)),
    "tensor_method": ("x.relu()", lambda: patch(torch.Tensor, "relu", lambda x: -x)),
    "tensor_operator": ("x + 1", lambda: patch(torch.Tensor, "__add__", lambda a, b: a * 10)),
    "tensor_attribute_added": ("getattr(x, 'extra', 1) * x", lambda: patch(torch.Tensor, "extra", 5)),
    "python_math": ("x * math.sqrt(4)", lambda: patch(math, "sqrt", lambda n: 100)),
    "grad_mode": ("x * weight", torch.no_grad),
    "grad_mode_asked": ("x + torch.is_grad_enabled()", torch.no_grad),
    "inference_mode": ("x + 1", torch.inference_mode),
    "inference_mode_asked": ("x + torch.is_inference_mode_enabled()", torch.inference_mode),
    "autocast": ("x @ x.t()", lambda: torch.autocast("cpu", torch.bfloat16)),
    "autocast_asked": ("x + torch.is_autocast_enabled('cpu')", lambda: torch.autocast("cpu", torch.bfloat16)),
    "default_dtype": ("x + torch.ones(3)", lambda: default_dtype(torch.float64)),
    "default_device": ("torch.ones(3)", lambda: torch.device("meta")),
    "deterministic": ("x + torch.are_deterministic_algorithms_enabled()", lambda: deterministic(True, False)),
    "deterministic_warn_only": ("x + torch.is_deterministic_algorithms_warn_only_enabled()", lambda: deterministic(True, True)),
    "threads_asked": ("x + torch.get_num_threads()", lambda: threads(torch.get_num_threads() + 1)),
    "backend_flag": ("x + torch.backends.cudnn.benchmark", lambda: cudnn("benchmark", True)),
    "backend_flag_deterministic": ("x + torch.backends.cudnn.deterministic", lambda: cudnn("deterministic", True)),
    "backend_flag_tf32": ("x + torch.backends.cuda.matmul.allow_tf32", lambda: tf32(True)),
    "matmul_precision": ("x + len(torch.get_float32_matmul_precision())", lambda: matmul_precision("medium")),
    "mkldnn_flag": ("x + torch.backends.mkldnn.enabled", lambda: torch.backends.mkldnn.flags(enabled=False)),
    "anomaly_mode": ("x + torch.is_anomaly_enabled()", torch.autograd.detect_anomaly),
    "saved_tensors_hooks": ("(x * weight).sum()", lambda: torch.autograd.graph.save_on_cpu()),
    "sdpa_flag": ("x + torch.backends.cuda.math_sdp_enabled()", lambda: sdpa(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION)),
    "function_mode": ("x + 1", lambda: Tenfold()),
    "tracing_asked": ("x + torch.jit.is_tracing()", contextlib.nullcontext),
    "environment_variable": ("x + ('MINIPT2_TEST_FLAG' in os.environ)", lambda: mock.patch.dict(os.environ, {"MINIPT2_TEST_FLAG": "1"})),
    "config_object": ("x + minipt2.config.recompile_limit", lambda: minipt2.config.patch(recompile_limit=100)),
}  # fmt: skip


class Tenfold(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 10 if func is torch.Tensor.add else out


def restored(get, put):
    @contextlib.contextmanager
    def change(value):
        before = get()
        put(value)
        try:
            yield
        finally:
            put(before)

    return change


default_dtype = restored(torch.get_default_dtype, torch.set_default_dtype)
threads = restored(torch.get_num_threads, torch.set_num_threads)
matmul_precision = restored(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)


tf32 = restored(lambda: torch.backends.cuda.matmul.allow_tf32, lambda on: setattr(torch.backends.cuda.matmul, "allow_tf32", on))


def cudnn(name, on):
    now = {flag: getattr(torch.backends.cudnn, flag) for flag in ("enabled", "benchmark", "deterministic", "allow_tf32")}
    return torch.backends.cudnn.flags(**{**now, name: on})  # torch's own test helpers forbid plain assignment


def sdpa(kind):
    return torch.nn.attention.sdpa_kernel(kind)


@contextlib.contextmanager
def deterministic(enabled, warn_only):
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ROWS)
def test_a_change_of_torch_is_noticed(name):
    text, change = ROWS[name]
    scope = dict(minipt2=minipt2, math=math, os=os, weight=nn.Parameter(torch.ones(3)))
    noticed(lambda: (fresh(f"def fn(x):\n    return {text}\n", **scope)["fn"], change), backend="aot_eager")


# ---- inputs ------------------------------------------------------------------------------------------------------
class Sub(torch.Tensor):
    pass


BASE = torch.arange(12.0).reshape(3, 4)
warnings.filterwarnings("ignore", "Sparse CSR tensor support")
INPUTS = {
    "dtype": BASE.double(), "complex": BASE.to(torch.complex64), "int": BASE.long(), "bool": BASE.bool(), "size": torch.ones(4, 4), "rank": torch.ones(3, 4, 1),
    "scalar": torch.tensor(2.0), "empty": torch.ones(0, 4), "one": torch.ones(1, 1), "strides": torch.ones(4, 3).t(), "sliced": torch.ones(3, 8)[:, ::2],
    "expanded": torch.ones(1, 4).expand(3, 4), "offset": torch.ones(13)[1:].view(3, 4), "requires_grad": BASE.clone().requires_grad_(),
    "not_a_leaf": BASE.clone().requires_grad_() * 2, "parameter": nn.Parameter(BASE.clone()), "meta": BASE.to("meta"), "subclass": BASE.as_subclass(Sub),
    "conjugate": BASE.to(torch.complex64).conj(), "negation": BASE.to(torch.complex64).conj().imag, "sparse": BASE.to_sparse(), "mkldnn": BASE.to_mkldnn(), "csr": BASE.to_sparse_csr(),
    "number": 2, "float": 2.0, "none": None, "list": [1.0], "inference": torch.inference_mode()(torch.ones)(3, 4), "numpy": BASE.numpy(),
}  # fmt: skip


def probe(x):
    if isinstance(x, torch.Tensor):
        return x * 2, x.dtype, tuple(x.shape), x.is_contiguous(), x.requires_grad, x.is_leaf, x.device, x.dim(), x.is_sparse, x.is_inference(), x.storage_offset()
    return x, type(x)


@pytest.mark.parametrize("first", ["size", "strides", "offset", "requires_grad", "not_a_leaf", "inference", "scalar", "number", "none"])
def test_any_other_input_is_noticed(first, monkeypatch):
    """One entry, then calls it must not answer: they run eagerly, since the limit is reached."""
    monkeypatch.setattr(minipt2.config, "recompile_limit", 1)
    compiled = minipt2.compile(probe, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (first, *INPUTS):
            assert outcome(compiled, INPUTS[name]) == outcome(probe, INPUTS[name]), (first, name)


@pytest.mark.parametrize("make", [
    lambda t: (t, t.clone()), lambda t: (t, t), lambda t: (t, t.view(3, 4)), lambda t: (t[:2], t[1:]), lambda t: (t.view(12)[:6], t.view(12)[6:]),
    lambda t: (t.expand(1, 3, 4), t),
])  # fmt: skip
@pytest.mark.parametrize("first", [lambda t: (t, t.clone()), lambda t: (t, t)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore:minipt2 could not compile")
def test_aliasing_of_inputs_is_noticed(first, make, backend, monkeypatch):
    def fn(a, b):
        a.add_(1)
        c = b * 2
        b.mul_(3)
        return a + 1, c, b - 1

    monkeypatch.setattr(minipt2.config, "raise_internal_errors", False)  # inputs in one storage may be left to eager
    compiled = minipt2.compile(fn, backend=backend)
    compiled(*first(torch.ones(3, 4)))
    t, u = torch.ones(3, 4), torch.ones(3, 4)
    assert outcome(compiled, *make(t)) == outcome(fn, *make(u)) and torch.equal(t, u)
