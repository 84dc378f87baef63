"""Compiled functions among tracers, profilers, threads, processes, other compilers, interrupts and deep stacks."""
import cProfile
import multiprocessing
import signal
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch._C._dynamo import eval_frame as hook

import minipt2
from minipt2.dynamo.guards import Guard, compile_guards
from minipt2.dynamo.source import LocalSource

X = torch.ones(3)
CHILD = "import torch, minipt2\nf = minipt2.compile(lambda x: (x + 1).relu(), backend='eager', fullgraph=True)\n"


def f(x):
    y = x * 2
    print(end="")
    return y + 1


def compiled(fn=f, **options):
    return minipt2.compile(fn, **{"backend": "eager", **options})


def agrees(fn, plain, *args):
    for _ in range(2):
        assert torch.equal(fn(*args), plain(*args))


# ---- tracers and profilers -------------------------------------------------------------------------------------------
class Tracer:
    def __call__(self, frame, event, arg):
        return self


def tracer_that_computes(frame, event, arg):
    torch.ones(2).add(1)
    return tracer_that_computes


@pytest.mark.parametrize("tracer", [Tracer(), tracer_that_computes])
@pytest.mark.parametrize("install", ["settrace", "setprofile"])
def test_tracing_and_profiling_functions(install, tracer):
    before = getattr(sys, install.replace("set", "get"))()
    fn = compiled()
    getattr(sys, install)(tracer)
    try:
        results = [fn(X), fn(X)]
    finally:
        getattr(sys, install)(before)
    assert all(torch.equal(result, f(X)) for result in results)


def test_profilers():
    fn = compiled()
    with cProfile.Profile():
        agrees(fn, f, X)
    with torch.profiler.profile(with_stack=True) as profile:
        agrees(fn, f, X)
    assert any(event.key == "aten::mul" for event in profile.key_averages())


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="CPython 3.12 has sys.monitoring")
def test_monitoring():
    seen, tool = [], sys.monitoring.COVERAGE_ID
    sys.monitoring.use_tool_id(tool, "test")
    sys.monitoring.register_callback(tool, sys.monitoring.events.LINE, lambda code, line: seen.append(line))
    sys.monitoring.set_events(tool, sys.monitoring.events.LINE)
    try:
        agrees(compiled(), f, X)
    finally:
        sys.monitoring.free_tool_id(tool)
    assert seen


# ---- interrupts ------------------------------------------------------------------------------------------------------
@pytest.fixture
def interruptible():
    """Python's own handler, as a terminal's processes have it: one that a shell started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_compiling_takes_effect_and_leaves_nothing_behind(interruptible):
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)])

    def backend(gm, examples):
        signal.raise_signal(signal.SIGINT)
        return gm

    fn = compiled(net, backend=backend)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fn(X)
        assert hook.get_eval_frame_callback() is None and not minipt2.is_compiling()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    agrees(compiled(net), net, X)


def test_an_interrupt_during_a_check_is_not_lost():
    def interrupted(value):
        raise KeyboardInterrupt

    assert not compile_guards([Guard(LocalSource("x"), "CHECK", interrupted)])({"x": 1})
    with pytest.raises(KeyboardInterrupt):
        compiled()(X)
    agrees(compiled(), f, X)


# ---- stacks, code without files --------------------------------------------------------------------------------------
def test_recursion():
    def power(x, n):
        return x if n == 0 else power(x, n - 1) * 2

    agrees(compiled(power), power, X, 5)

    def endless(x):
        return endless(x + 1)

    with pytest.raises(RecursionError):
        compiled(endless)(X)
    agrees(compiled(), f, X)


def test_compiling_near_the_end_of_the_stack():
    fn = compiled()

    def down(n):
        return fn(X) if n == 0 else down(n - 1)

    limit = sys.getrecursionlimit()
    for n in range(limit - 200, 100, -150):
        try:
            down(n)
        except RecursionError:
            continue
    agrees(fn, f, X)


@pytest.mark.parametrize("file", ["<string>", "<stdin>", "<ipython-input-3-abc>", "/tmp/ipykernel_12/34.py", "/nowhere/gone.py"])
def test_code_without_a_file(file):
    scope = {"torch": torch}
    minipt2.reset()
    exec(compile("def g(x):\n    print(end='')\n    return x * 2", file, "exec"), scope)
    agrees(compiled(scope["g"]), scope["g"], X)
    assert minipt2.counters()["graphs"] == 1


def test_without_assertions():
    run = subprocess.run([sys.executable, "-O", "-c", CHILD + "print(f(torch.ones(2)), minipt2.counters()['graphs'])"],
                         capture_output=True, text=True, input="", timeout=300)
    assert "tensor([2., 2.]) 1" in run.stdout, run.stderr


# ---- threads and processes -------------------------------------------------------------------------------------------
def test_threads_that_meet_at_one_function_compile_it_once():
    minipt2.reset()
    fn, errors, barrier = compiled(lambda x: x * 2 + 1), [], threading.Barrier(6)

    def work():
        try:
            barrier.wait()
            agrees(fn, lambda x: x * 2 + 1, X)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors and minipt2.counters()["graphs"] == 1 and minipt2.counters()["recompiles"] == 0


shared = compiled()


class Computed(torch.utils.data.Dataset):
    """Uses a compiled function that workers find by its name, and a compiled module that they are sent."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 4

    def __getitem__(self, index):
        with torch.no_grad():
            return self.model(shared(torch.full((3,), float(index)))), minipt2.counters()["graphs"]


