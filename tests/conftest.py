"""Tests run on one thread, with the disk cache in a folder of their own, and fail on faults of minipt2 that users would not see."""
import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TRITON_INTERPRET"] = "1"  # before anybody imports Triton

import pytest
import torch
from hypothesis import settings

from minipt2.config import config

settings.register_profile("quick", max_examples=200, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=3000, deadline=None, derandomize=False)
settings.load_profile("quick")

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache():
    with tempfile.TemporaryDirectory(prefix="minipt2-tests-") as folder, config.patch(cache_dir=folder):
        yield folder


@pytest.fixture(autouse=True)
def loud():
    """Internal faults raise instead of falling back to eager."""
    with config.patch(raise_internal_errors=True):
        yield


@pytest.fixture
def fresh():
    """No compiled entries and counters at zero, before and after."""
    import minipt2
    minipt2.reset()
    yield
    minipt2.reset()
