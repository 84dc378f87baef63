"""Whether this machine has what the course needs, and what is left out if not."""
from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

Finding = tuple[str, bool, str]

_OPENMP = "#include <omp.h>\nint threads(void) { return omp_get_max_threads(); }\n"


def findings() -> list[Finding]:
    """Name, whether it is well, and what it means for the course."""
    return [_python(), _system(), _torch(), *_compiler(), _libmvec(), _triton(), _folder()]


def _python() -> Finding:
    well = (3, 11) <= sys.version_info[:2] <= (3, 13) and platform.python_implementation() == "CPython"
    return "Python", well, f"{platform.python_implementation()} {platform.python_version()}" + ("" if well else ": the course needs CPython 3.11 to 3.13")


def _system() -> Finding:
    if sys.platform in ("linux", "darwin"):
        return "system", True, platform.platform()
    return "system", False, f"{platform.platform()}: on Windows, work inside WSL"


def _torch() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return "torch", False, "not installed: pip install torch"
    import torch
    return "torch", True, torch.__version__


def _compiler() -> list[Finding]:
    command = os.environ.get("CC") or next((c for c in ("gcc", "clang", "cc") if shutil.which(c)), "")
    if not command:
        return [("C compiler", False, "none found: install gcc; exercises of chapters 0 and 6 that run C cannot be checked, the rest can")]
    version = subprocess.run([*command.split(), "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(_OPENMP)
        made = subprocess.run([*command.split(), "-shared", "-fPIC", "-fopenmp", str(source), "-o", str(source.with_suffix(".so"))], capture_output=True, text=True)
    openmp = "kernels run on several threads" if made.returncode == 0 else f"not usable, kernels run on one thread: {made.stderr.strip()[:200]}"
    return [("C compiler", True, version), ("OpenMP", made.returncode == 0, openmp)]


def _libmvec() -> Finding:
    well = ctypes.util.find_library("mvec") is not None or Path(f"/lib/{platform.machine()}-linux-gnu/libmvec.so.1").exists()
    return "libmvec", well, "vector forms of libm" if well else "not there: some functions stay scalar, nothing else changes"


def _triton() -> Finding:
    well = importlib.util.find_spec("triton") is not None
    return "Triton", well, "kernels run in its interpreter without a GPU" if well else "not installed: exercises with the target 'interpreter' are skipped"


def _folder() -> Finding:
    well = os.access(".", os.W_OK)
    return "folder", well, f"{Path.cwd()}" + ("" if well else " cannot be written: progress is not kept")