@pytest.mark.parametrize("method, workers", [("fork", 2), ("spawn", 1)])
def test_workers_of_a_loader(method, workers, fresh):
    agrees(shared, f, X)
    model = compiled(nn.Sequential(nn.ReLU(), nn.Threshold(3.0, 0.0)))
    loader = torch.utils.data.DataLoader(Computed(model), batch_size=2, num_workers=workers, multiprocessing_context=multiprocessing.get_context(method))
    batches = list(loader)
    assert [rows[:, 0].tolist() for rows, _ in batches] == [[0.0, 0.0], [5.0, 7.0]]
    assert all(int(graphs.max()) >= 3 for _, graphs in batches)  # the worker's own


FORKING = """
import os, sys, threading
compiling, done = threading.Event(), threading.Event()

def slow(gm, examples):
    compiling.set()
    done.wait()
    return gm.forward

thread = threading.Thread(target=minipt2.compile(lambda x: x * 2, backend=slow), args=(torch.ones(2),))
thread.start()
compiling.wait()
child = os.fork()
if not child:
    print(f(torch.ones(2)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
done.set()
thread.join()
"""


def test_a_fork_while_another_thread_compiles():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD + FORKING], capture_output=True, text=True, timeout=120)
    assert "tensor([2., 2.])" in run.stdout, run.stderr


# ---- other compilers -------------------------------------------------------------------------------------------------
def helper(x):
    print(end="")
    return x * 5


def calls_helper(x):
    return helper(x) + 1


@pytest.fixture(scope="module", autouse=True)
def modules_as_before():
    """``torch.compile`` wraps ``nn.Module.__init__`` for good; other tests make modules within captured code."""
    before = nn.Module.__init__
    yield
    nn.Module.__init__ = before


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_within_and_around_torch_compile():
    upstream = lambda fn: torch.compile(fn, backend="eager")  # noqa: E731
    net = nn.Linear(3, 3)
    for first, second in ((compiled, upstream), (upstream, compiled)):
        inner = first(lambda x: x + 1)
        agrees(second(lambda x: inner(x) * 2), lambda x: (x + 1) * 2, X)
        agrees(second(first(net)), net, X)


def test_other_tracers_record_the_original():
    from torch.fx.experimental.proxy_tensor import make_fx

    fn = lambda x: x.sin() * 2 + x  # noqa: E731
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    for ours, plain in ((compiled(fn, backend="inductor"), fn), (compiled(net, backend="inductor"), net)):
        for calls in range(2):
            for trace in (lambda f: torch.jit.trace(f, X), lambda f: make_fx(f)(X)):
                assert torch.allclose(trace(ours)(X * 3), plain(X * 3))
            ours(X)


def test_both_compilers_on_the_same_functions():
    ours, theirs = compiled(calls_helper), torch.compile(calls_helper, backend="eager")
    for _ in range(2):
        for x in (X, X.double(), X.long()):
            agrees(ours, calls_helper, x)
            agrees(theirs, calls_helper, x)
    minipt2.reset()
    torch.compiler.reset()
    agrees(theirs, calls_helper, X)
    agrees(ours, calls_helper, X)


def test_compiled_within_compiled():
    inner = compiled(lambda x: x.sin())

    def outer(x):
        print(end="")
        return inner(x) + 1

    agrees(compiled(outer), lambda x: x.sin() + 1, X)
    net = nn.Sequential(compiled(nn.Linear(3, 3)), nn.ReLU())
    agrees(compiled(net), net, X)
