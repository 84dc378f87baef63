"""The table of handlers and the decorator that fills it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from ..bytecode import Instruction
    from ..translator import Translator

Handler = Callable[["Translator", "Instruction"], None]

HANDLERS: dict[str, Handler] = {}


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of these opcodes."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register
