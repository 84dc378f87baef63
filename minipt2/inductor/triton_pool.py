"""Triton kernels compiled in processes of their own while this one goes on, each once, and kept on disk.

``submit(programs, capability)`` returns a future for each: machine code and launch data. What the disk cache has is not compiled again.
Upstream: ``torch._inductor.async_compile`` and Triton's own cache.
"""
from __future__ import annotations

import atexit
import functools
import importlib.metadata
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Sequence

from .. import trace
from ..errors import BackendError
from . import cache
from .codegen.triton_ops import helpers
from .triton_worker import HEADER

MOST = 16
"""Processes at most; each takes about 200 MB."""
Made = tuple[bytes, dict[str, Any]]


@functools.cache
def triton_version() -> str | None:
    """None where Triton is not installed."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def submit(programs: Sequence[dict[str, Any]], capability: int) -> list["Future[Made]"]:
    """Machine code for ``programs`` (``vars`` of ``codegen.triton.Program``), in order."""
    return [_submit(p, capability) for p in programs]


_pending: dict[str, "Future[Made]"] = {}
"""Kernels of this process by key, compiled or being compiled."""
os.register_at_fork(after_in_child=_pending.clear)


def _submit(program: dict[str, Any], capability: int) -> "Future[Made]":
    # the same body under another name is the same kernel: names are for profiles
    body = program["text"].split("\n", 2)[2]
    key = cache.digest(body, repr((program["signature"], program["aligned"], program["warps"], program["stages"], capability)),
                       helpers(body), str(triton_version()))
    if key not in _pending or _pending[key].cancelled():
        _pending[key] = _stored(key) or _pool(os.getpid()).submit(key, _request(program, capability))
    return _pending[key]


def _request(program: dict[str, Any], capability: int) -> tuple[Any, ...]:
    text = f"{HEADER}\n{helpers(program['text'])}\n{program['text']}"
    return (text, program["name"], tuple(program["signature"]), tuple(program["aligned"]), program["warps"], program["stages"], capability)


def _stored(key: str) -> "Future[Made] | None":
    data = cache.load_bytes(f"{key}.cubin")
    if data is None:
        return None
    found: Future[Made] = Future()
    head, _, binary = data.partition(b"\n")
    found.set_result((binary, json.loads(head)))
    return found


@functools.lru_cache(1)
def _pool(pid: int) -> "Pool":
    """The pool of this process; one that a parent started is not ours."""
    return Pool()


def start() -> None:
    """Have a first process ready by the time there is something to compile."""
    pool = _pool(os.getpid())
    pool.executor.submit(pool.process)


def _cores() -> int:
    """That this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """Threads, each with a compiling process that it talks to."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(min(_cores(), MOST), "minipt2-triton")
        self.local = threading.local()
        self.folder = Path(tempfile.mkdtemp(prefix="minipt2-triton-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def submit(self, key: str, request: tuple[Any, ...]) -> "Future[Made]":
        return self.executor.submit(self._compile, key, request)

    def process(self) -> subprocess.Popen:
        """The process of the thread at hand."""
        found = getattr(self.local, "process", None)
        if found is None or found.poll() is not None:
            environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
            environment.update(TRITON_CACHE_DIR=str(self.folder), TRITON_STORE_BINARY_ONLY="1", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
            script = Path(__file__).with_name("triton_worker.py")
            found = self.local.process = subprocess.Popen([sys.executable, "-P", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                          stderr=subprocess.DEVNULL, env=environment)
        return found

    def _compile(self, key: str, request: tuple[Any, ...]) -> Made:
        process = self.process()
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, OSError) as error:
            raise BackendError(f"the process that compiles Triton kernels ended while at {request[1]}") from error
        if isinstance(answer, str):
            raise BackendError(f"Triton rejected the generated kernel {request[1]}: {answer}\n{request[0]}")
        trace.count("triton_compiled")
        binary, launch = answer
        cache.store_bytes(f"{key}.cubin", json.dumps(launch).encode() + b"\n" + binary)
        return answer
