import torch
from torch import nn

from minipt2.distributed import FIRST, assign, finish


def test_what_a_model_is_sent_in():
    """As DDP: ready in reverse order of definition, a small first bucket, none above the cap but a parameter alone."""
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(12)))
    ready = list(net.parameters())[::-1]
    buckets = assign(ready, 1 << 21)
    assert [p for b in buckets for p in b] == ready
    assert sum(p.nbytes for p in buckets[0]) <= FIRST
    assert all(sum(p.nbytes for p in b) <= 1 << 21 or len(b) == 1 for b in buckets)


def test_small_buckets_end_earlier_until_latency_counts():
    times = [k * 0.01 for k in range(1, 11)]

    def last(count, latency):
        ready = times[count - 1::count]
        return max(s.end for s in finish(ready, [10_000_000 // len(ready)] * len(ready), 1e8, latency))
    assert last(2, 0.0) < last(10, 0.0)
    assert last(1, 0.05) > last(5, 0.05)
    assert finish([], [], 1.0) == []


def test_dtypes_do_not_mix():
    a, b = torch.zeros(4), torch.zeros(4, dtype=torch.bfloat16)
    assert assign([a, b, a], 100) == [[a, a], [b]]
