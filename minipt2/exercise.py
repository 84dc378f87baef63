"""The mark of a function that is also an exercise of the course: ``@exercise("5.3")``.

The body of such a function stands between ``# >>> 5.3`` and ``# <<< 5.3``; a student's file is the package's without those lines. At run time
the mark costs nothing: it returns the function it was given. Only a hollow one, whose body is still to be written, is replaced by one that
says so. Lowest of all rooms: every other may use it. See ``minipt2.course``.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

marked: dict[str, list[Callable[..., Any]]] = {}
"""Exercise number to the functions marked with it, in the order they were defined."""


def _nothing() -> None:
    """The shape of a body that is still to be written."""


_HOLLOW = _nothing.__code__.co_code
_NONE_AT = 3  # the byte that says which constant is returned, in every supported CPython


def is_hollow(fn: Callable[..., Any]) -> bool:
    """Whether ``fn`` has no body but a docstring (a bare ``return None`` looks the same)."""
    code = fn.__code__.co_code
    return (len(code) == len(_HOLLOW) and code[:_NONE_AT] == _HOLLOW[:_NONE_AT] and code[_NONE_AT + 1:] == _HOLLOW[_NONE_AT + 1:]
            and fn.__code__.co_consts[code[_NONE_AT]] is None)


def exercise(number: str) -> Callable[[F], F]:
    """Mark a function as (part of) exercise ``number``. A hollow one raises NotImplementedError when it is called."""
    def mark(fn: F) -> F:
        marked.setdefault(number, []).append(fn)
        return unwritten(number, fn) if is_hollow(fn) else fn
    return mark


def unwritten(number: str, fn: F) -> F:
    """Stands in for a body that is still to be written."""
    @functools.wraps(fn)
    def raises(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{number} {fn.__qualname__} is still to be written")
    return raises  # type: ignore[return-value]
