"""Candidates being compiled: what is called off when time is up."""
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from minipt2.config import config
from minipt2.errors import BackendError
from minipt2.inductor import triton_pool
from minipt2.inductor.autotune.bench import LATE, finished, in_turns


def test_what_nobody_has_begun_is_called_off():
    begun, go = Event(), Event()

    def refused():
        raise BackendError("rejected\nfor a reason")

    def long():
        begun.set()
        go.wait()
    with ThreadPoolExecutor(1) as pool:
        made = {"done": pool.submit(int), "wrong": pool.submit(refused), "running": pool.submit(long), "waiting": pool.submit(int)}
        begun.wait()
        assert finished(made, 0.0) == {"wrong": "rejected", "running": LATE, "waiting": LATE}
        assert made["waiting"].cancelled() and not made["running"].cancelled()
        go.set()
    assert finished({"again": made["waiting"]}, 0.0) == {"again": LATE}


def test_a_kernel_that_was_called_off_is_compiled_when_it_is_needed(monkeypatch, tmp_path):
    waiting = []

    class Pool:
        def submit(self, key, request):
            waiting.append(Future())
            return waiting[-1]
    monkeypatch.setattr(triton_pool, "_pool", lambda pid: Pool())
    monkeypatch.setattr(triton_pool, "_pending", {})
    program = {"text": "import\ndef name(\nbody", "name": "name", "signature": [], "aligned": [], "warps": 4, "stages": 1}
    with config.patch(cache_dir=str(tmp_path)):
        first, same = (triton_pool.submit([program], 90)[0] for _ in range(2))
        assert first is same and len(waiting) == 1
        first.cancel()
        assert triton_pool.submit([program], 90)[0] is waiting[1]


def test_candidates_take_turns():
    assert list(in_turns(["ab", "", "cde"])) == [(0, "a"), (2, "c"), (0, "b"), (2, "d"), (2, "e")]
