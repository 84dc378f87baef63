"""``python -m minipt2.report.prims_page [FILE]`` writes ``site/reference/prims.md``: both operator sets, and which backend lowers what.

The overloads that exist depend on the torch release; the page is that of the newest one supported. Upstream: the IR page of PyTorch's docs.
"""
from __future__ import annotations

import sys
from pathlib import Path

from ..backends.numpy_rules import rules
from ..inductor.lowering import lowerings
from ..inductor.lowering.extern import CONTRACTIONS
from ..prims.report import markdown

PAGE = "site/reference/prims.md"


def page() -> str:
    """The text of the page."""
    return markdown({"inductor": {**lowerings, **CONTRACTIONS}, "numpy": rules})


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else PAGE)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page())
