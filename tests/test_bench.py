"""The bench's command line: a table that can be read at 80 columns, and its complaints."""
import json
import os

import pytest
import torch
from rich.console import Console

from minipt2.bench.__main__ import main, parse, show, table
from minipt2.bench import budget, dynamic
from minipt2.bench.runner import Row, child, run


def row(model="actor_critic", **more):
    times = {"eager": 1426.125, "minipt2": 1325.5, "torch.compile": 1301.25}
    return Row(model, "train", ms=times, speedup={"eager": 1.29, "torch.compile": 0.98}, compile_s={"minipt2": 13.96, "torch.compile": 45.2},
               kernels=100, max_error=1.2e-6, **more)


def printed(rows, peer=None, width=80):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))
    show(table(rows, peer), console)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 30])
def test_numbers_are_never_abbreviated(width):
    everything = printed([row(cold_s=7.895, warm_s=2.345, peak_mib={"minipt2": 432.1, "eager": 500.7}), row("gpt2")], "torch.compile", width)
    for text in ("actor_critic", "1426.12", "1325.50", "1301.25", "45.2", "7.89", "2.35", "432.1 (500.7)", "1e-06"):
        assert text in everything
    assert "…" not in everything


def test_a_column_that_nobody_asked_for_is_left_out():
    text = printed([row()])
    assert "warm" not in text and "peak" not in text and "peer" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_first_calls_are_those_of_two_processes():
    cold, warm = child("first-calls", "actor_critic", "infer", "small")
    assert 0 < warm < cold


def test_a_failure_takes_one_line():
    text = printed([row(), Row("gpt2", "train", error="RuntimeError: " + "long " * 50)])
    assert "failed" in text and "long" not in text and "1426.12" in text


@pytest.mark.parametrize("argv, told", [(["--models", "gtp2"], "gpt2"), (["--phase", "both"], "infer,train"), (["--rounds", "0"], "--rounds"),
                                        (["--device", "gpu"], "cuda"), (["--mode", "fast"], "reduce-overhead")])
def test_mistakes_are_named(argv, told, capsys):
    with pytest.raises(SystemExit):
        main(argv)
    assert told in capsys.readouterr().err


def test_the_curve_of_memory_budgets(tmp_path, monkeypatch):
    measured = {1.0: [40.0, 80.0, 10.0], 0.5: [20.0, 70.0, 12.0]}
    monkeypatch.setattr(budget, "BUDGETS", (1.0, 0.5))
    monkeypatch.setattr(budget, "child", lambda task, *case: measured[float(task.removeprefix("budget-"))])
    monkeypatch.setattr(budget.importlib.util, "find_spec", lambda name: None)
    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    args = parse(["--models", "gpt2", "--memory-budget", str(tmp_path / "curve.svg")])
    assert budget.main(args, console) == 0
    text = console.export_text()
    assert "12.0 ms" in text and "70.0" in text
    full, half = (line.count("#") for line in text.splitlines() if " saved |" in line)
    assert full == 2 * half


def test_autocast_and_modes_reach_every_contender(monkeypatch):
    row = run("actor_critic", "train", size="small", amp=True, mode="reduce-overhead", rounds=2)
    assert row.ms.keys() == {"eager", "minipt2"} and 1e-6 < row.max_error < 0.1  # bfloat16 products, rounded elsewhere


@pytest.mark.parametrize("name, dims, count", [("gpt2", (0, 1), 20), ("unet", (2, 3), 10), ("recommender", (0,), 10)])
def test_random_sizes_fit_the_model(name, dims, count):
    wanted = dynamic.sizes(name, dims, count, "small")
    assert len({tuple(at.values()) for at in wanted}) == count and all(n > 1 for at in wanted for n in at.values())
    assert wanted == dynamic.sizes(name, dims, count, "small")


def test_inputs_grow_and_shrink_with_their_values():
    x = torch.arange(6).view(2, 3)
    assert dynamic.resized(x, {0: 3, 1: 2}).tolist() == [[0, 1], [3, 4], [0, 1]]
    assert dynamic.resized(x, {0: 1, 2: 9}).tolist() == [[0, 1, 2]]


def test_rows_of_sizes_that_vary(fresh, monkeypatch):
    row = dynamic.run("actor_critic", "train", "batch", (0,), 4, size="small", rounds=2)
    assert (row.calls, row.versions) == (4, 2) and row.max_error < 1e-4 and row.run_ratio > 0 and row.compile_ratio > 0
    monkeypatch.setitem(dynamic.TOKENS, "small", 12)
    text = dynamic.run_decoder("small", 1)
    assert text.versions <= 3 and text.max_error < 1e-4 and text.first_s > 0
    failed = dynamic.Row("gpt2", "infer", "batch, length", error="RuntimeError: no")
    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    show(dynamic.table([row, text, failed]), console)
    shown = console.export_text()
    assert all(word in shown for word in ("actor_critic", "12 tokens", "failed"))
    assert "12 tokens over a growing cache" in dynamic.summary([row, text, failed])


def test_interrupted_rows_of_sizes_that_vary_are_kept(monkeypatch, tmp_path, capsys):
    """Each is printed and in the file before the next one begins; all stand in the same columns."""
    file, seen = tmp_path / "rows.json", []

    def fake(name, phase, varies, dims, count, **settings):
        seen.append(len(json.loads(file.read_text())["rows"]) if seen else 0)
        if len(seen) == 3:
            raise KeyboardInterrupt
        if len(seen) == 2:
            raise RuntimeError("no")
        return dynamic.Row(name, phase, varies, count, 2, 1e-6, 1.25, 1.5)
    monkeypatch.setattr(dynamic, "run", fake)
    assert main(["--dynamic", "--models", "mobilenetv2,bert", "--size", "small", "--json", str(file)]) == 130
    shown = capsys.readouterr().out.splitlines()
    first, second = (next(line for line in shown if line.startswith("mobilenetv2") and word in line) for word in ("1.250", "failed"))
    assert seen == [0, 1, 2] and [row["error"] for row in json.loads(file.read_text())["rows"]] == ["", "RuntimeError: no"]
    assert first.index("batch") == second.index("image") and sum("what varies" in line for line in shown) == 1
    assert any("interrupted after 2 of 7 rows" in line for line in shown) and os.listdir(tmp_path) == ["rows.json"]
