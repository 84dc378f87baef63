import pytest

from minipt2.exercise import exercise, is_hollow, marked


@pytest.fixture(autouse=True)
def tidy():
    yield
    marked.pop("0.0", None)


def test_a_written_function_is_returned_untouched():
    def fn(x):
        """Doc."""
        return x + 1
    assert exercise("0.0")(fn) is fn
    assert marked["0.0"] == [fn]


def test_a_hollow_function_says_that_it_is():
    def fn(x, *, y=1) -> int:
        """Doc."""
    with pytest.raises(NotImplementedError, match="0.0 .*fn is still to be written"):
        exercise("0.0")(fn)(1, y=2)


@pytest.mark.parametrize("fn, hollow", [
    (lambda: None, True), (lambda x: x, False), (lambda: 0, False), (lambda *a, **k: None, True)])
def test_what_is_hollow(fn, hollow):
    assert is_hollow(fn) is hollow
