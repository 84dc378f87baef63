"""The table for a GPU: its rows, what becomes of a contender that fails or crashes, and what a worker answers (on a CPU, small)."""
import json
import math

import pytest
import torch
from rich.console import Console

from minipt2.bench import bandwidth, gpu, gpu_table, worker, zoo
from minipt2.bench.__main__ import parse


def arguments(*more):
    return parse(["--table", "out", "--size", "small", *more])


def test_rows_of_all_modes():
    found = gpu.cases(arguments("--models", "gpt2,timm:convnext_tiny", "--peer", "torch.compile", "--float32"))
    names = [c.name for c in found]
    assert len(set(names)) == len(names) == 2 * (1 + 2 + 2 + 2)  # max-autotune in inference and in float32, float32 in training alone
    assert names[0] == "gpt2 infer max-autotune bf16" and names[-1] == "timm:convnext_tiny train default float32"
    assert found[0].contenders == ("minipt2", "minipt2 default", "torch.compile") and found[-1].contenders == ("minipt2",)
    first, last = gpu.groups(found)
    assert len(first) + len(last) == len(found) and {c.name for c in last} == {f"{m} train max-autotune float32" for m in ("gpt2", "timm:convnext_tiny")}


def test_more_models_in_the_default_mode_alone():
    found = gpu.cases(arguments("--peer", "torch.compile", "--float32"))
    more = [c for c in found if c.model in zoo.MORE]
    assert {c.mode for c in more} == {"default"} and len(more) == 3 * len(zoo.MORE)
    assert {c.mode for c in found if c.model in zoo.NAMES} == {"default", "reduce-overhead", "max-autotune"} and not set(zoo.MORE) & set(zoo.NAMES)
    assert sum(not c.amp for c in found) == 2 * len(zoo.NAMES) + len(zoo.MORE)


@pytest.mark.parametrize("argv, told", [(["--models", "gtp2"], "mobilenet"), (["--modes", "fast"], "reduce-overhead")])
def test_mistakes_are_named(argv, told, capsys):
    with pytest.raises(SystemExit):
        arguments(*argv)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_models_of_the_zoo_have_no_dropout_and_the_same_weights_each_time(name):
    (a, inputs), (b, _) = zoo.case(name, "small"), zoo.case(name, "small")
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))
    assert zoo.scalar(a.eval()(*inputs())).isfinite()


def test_an_unknown_model_of_the_zoo():
    with pytest.raises(ValueError, match="timm:NAME"):
        zoo.case("nothing")


def test_agreement_is_measured_by_eagers_own_distance_from_float64():
    reference = [torch.ones(2, dtype=torch.float64), torch.ones(3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)]
    off = lambda by: [t.float() + by for t in reference]
    eager = worker.distance(off(0.01), reference)
    assert eager == pytest.approx([0.01, 0.01], rel=1e-3)
    assert worker.agrees([worker.distance(off(0.025), reference)], [eager], True)
    assert not worker.agrees([worker.distance(off(0.04), reference)], [eager], True)
    assert worker.distance([off(0.0)[0] * math.nan], reference[:1]) == [math.inf] and worker.distance(off(0.0)[:2], reference) == [math.inf] * 2
    assert not worker.agrees([[math.inf]], [[0.01]], True)


def test_in_float32_one_unlucky_draw_of_five_is_no_disagreement_but_a_wrong_one_is():
    eager = [[1e-5], [3e-4], [2e-5], [1e-5], [4e-5]]
    draws = lambda *values: [[v] for v in values]
    assert worker.agrees(draws(1e-5, 2e-5, 9e-4, 3e-5, 1e-5), eager, False)
    assert not worker.agrees(draws(1e-5, 2e-5, 0.1, 3e-5, 1e-5), eager, False)  # far beyond eager's farthest
    assert not worker.agrees(draws(1e-5, 2e-5, math.inf, 3e-5, 1e-5), eager, False)
    assert not worker.agrees(draws(*[8e-5] * 5), eager, False)  # all of them four times as far as eager usually is
    assert worker.middle(eager) == [2e-5]


@pytest.mark.parametrize("factors, draws", [([1.0], 5), ([2.0], 5), ([4.0], 25), ([4.0] * 5 + [1.0] * 20, 10)])
def test_more_inputs_are_drawn_where_a_contender_does_not_agree(monkeypatch, factors, draws):
    """The contender lies ``factors`` times as far from float64 as eager, at one draw after the other."""
    class Step:
        amp, drawn, model = False, 0, None

        def draw(self):
            self.drawn += 1

        def results(self, call):
            return [torch.full((2,), 1.0 + 1e-3 * (factors[self.drawn % len(factors)] if call else 1.0))]

        def reference(self):
            return [torch.ones(2, dtype=torch.float64)]

        def synchronized(self, call):
            pass
    monkeypatch.setattr(worker, "compiled", lambda who, model, mode: True)
    monkeypatch.setattr(worker, "say", lambda **fields: None)
    found = worker.Compared(Step(), ["minipt2"], "default")
    assert len(found.own) == len(found.far["minipt2"]) == draws and found.agree() == (draws < 25)


