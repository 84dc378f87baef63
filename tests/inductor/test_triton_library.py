"""What concerns threads and contexts, with a driver that only takes notes: there is no GPU here."""
import threading

import pytest

from minipt2.errors import BackendError
from minipt2.inductor import triton_library


class Driver:
    """The calls of the CUDA driver that ``enter`` makes; ``current``: which context each thread has."""

    def __init__(self):
        self.current, self.retained = {}, []

    def cuCtxGetCurrent(self, context):
        context._obj.value = self.current.get(threading.get_ident(), 0)
        return 0

    def cuDeviceGet(self, ordinal, device):
        ordinal._obj.value = device
        return 0

    def cuDevicePrimaryCtxRetain(self, context, ordinal):
        self.retained.append(ordinal.value)
        context._obj.value = 1000 + ordinal.value
        return 0

    def cuCtxSetCurrent(self, context):
        self.current[threading.get_ident()] = context.value
        return 0


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(triton_library, "cuda", lambda: made)
    monkeypatch.setattr(triton_library, "_thread", threading.local())
    monkeypatch.setattr(triton_library.torch.cuda, "device_count", lambda: 1)
    return made


def in_a_thread(fn):
    found = []
    thread = threading.Thread(target=lambda: found.append(fn()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_without_a_context_gets_that_of_the_kernels_device(driver):
    call = triton_library.on_device(lambda args: [driver.current[threading.get_ident()], *args], {"device": "cuda:0"})
    assert in_a_thread(lambda: call([1]) + call([2])) == [1000, 1, 1000, 2]
    assert driver.retained == [0]


def test_a_context_that_a_thread_has_stays(driver):
    def run():
        driver.current[threading.get_ident()] = 7
        return triton_library.on_device(lambda args: args, {"device": "cuda:0"})([1]), driver.current[threading.get_ident()]
    assert in_a_thread(run) == ([1], 7) and driver.retained == []


def test_a_driver_that_refuses_is_named(driver, monkeypatch):
    monkeypatch.setattr(driver, "cuDeviceGet", lambda ordinal, device: 101)
    with pytest.raises(BackendError, match="error 101"):
        triton_library.enter(3)


def test_without_a_gpu_nothing_is_entered():
    call = lambda args: args
    assert triton_library.on_device(call, {"device": "cpu"}) is call
