"""What surrounds a compiled model in real life: missing tools, broken caches, threads, processes, errors, parameter updates."""
import os
import subprocess
import sys
import textwrap
import threading
import traceback

import pytest
import torch
from torch import nn

import minipt2
from minipt2 import models

from .compare import assert_same


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    env = dict(os.environ, OMP_NUM_THREADS="1", **environment)
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=env, timeout=240)


PROGRAM = """
    import torch, minipt2
    def f(x):
        return torch.softmax(torch.sin(x) * 3 + 1, -1).sum(0)
    x = torch.linspace(-2, 2, 60).reshape(6, 10)
    out = minipt2.compile(f)(x)
    assert torch.allclose(out, f(x), atol=1e-6), (out, f(x))
    print("fallbacks", minipt2.counters()["fallbacks"], "kernels", minipt2.counters()["kernels"])
"""


def kernels(done: subprocess.CompletedProcess) -> int:
    return int(done.stdout.split("kernels ")[1])


def test_without_a_c_compiler_kernels_run_eagerly_with_one_warning(tmp_path):
    done = run_python(PROGRAM, MINIPT2_CC="no-such-compiler", MINIPT2_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert kernels(done) == 0
    assert done.stderr.count("compiler") >= 1 and "Traceback" not in done.stderr
    assert "fallbacks 0" not in done.stdout


def test_unwritable_cache(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    for path in (blocked / "cache", blocked):
        done = run_python(PROGRAM, MINIPT2_CACHE_DIR=str(path))
        assert done.returncode == 0, done.stderr
        assert kernels(done) > 0
        assert done.stderr.count("for this process only") == 1 and str(path) in done.stderr


def test_damaged_cache_is_rebuilt(tmp_path):
    cache = tmp_path / "cache"
    first = kernels(run_python(PROGRAM, MINIPT2_CACHE_DIR=str(cache)))
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = run_python(PROGRAM, MINIPT2_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    assert kernels(done) == first > 0


def test_two_processes_compile_the_same_thing(tmp_path):
    env = dict(os.environ, OMP_NUM_THREADS="1", MINIPT2_CACHE_DIR=str(tmp_path / "cache"))
    both = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM)], env=env, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, stderr = process.communicate(timeout=240)
        assert process.returncode == 0, stderr


def test_two_threads_compile_and_call(fresh):
    model = mlp().eval()
    compiled, failures = minipt2.compile(model), []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            for _ in range(20):
                x = torch.randn(5, 8, generator=generator)
                with torch.no_grad():
                    assert_same(model(x), compiled(x))
        except BaseException:
            failures.append(traceback.format_exc())
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_users_exception_shows_the_users_line(fresh):
    def f(x, names):
        y = x * 2
        if "missing" not in names:
            raise KeyError("missing")  # the line users must see
        return y

    with pytest.raises(KeyError) as caught:
        minipt2.compile(f)(torch.randn(3), {"present": 1})
    text = "".join(traceback.format_exception(caught.value))
    assert "the line users must see" in text
    assert_same(torch.ones(3) * 2, minipt2.compile(f)(torch.ones(3), {"missing": 1}))


@pytest.mark.parametrize("update", ["no_grad", "data", "load_state_dict", "replace"])
def test_frozen_work_notices_parameter_updates(update, fresh):
    model = models.build("resnet18", "small").eval()
    x = models.inputs("resnet18", "small")
    compiled = minipt2.compile(model)
    with torch.no_grad():
        assert_same(model(*x), compiled(*x), 1e-3)
        conv = model.stages[0].conv1
        if update == "no_grad":
            conv.weight.mul_(1.5)
        elif update == "data":
            conv.weight.data.mul_(1.5)
        elif update == "load_state_dict":
            state = {k: v * 1.2 if v.is_floating_point() else v for k, v in model.state_dict().items()}
            model.load_state_dict(state)
        else:
            conv.weight = nn.Parameter(conv.weight * 1.5)
        assert_same(model(*x), compiled(*x), 1e-3)
        model.stages[0].bn1.running_mean.add_(0.1)
        assert_same(model(*x), compiled(*x), 1e-3)


def test_gradient_accumulation_and_retained_graphs(fresh):
    model, twin = mlp(), mlp()
    compiled, x = minipt2.compile(twin), torch.randn(5, 8)
    for call in (model, compiled):
        for k in range(3):
            call(x * (k + 1)).square().mean().backward()
        loss = call(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)
    loss = compiled(x).sum()
    loss.backward()
    with pytest.raises(RuntimeError):
        loss.backward()


def test_outputs_stay_valid_over_calls(fresh):
    """Memory planned for one call may not be handed out again while an earlier result lives."""
    compiled, model = minipt2.compile(mlp().eval()), mlp().eval()
    with torch.no_grad():
        inputs = [torch.randn(5, 8) for _ in range(4)]
        outputs = [compiled(x) for x in inputs]
        for x, y in zip(inputs, outputs):
            assert_same(model(x), y)


def test_out_of_range_index_raises(fresh):
    table = torch.randn(10, 4)
    compiled = minipt2.compile(lambda i: table[i] * 2)
    assert_same(table[torch.tensor([1, -1])] * 2, compiled(torch.tensor([1, -1])))
    with pytest.raises(IndexError):
        compiled(torch.tensor([3, 10]))


def test_empty_and_scalar_tensors(fresh):
    compiled = minipt2.compile(lambda x: torch.relu(x).sum(-1) + 1)
    for shape in ((0, 3), (3, 0), (3,), (2, 3, 4)):
        x = torch.randn(shape)
        assert_same(torch.relu(x).sum(-1) + 1, compiled(x))
    scalar = torch.tensor(2.0)
    assert_same(torch.sin(scalar) * 2, minipt2.compile(lambda x: torch.sin(x) * 2)(scalar))
