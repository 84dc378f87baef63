"""Long C files in two translation units, which the compiler works on side by side.

Upstream compiles one unit per kernel, in a pool of processes (``torch._inductor.async_compile``).
"""
from __future__ import annotations

import re
from typing import Sequence

from .c_openmp_prelude import prelude

LONG = 16_000
"""Characters of kernels that gcc takes about half a second for."""


def units(functions: Sequence[str], driver: str) -> list[str]:
    """Texts of the translation units for kernel ``functions`` and the ``driver`` that calls them."""
    groups: list[list[str]] = [[], []]
    if sum(map(len, functions)) < LONG:
        groups = [list(functions)]
    else:
        for function in sorted(functions, key=len, reverse=True):
            min(groups, key=lambda g: sum(map(len, g))).append(function)
    texts = ["\n\n".join(g) for g in groups]
    elsewhere = [prototype(f) for g in groups[1:] for f in g]
    texts[0] = "\n".join([texts[0], "", *elsewhere, driver])
    return [f"{prelude(text)}\n{text}\n" for text in texts]


def prototype(function: str) -> str:
    """The declaration of a C function, from its text."""
    found = re.search(r"^void k\d+\([^{]*\)", function, re.MULTILINE)
    assert found is not None, function[:200]
    return found.group(0) + ";"
