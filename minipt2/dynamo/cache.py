"""Which compiled codes a function has, and why none of them fits a call.

``CodeCache`` keeps the entries of one code object, the last used first, up to ``config.recompile_limit``. The frame hook
looks entries up in C in the same order; ``lookup`` here says the same in Python. Upstream: ``torch/_dynamo/cache_size.py``.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import CodeType
from typing import Any, Iterator, NamedTuple, Optional

from ..config import config
from ..exercise import exercise
from .guards import GuardFn


@dataclass(eq=False)
class Entry:
    """One compiled version: ``code`` may run when ``guards`` hold. ``payload`` is for whoever made it."""

    guards: GuardFn
    code: CodeType
    payload: Any = None
    number: int = 0
    """Which version of the function it is, counted from 0 as they are added."""


class CodeCache:
    """The entries of one code object. Once ``limit`` of them have been made for it, it is ``full``: run eagerly on a miss."""

    def __init__(self, limit: Optional[int] = None):
        self.limit = config.recompile_limit if limit is None else limit
        self.entries: list[Entry] = []
        self.added = 0
        self.misses: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def full(self) -> bool:
        self.drop_dead()
        return len(self.entries) >= self.limit

    def add(self, entry: Entry) -> bool:
        """Keep ``entry`` as the first to be tried; False, and nothing kept, when the cache is full."""
        if self.full:
            return False
        entry.number = self.added
        self.added += 1
        self.entries.insert(0, entry)
        return True

    @exercise("2.3")
    def lookup(self, f_locals: dict) -> Optional[CodeType]:
        """The code of the first entry whose guards hold, which becomes the first to be tried; None if there is none."""
        # >>> 2.3
        for k, entry in enumerate(self.entries):
            if entry.guards.check(f_locals):
                if k:
                    self.entries.insert(0, self.entries.pop(k))
                return entry.code
        return None
        # <<< 2.3

    def drop_dead(self) -> None:
        """Forget entries that no call can use any more, because an object they were made for is gone."""
        self.entries = [entry for entry in self.entries if entry.guards.alive]

    def remove(self, entry: Entry) -> None:
        self.entries = [other for other in self.entries if other is not entry]

    def record_miss(self, f_locals: dict) -> dict[int, str]:
        """``why_missed``, counted, so that ``often`` can name the guard that keeps failing."""
        reasons = why_missed(self, f_locals)
        self.misses.update(reason.split(", found")[0] for reason in reasons.values())
        return reasons

    def often(self) -> str:
        """The guard that failed most over all recorded misses."""
        return self.misses.most_common(1)[0][0] if self.misses else ""


@exercise("2.4")
def why_missed(cache: CodeCache, f_locals: dict) -> dict[int, str]:
    """For each version, the one used last first, the first guard that fails: source, expected, found."""
    # >>> 2.4
    return {entry.number: reason for entry in cache if (reason := entry.guards.explain(f_locals)) is not None}
    # <<< 2.4


class Meta(NamedTuple):
    """Sizes and strides of a tensor in one compilation."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]


@exercise("8.5")
def dynamic_dims(old: Any, new: Any) -> set[int]:
    """Dimensions to make symbolic when ``new`` comes where ``old`` was (each a ``Meta``, or a tensor): those whose sizes differ.

    Another rank is another kind of input: nothing follows from it.
    """
    # >>> 8.5
    if len(old.shape) != len(new.shape):
        return set()
    return {dim for dim, (a, b) in enumerate(zip(old.shape, new.shape)) if a != b}
    # <<< 8.5
