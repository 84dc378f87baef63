"""The C toolchain, and what it made, kept on disk by content.

``compile_c(text)`` turns generated C into a loaded library. A library's name is the hash of everything it depends on (text,
flags, compiler, CPU); files appear by atomic rename, end in a checksum of name and content and are made again when that does not fit. A cache
folder that cannot be used is replaced by a private temporary one, so that a full or read-only disk costs time and nothing else. The folder is kept below
``config.cache_megabytes``.
``load_entry``/``store_entry`` keep what ``compile_graph`` made of a whole graph, so that a second process skips it;
``load_bytes``/``store_bytes`` keep what ``backends`` makes of a captured one.
Upstream: ``torch._inductor.codecache`` and ``torch._inductor.cpp_builder``.
"""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator, Sequence

import torch

from ..config import config
from ..errors import BackendError, CompilerNotFound, warn

FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math",
         "-ffp-contract=off", "-w")
"""No ``-ffast-math``: NaN, infinities and signed zeros keep their meaning."""
_MAGIC = b"minipt2\0"
_OURS = re.compile(r"[0-9a-f]{40}\.").match
"""Names of files in the cache folder; others there are not touched."""
_loaded: dict[str, ctypes.CDLL] = {}
_unseen: dict[Path, int] = {}
"""Bytes written into a folder since it was last looked through."""


def digest(*parts: str | bytes) -> str:
    """Hex name for content; each part is length-prefixed, so that parts can't run into each other."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()[:40]


# ------------------------------------------------------------------ toolchain
def find_compiler() -> tuple[str, ...]:
    """Command of the C compiler: ``config.cc``, ``$CC``, then gcc, clang, cc. Raises CompilerNotFound when there is none."""
    named = config.cc or os.environ.get("CC", "")
    for candidate in [named] if config.cc else [named, "gcc", "clang", "cc"]:
        command = shlex.split(candidate)
        path = shutil.which(command[0]) if command else None
        if path is not None:
            return (path, *command[1:])
    raise CompilerNotFound(f"no C compiler found (looked for {named or 'gcc, clang, cc'}); install gcc or set MINIPT2_CC")


@functools.cache
def compiler_identity(command: tuple[str, ...]) -> str:
    """Tells compilers apart without starting one (a start costs 5 ms in each process)."""
    path = os.path.realpath(command[0])
    stat = os.stat(path)
    return f"{path} {stat.st_size} {stat.st_mtime_ns} {' '.join(command[1:])}"


@functools.cache
def cpu_identity() -> str:
    """``-march=native`` means this CPU: its model and features belong to the key."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        import platform
        return platform.processor() + platform.machine()
    keep = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(sorted({line for line in text.splitlines() if line.startswith(keep)}))


@functools.cache
def link_flags(command: tuple[str, ...]) -> tuple[str, ...]:
    """Libraries to link. OpenMP is torch's own libgomp, named by path, so that eager and generated loops share one thread pool."""
    is_clang = "clang" in os.path.basename(os.path.realpath(command[0]))
    bundled = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    openmp = ("-fopenmp",) if is_clang or not bundled else (str(bundled[0]),)
    return (*openmp, "-lm", *(("-lmvec",) if _has_libmvec() else ()))


def _has_libmvec() -> bool:
    with contextlib.suppress(OSError):
        ctypes.CDLL("libmvec.so.1")
        return True
    return False


@functools.cache
def vector_flags() -> tuple[str, ...]:
    """Whole vectors of 512 bits where the CPU does not slow down for them (since Ice Lake, Zen 4), which compilers do not use by themselves: 2 to 3 %
    of a step, 5 where exponentials are."""
    return ("-mprefer-vector-width=512",) if "avx512_vbmi2" in cpu_identity().split() else ()


def toolchain_identity() -> str:
    """Everything besides the text that decides what a library does."""
    command = find_compiler()
    return "\n".join([compiler_identity(command), cpu_identity(), *FLAGS, *vector_flags(), *link_flags(command)])


# ------------------------------------------------------------------ folders and files
@functools.cache
def _private_folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="minipt2-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def folder() -> Path:
    """Where artifacts are kept: the cache folder if it is ours and can be written, else a private one that goes with the process."""
    path = config.cache_path()
    if not config.disk_cache:
        return _private_folder()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = path.stat()
    except OSError as error:
        return _instead_of(path, error.strerror)
    # code is loaded from here: a folder that others may write is not trusted
    if stat.st_uid != os.getuid() or stat.st_mode & 0o022:
        return _instead_of(path, "others may write there")
    return path if os.access(path, os.W_OK | os.X_OK) else _instead_of(path, "it can't be written")


@functools.cache
def _instead_of(path: Path, why: str) -> Path:
    warn(f"minipt2 keeps what it compiles for this process only: {path}: {why}; set MINIPT2_CACHE_DIR to a folder of your own")
    return _private_folder()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; without one (no locks on this file system) work may be done twice, which is harmless."""
    try:
        handle = open(path, "w")
    except OSError:
        yield
        return
    with handle:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _seal(name: str, data: bytes) -> bytes:
    """``data`` as a file of this name: what lies under another's name would load, and be a library with other functions."""
    return data + _MAGIC + _check(name, data)