@pytest.fixture
def run(tmp_path):
    def made(*more):
        args = arguments("--models", "resnet18", "--phase", "infer", "--modes", "default", "--rounds", "3", *more)
        return gpu.Run(args, tmp_path, Console(file=open("/dev/null", "w"))), gpu.cases(args)
    return made


def test_a_row_from_workers_of_its_own(run):
    table, wanted = run()
    table.prepare(wanted)
    assert table.prepared["resnet18 infer default bf16 minipt2"]["first_s"] > 0
    table.time(wanted)
    row, = table.rows
    assert row["agrees"] == {"eager": True, "minipt2": True} and row["over"]["eager"] > 0 and row["kernels"] and not row["failed"]
    assert json.loads((table.folder / "rows.json").read_text()) == table.rows
    line = gpu_table.flat(row)
    assert line["agrees"] == "eager, minipt2" and line["over eager"] > 0 and all(isinstance(v, (str, int, float, list)) for v in line.values())
    page = json.loads((table.folder / "table.json").read_text())
    assert page["agreement"] == "1 of 1 rows" and page["default, bf16 autocast"]["rows"][0]["minipt2 ms"] > 0
    told = gpu_table.summary(table.rows, table.prepared)
    assert told["speed"]["default, bf16 autocast, infer, over eager"]["models"] == 1 and not told["disagree"]


def test_a_crash_costs_one_contender_its_figure(run, monkeypatch):
    table, wanted = run("--peer", "torch.compile")
    table.prepared = {f"resnet18 infer default bf16 {who}": {"first_s": 1.0} for who in wanted[0].contenders}
    batches = []

    def batch(cases):
        batches.append([c.contenders for c in cases])
        for case in cases:
            child = gpu.Child(case, None, None, [{"event": "loading", "who": "torch.compile"}])
            child.why = lambda: "exit -6 at loading torch.compile"
            yield child, None if "torch.compile" in case.contenders else {
                "event": "row", "ms": {"minipt2": 1.0}, "over": {}, "agrees": {}, "failed": {}, "far": {}, "eager_far": [0.0], "kernels": 1, "breaks": 0, "fallbacks": 0}
    monkeypatch.setattr(table, "_batch", batch)
    table.time(wanted)
    assert batches == [[("minipt2", "torch.compile")], [("minipt2",), ("torch.compile",)]]
    assert [("error" in r) for r in table.rows] == [True, False, True] == ["error" in gpu_table.flat(r) for r in table.rows]


def test_what_is_not_compiled_in_time_is_missing_from_its_row(run):
    table, wanted = run("--peer", "torch.compile")
    table.prepared = {"resnet18 infer default bf16 minipt2": {"first_s": 1.0}, "resnet18 infer default bf16 torch.compile": {"error": "exit 1"}}
    assert table.ready(wanted[0]).contenders == ("minipt2",)


def test_peak_memory_beside_the_peers():
    prepared = {"m train default bf16 minipt2": {"peak_mib": 90.0}, "m train default bf16 torch.compile": {"peak_mib": 100.0},
                "m infer default bf16 minipt2": {}}
    assert gpu_table.summary([], prepared)["peak memory of a training step over the peer's"] == {"m train default bf16": 0.9}
    rows = gpu_table.page({}, [], prepared, [])["peak memory of a training step beside torch.compile"]["rows"]
    assert rows == [{"model": "m", "mode": "default", "kind": "bf16", "minipt2 MiB": 90.0, "torch.compile MiB": 100.0, "over torch.compile": 0.9}]


def test_first_calls_with_empty_and_with_full_caches(run):
    table, wanted = run()
    table.first_calls(wanted)
    found, = table.first
    assert 0 < found["minipt2 warm s"] < found["minipt2 cold s"]


def test_bandwidth_counts_operands_and_results_once():
    row, = bandwidth.measure(torch.device("cpu"), 1 << 16, "add_layer_norm1024_bf16")
    assert row["MB"] == round((4 * (1 << 16) + 2 * 2048) / 1e6, 1) and row["us"] > 0 and row["percent of a copy"] > 0
    assert row["passes"] == 4 and row["floor MB"] == row["MB"] and row["percent of the floor"] == row["percent of a copy"]
    names = [name for name, *_ in bandwidth.cases(torch.device("cpu"), 1 << 16)]
    assert len(set(names)) == len(names) and {"softmax65536", "softmax65536_bf16"} <= set(names)


def test_the_floor_of_a_batch_norm_reads_twice():
    """Statistics of a channel need all of the tensor before the first result."""
    row, = bandwidth.measure(torch.device("cpu"), 1 << 22, "batch_norm_training_bf16")
    read = row["MB"] / 2  # as much is written
    assert row["passes"] == 3 and abs(row["floor MB"] - row["MB"] - read) < 0.2 and row["percent of the floor"] > row["percent of a copy"]
