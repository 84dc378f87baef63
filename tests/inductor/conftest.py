"""Fixtures of the Triton tests: kernels under Triton's interpreter, with blocks as for a small GPU or for a large one."""
import importlib

import pytest

from minipt2.config import config
from minipt2.inductor.hardware import REFERENCE


@pytest.fixture
def interpreted(fresh):
    with config.patch(triton_interpret=True):
        yield


@pytest.fixture
def on_many_sms(interpreted, monkeypatch):
    """Blocks as for a large GPU: kernels share rows among programs."""
    monkeypatch.setattr(importlib.import_module("minipt2.inductor.compile"), "TINY", REFERENCE)
