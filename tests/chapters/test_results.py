"""Recorded measurements become pages: the bench's rows with its command, other records by their own structure."""
import json

import pytest

from chapters import results

ROW = {"model": "gpt2", "phase": "infer", "ms": {"eager": 10.0, "minipt2": 5.0, "torch.compile": 6.0}, "faults": {}, "speedup": {"eager": 2.0, "torch.compile": 1.2},
       "compile_s": {"minipt2": 1.5, "torch.compile": 20.0}, "cold_s": 1.25, "warm_s": 0.4, "peak_mib": {"minipt2": 3.0, "eager": 4.0}, "kernels": 7, "breaks": 0, "fallbacks": 1,
       "max_error": 1e-6, "error": ""}
BENCH = {"machine": {"cpu": "x", "torch": "2.13"}, "device": "cpu", "amp": False, "mode": None, "size": "bench", "rounds": 15, "threads": 1, "pinned": True,
         "rows": [ROW, {**ROW, "model": "bert", "speedup": {"eager": 0.5, "torch.compile": 1.2}, "error": "boom"}]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    return tmp_path


def test_a_bench_page_has_table_machine_and_command(folder):
    (folder / "bench_cpu.json").write_text(json.dumps(BENCH))
    page = results.page(folder / "bench_cpu.json")
    assert page.startswith("# Bench on a CPU") and "Taken on cpu x, torch 2.13." in page
    assert "python -m minipt2.bench --peer torch.compile --memory --warm --json" in page
    assert "| `gpt2` | infer | 10 | 5 | 6 | 2 | 1.2 | 1.5 | 20 | 1.25 | 0.4 | 3 (4) | 7 | 0 | 1 | 1e-06 |" in page
    assert "| infer | 1.000, worst 0.50 | 1.200, worst 1.20 |" in page
    assert "`bert` infer failed: boom" in page and "[JSON](bench_cpu.json)" in page
    assert "| `gpt2` | infer |" in results.bench_table() and "CPU time of the process" in results.bench_table()


def test_without_a_record_the_page_says_how_to_make_one(folder):
    assert results.COMMAND in results.bench_table() and results.COMMAND in results.listing()


def test_other_records_keep_their_structure(folder):
    data = {"machine": "M", "date": "D", "how": "somehow", "times": {"a": {"ours": 1.0}, "b": {"ours": 2.0, "eager": [3, 4]}},
            "runs": {"how": "twice", "rows": [{"model": "m", "ms": 0.5}]}, "count": 3, "list": ["p", "q"]}
    (folder / "modes_h200.json").write_text(json.dumps(data))
    page = results.page(folder / "modes_h200.json")
    for text in ("Taken on M, D.", "Somehow", "| count | 3 |", "| list | p, q |", "## Times", "| b | 2 | 3, 4 |", "## Runs", "Twice", "### Rows", "| m | 0.5 |"):
        assert text in page, text
    assert "results/modes_h200.md" in results.listing()


def test_what_chapters_contribute(folder):
    assert results.CHAPTERS_COMMAND in results.pays_table(3)
    row = {"chapter": 3, "model": "gpt2", "control": False, "median": 1.7, "lowest": 1.65, "highest": 1.76, "low": 1.6, "high": 1.8, "floor": 1.05, "runs": "pp"}
    data = {"machine": "M", "date": "D", "rows": [row, {**row, "control": True, "median": 1.003}, {**row, "chapter": 5}]}
    (folder / "chapters_cpu.json").write_text(json.dumps(data))
    one = results.pays_table(3)
    assert "run by eager kernels, over compiled" in one and "| `gpt2` | 1.70 | 1.60 to 1.80 | 1.00 | 1.05 |" in one and one.count("gpt2") == 1
    assert results.pays_table().count("`gpt2`") == 2 and "| 5: " in results.pays_table()


def test_every_record_of_the_site_is_a_page():
    for path in results.recorded():
        assert results.page(path).count("|") > 20
