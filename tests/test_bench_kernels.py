"""What the bench counts of GPU kernels: bytes, operations, floors. Times are made up here."""
import pytest
import torch
from rich.console import Console

from minipt2 import prims as P
from minipt2.bench import kernels
from minipt2.inductor.ir import Extern
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from tests.inductor.programs import graph_of
from tests.inductor.scheduler.test_fusion import softmax


def scheduled(fn, *tensors):
    return schedule(lower(graph_of(fn, *tensors)), GPU)


def counted_bytes(fn, *tensors):
    s = scheduled(fn, *tensors)
    return [kernels.kernel_bytes(k, s.layouts) for k in s.kernels]


def test_bytes_of_loops():
    x = torch.zeros(64, 128)
    assert counted_bytes(softmax, x) == [2 * x.nbytes]  # the row is read once, however often it is walked
    assert counted_bytes(lambda u, v: P.add(u, P.broadcast_in_dim(v, u.shape, [1])), x, torch.zeros(128)) == [2 * x.nbytes + 512]
    assert counted_bytes(lambda u: P.sum(u, [0]), x) == [x.nbytes + 512]


def test_a_gather_reads_rows_and_not_the_table():
    table, rows = torch.zeros(100000, 32), torch.arange(10)
    size, = counted_bytes(lambda t, i: P.index_select(t, 0, i), table, rows)
    assert 2 * 10 * 32 * 4 <= size <= 2 * 10 * 32 * 4 + 10 * 8


@pytest.mark.parametrize("fn, shapes, expected", [
    (P.mm, [(4, 5), (5, 6)], 2 * 4 * 5 * 6),
    (P.bmm, [(3, 4, 5), (3, 5, 6)], 2 * 3 * 4 * 5 * 6),
    (lambda c, a, b: P.addmm(c, a, b, 1, 1), [(6,), (4, 5), (5, 6)], 2 * 4 * 5 * 6),
    (lambda x, w: P.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1), [(2, 3, 8, 8), (5, 3, 3, 3)], 2 * 2 * 5 * 64 * 27),
    (lambda x, w: P.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 3), [(2, 3, 8, 8), (6, 1, 3, 3)], 2 * 2 * 6 * 64 * 9),
])
def test_operations_of_library_calls(fn, shapes, expected):
    s = scheduled(fn, *map(torch.zeros, shapes))
    assert sum(kernels.operations(step, s.layouts) for step in s.steps if isinstance(step, Extern)) == expected


def test_rows_and_floors():
    x, w = torch.zeros(64, 128), torch.zeros(128, 128)
    s = scheduled(lambda u, v: P.relu(P.mm(P.relu(P.add(u, 1.0)), v)), x, w)
    assert len(s.kernels) == 2
    work = kernels.counted([s, s], lambda _: [["first", "second pass"], ["last"]])
    rows = kernels.joined(work, {"first": 4.0, "cublas": 7.0, "last": 1e9, "memset": 1.0}, bandwidth=1e12)
    found = {r.kernel: r for r in rows}
    assert [r.kernel for r in rows] == ["last", "libraries", "first"]
    assert found["libraries"].us == 8.0 and found["libraries"].operations == 2 * 2 * 64 * 128 * 128
    assert found["first"].launches == 2 and found["first"].bytes == 4 * x.nbytes
    assert found["first"].share == pytest.approx(4 * x.nbytes / 1e12 * 1e6 / 4.0)
    assert found["first"].as_dict()["share"] == pytest.approx(found["first"].share, abs=1e-3)
    console = Console(width=200, record=True)
    console.print(kernels.table("mm", rows, 4e12))
    text = console.export_text()
    assert "libraries" in text and "4.00 TB/s" in text


def test_command_line_wants_a_gpu(capsys):
    from minipt2.bench.__main__ import parse
    with pytest.raises(SystemExit):
        parse(["--kernels"])
    assert "--device cuda" in capsys.readouterr().err


def test_tables_and_file(monkeypatch, tmp_path):
    """The whole command with the device's part made up."""
    from argparse import Namespace
    monkeypatch.setattr(kernels, "device_times", lambda step, device: (step(), {"nothing_of_ours": 3.0})[1])
    monkeypatch.setattr(kernels, "copied", lambda device: 4e12)
    monkeypatch.setattr(kernels, "_names", lambda s, device: [["k"]] * len(s.kernels))
    args = Namespace(names=["actor_critic"], phases=["train"], size="small", device="cpu", amp=False, mode=None, json=str(tmp_path / "out.json"))
    assert kernels.main(args, Console(file=open("/dev/null", "w")), {}) == 0
    import json
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["kernels"]["actor_critic.train"][0]["us"] == 3.0 and found["copy_bytes_per_s"] == 4000000000000
