"""Each chapter's demo runs and shows something."""
import runpy

import pytest

from chapters import book

DEMOS = sorted(book.ROOT.glob("chapters/*/demo.py"))


@pytest.mark.parametrize("demo", DEMOS, ids=lambda f: f.parent.name)
def test_demo_runs(demo, fresh, capsys, recwarn):
    runpy.run_path(str(demo), run_name="__main__")
    assert "---" in capsys.readouterr().out
    assert not [w for w in recwarn if "minipt2" in str(w.message)]