def _check(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).digest()


def _unseal(path: Path) -> bytes | None:
    """The content of a sealed file; None when it is missing, damaged or another's."""
    try:
        data = path.read_bytes()
        os.utime(path)  # used now: ``_trim`` removes others first
    except OSError:
        return None
    body, magic, check = data[:-40], data[-40:-32], data[-32:]
    return body if magic == _MAGIC and _check(path.name, body) == check else None


def _write(path: Path, data: bytes) -> Path:
    """Put a sealed file in place atomically; falls back to the private folder when the disk refuses. Returns where it is."""
    for where in (lambda: path.parent, _private_folder):  # a private folder is made when it is needed: killed processes leave theirs
        target = where() / path.name
        temporary = target.with_name(f"{target.name}.{os.getpid()}.{id(data):x}.tmp")
        try:
            temporary.write_bytes(_seal(path.name, data))
            os.replace(temporary, target)
            _trim(target.parent, len(data))
            return target
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            failure = error
    raise failure


def _trim(path: Path, written: int) -> None:
    """Remove what was used longest ago, once there is more than ``config.cache_megabytes``; looks at the first write and after many bytes.

    What another process removed, or made, meanwhile is no error; what was used this minute stays, somebody may be about to load it.
    """
    limit = config.cache_megabytes << 20
    _unseen[path] = _unseen.get(path, limit) + written
    if _unseen[path] < limit // 16:
        return
    _unseen[path] = 0
    files = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(path):
            if _OURS(entry.name):
                with contextlib.suppress(OSError):
                    stat = entry.stat(follow_symlinks=False)
                    files.append((stat.st_mtime, stat.st_size, entry.path))
    total, recent = sum(size for _, size, _ in files), time.time() - 60
    for used, size, name in sorted(files):
        if total <= limit or used > recent:
            break
        with contextlib.suppress(OSError):
            os.unlink(name)
        total -= size


# ------------------------------------------------------------------ libraries
def compile_c(text: str | Sequence[str]) -> ctypes.CDLL:
    """Compile C source (several texts: translation units, built side by side) into a loaded shared library.

    Raises CompilerNotFound without a compiler, BackendError when the compiler rejects the text.
    """
    units = [text] if isinstance(text, str) else list(text)
    key = digest(toolchain_identity(), *units)
    if key in _loaded:
        return _loaded[key]
    path = folder() / f"{key}.so"
    library = _load(path)
    if library is None:
        with _locked(path.with_suffix(".lock")):
            library = _load(path) or _load(_write(path, _build(units)), fresh=True)
        with contextlib.suppress(OSError):
            path.with_suffix(".lock").unlink()
    return _loaded.setdefault(key, library)


def _load(path: Path, fresh: bool = False) -> ctypes.CDLL | None:
    """None when the file is missing, damaged or does not load here; a fresh file that does not load is an error."""
    if _unseal(path) is None:
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        if fresh:
            raise BackendError(f"the compiled library does not load: {error}") from error
        return None


def _build(units: Sequence[str]) -> bytes:
    command = find_compiler()
    with tempfile.TemporaryDirectory(prefix="minipt2-build-") as name:
        build = Path(name)
        compiling, objects = [], []
        for k, text in enumerate(units):
            source = build / f"unit{k}.c"
            source.write_text(text)
            objects.append(source.with_suffix(".o"))
            compiling.append(_start([*command, *FLAGS, *vector_flags(), "-c", str(source), "-o", str(objects[-1])]))
        for process, text in zip(compiling, units):
            _finish(process, text)
        library = build / "out.so"
        _finish(_start([*command, "-shared", *map(str, objects), "-o", str(library), *link_flags(command)]), "")
        return library.read_bytes()


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str], text: str) -> None:
    _, messages = process.communicate()
    if process.returncode:
        head = "\n".join(messages.splitlines()[:8])
        kept = _private_folder() / f"rejected-{digest(text)[:12]}.c"
        kept.write_text(text)
        raise BackendError(f"the C compiler failed on generated code (kept as {kept}):\n{head}")


# ------------------------------------------------------------------ whole graphs
def load_bytes(name: str) -> bytes | None:
    """What ``store_bytes`` kept under ``name``; None when missing or damaged."""
    return _unseal(folder() / name) if config.disk_cache else None


def store_bytes(name: str, data: bytes) -> None:
    """Keep ``data``. A disk that refuses is no error."""
    if config.disk_cache:
        with contextlib.suppress(OSError):
            _write(folder() / name, data)


def load_entry(key: str) -> dict[str, Any] | None:
    """What ``store_entry`` kept under ``key``; None when missing or damaged."""
    data = load_bytes(f"{key}.json")
    return None if data is None else json.loads(data)


def store_entry(key: str, entry: dict[str, Any]) -> None:
    """Keep a JSON-able description of a compiled graph."""
    store_bytes(f"{key}.json", json.dumps(entry).encode())
