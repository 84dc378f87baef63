"""``set_logs``: each stage's artifact through ``logging``; nothing runs and nothing is listened to when off."""
import importlib
import io
import logging

import pytest
import torch

import minipt2
from minipt2 import trace
from minipt2.config import _from_environment, config
from minipt2.report import LOGS, logs, set_logs


@pytest.fixture(autouse=True)
def off(fresh):
    yield
    set_logs()


def model(x, scale=2):
    y = torch.relu(x) * scale
    print(end="")
    return y.sum()


def records(caplog) -> dict[str, str]:
    found: dict[str, str] = {}
    for record in caplog.records:
        assert record.levelno == logging.INFO
        name = record.name.removeprefix("minipt2.")
        found[name] = found.get(name, "") + record.getMessage() + "\n"
    return found


def test_every_log_says_its_part(caplog):
    set_logs(*LOGS)
    with config.patch(disk_cache=False):
        compiled = minipt2.compile(model)
        compiled(torch.ones(3))
        compiled(torch.ones(4, 2))
    found = records(caplog)
    assert set(found) == set(LOGS)
    assert "-- runs as --" in found["bytecode"] and "LOAD_GLOBAL" in found["bytecode"]
    assert "relu: float32[3] = relu(l_l_x)" in found["graph"] and "y = torch.relu(x) * scale" in found["graph"]
    assert "L['x']: size (3,)" in found["guards"] and "L['scale']" in found["guards"]
    assert "[MP302] call of print()" in found["breaks"] and 'print(end="")' in found["breaks"] and "What to do" in found["breaks"]
    assert "L['x']: size (3,), found (4, 2)" in found["recompiles"]
    assert "relu_default: float32[3] = relu(primals_1)" in found["aot"]
    assert "relu: float32[3] = relu(primals_1)" in found["prims"]
    assert "void" in found["code"] and "def call" in found["code"]
    assert "capture of model" in found["perf"] and "C compiler" in found["perf"] and "s of its own" in found["perf"]


def test_recompiles_number_versions_as_they_were_made(caplog):
    set_logs("recompiles")
    compiled = minipt2.compile(lambda x: x + 1, backend="eager", dynamic=False)
    for n in (1, 2, 1, 3):
        compiled(torch.ones(n, 2))
    last = caplog.records[-1].getMessage()
    assert "version 0 needs L['x']: size (1, 2)" in last and "version 1 needs L['x']: size (2, 2)" in last
    assert last.index("version 0") < last.index("version 1")


def test_only_what_was_asked_for(caplog):
    set_logs("breaks", "recompiles")
    minipt2.compile(model, backend="eager")(torch.ones(3))
    assert set(records(caplog)) == {"breaks"}
    set_logs("graph")
    caplog.clear()
    minipt2.compile(model, backend="eager")(torch.ones(3))
    assert set(records(caplog)) == {"graph"}


def test_unknown_names_are_refused_and_change_nothing():
    set_logs("graph")
    with pytest.raises(minipt2.InvalidArgument, match="no log 'grahp'; there are bytecode, graph"):
        set_logs("grahp")
    assert trace.listening("graph")


def test_off_costs_nothing():
    set_logs("perf", "ir")
    set_logs()
    assert not trace.listening(*trace.STAGES) and logging.getLogger("minipt2.ir").level == logging.NOTSET
    trace.artifact("ir", "name", lambda: pytest.fail("made although nobody listens"))
    with trace.span("nothing"):
        pass


def test_graph_logs_leave_the_disk_cache_alone():
    set_logs("graph", "guards", "breaks", "recompiles", "bytecode", "perf")
    assert not trace.listening("aot", "prims", "ir", "schedule", "scheduler", "codegen", "code", "fallback")


def test_spans_know_what_is_their_own():
    seen = {}
    stop = trace.subscribe(lambda stage, name, span: seen.__setitem__(name, span), "perf")
    try:
        with trace.span("outer"):
            with trace.span("inner"):
                pass
    finally:
        stop()
    assert seen["outer"].own == pytest.approx(seen["outer"].seconds - seen["inner"].seconds)
    assert (seen["outer"].depth, seen["inner"].depth) == (0, 1)


def test_unknown_stages_are_refused():
    with pytest.raises(ValueError, match="no stage 'graphs'; there are instruction, bytecode"):
        trace.subscribe(print, "graphs")


def test_without_handlers_records_go_to_standard_error(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(logs._handler, "stream", stream)
    monkeypatch.setattr(logs._root, "propagate", False)
    set_logs("graph")
    minipt2.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert stream.getvalue().startswith("[minipt2.graph] graph_")
    set_logs()
    assert logs._handler not in logs._root.handlers


def test_from_the_environment(monkeypatch):
    monkeypatch.setenv("MINIPT2_LOGS", "graph, breaks")
    assert _from_environment().logs == "graph, breaks"
    with config.patch(logs="graph, breaks"):
        importlib.reload(minipt2)
    assert trace.listening("graph") and trace.listening("breaks") and not trace.listening("guards")
