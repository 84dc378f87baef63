"""The two sets, their sizes, what reduces to what, and the page that shows it."""
from pathlib import Path

import pytest
import torch

from minipt2 import prims
from minipt2.prims.coverage import out_of_scope
from minipt2.report import prims_page

PAGE = Path(__file__).parents[2] / prims_page.PAGE


@pytest.fixture(scope="module")
def cover():
    return prims.coverage()


def test_every_overload_is_in_one_class(cover):
    classes = [cover.decomposed, cover.library, cover.fallback, list(cover.out_of_scope)]
    names = [name for group in classes for name in group]
    assert len(names) == len(set(names)) and cover.core == sum(map(len, classes[:3])) == len(prims.core_aten())


def test_sizes_and_rate(cover):
    assert len(prims.TABLE) <= 250
    assert 650 <= cover.core <= 750
    assert cover.rate >= 0.95, str(cover)


def test_what_has_no_rule_says_why(cover):
    """Overloads that only some releases of torch have may go without a reason, few of them."""
    unsaid = [name for name, why in cover.fallback.items() if not why]
    assert len(unsaid) <= (0 if torch.__version__.startswith("2.13") else 5), unsaid


def test_backward_overloads_reduce_too(cover):
    backward = [name for name, is_backward in cover.backward.items() if is_backward]
    assert len(set(backward) - set(cover.fallback)) >= 0.95 * len(backward)


def test_what_torch_tags_core(cover):
    """torch's own, smaller core set: all but a few complex and ragged ones reduce."""
    tagged = prims.coverage(core_only=True)
    assert set(tagged.fallback) <= {"_embedding_bag", "_fft_c2r", "_fft_r2c"}


@pytest.mark.parametrize("name,reason", [("add_.Tensor", "writes"), ("matmul", "composite"), ("nonzero", "depends on the data"),
                                         ("cudnn_convolution", "vendor"), ("is_same_size", "no tensor"), ("rand.generator", "object"),
                                         ("squeeze_copy", "view"), ("_foreach_copy", ""), ("index_copy", ""), ("_to_copy", "")])
def test_reasons(name, reason):
    packet, _, overload = name.partition(".")
    found = out_of_scope(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    assert reason in found and bool(reason) == bool(found)


def test_rules_outside_the_default_table_are_marked(cover):
    assert set(prims.decompositions) <= set(prims.complete)
    assert torch.ops.aten.sort.default not in prims.decompositions and "sort" in cover.library


def test_table_prints_both_sets(monkeypatch):
    shown = prims.table()
    plain = str(shown)
    assert "exp(x: T) -> T" in plain and "core ATen (" in plain and "pointwise.add" in plain and "\x1b" not in plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b[" in str(shown) and "softmax" in str(shown)


def test_page_is_up_to_date():
    """The part about prims, everywhere; the part about overloads on the release of torch that it was made with."""
    now, kept = prims_page.page(), PAGE.read_text()
    own = lambda text: text[text.index("## contraction"):text.index("## core ATen")]
    assert own(now) == own(kept), f"run python -m {prims_page.__name__}"
    rows = lambda text: dict(line.split(" | ", 1) for line in text[text.index("## core ATen"):text.index("## Out")].splitlines() if line.startswith("| `"))
    mine, theirs = rows(now), rows(kept)
    shared = mine.keys() & theirs.keys()
    assert len(shared) > 0.9 * len(theirs) and all(mine[k] == theirs[k] for k in shared), f"run python -m {prims_page.__name__}"
