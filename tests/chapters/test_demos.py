"""Each chapter's demo runs as a newcomer runs it."""
import os
import subprocess
import sys

import pytest

from chapters import book

DEMOS = sorted(book.ROOT.glob("chapters/*/demo.py"))


@pytest.mark.parametrize("demo", DEMOS, ids=lambda f: f.parent.name)
def test_demo_runs(demo, own_cache):
    environment = {**os.environ, "PYTHONPATH": str(book.ROOT), "MINIPT2_CACHE_DIR": own_cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(demo)], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert "---" in done.stdout and "Warning" not in done.stderr
