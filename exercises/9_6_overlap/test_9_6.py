import random

from minipt2.course.checks import same
from minipt2.distributed.timeline import Sent, finish


def test_a_free_link():
    """Nothing to wait for."""
    same(finish([1.0, 5.0], [10, 20], 10), [Sent(1.0, 2.0), Sent(5.0, 7.0)])


def test_one_after_the_other():
    """The second is ready while the first is on its way."""
    same(finish([1.0, 1.5], [20, 10], 10), [Sent(1.0, 3.0), Sent(3.0, 4.0)])


def test_what_is_ready_first_goes_first():
    """Whatever the order of the list; ties by the list."""
    same(finish([3.0, 1.0], [10, 10], 10), [Sent(3.0, 4.0), Sent(1.0, 2.0)])
    same(finish([1.0, 1.0], [10, 20], 10), [Sent(1.0, 2.0), Sent(2.0, 4.0)])


def test_latency_counts_each_time():
    """Many small buckets pay for it."""
    same(finish([0.0, 0.0], [10, 10], 10, 0.5), [Sent(0.0, 1.5), Sent(1.5, 3.0)])


def test_nothing():
    """No bucket."""
    same(finish([], [], 1.0), [])


def test_the_link_is_never_idle_without_need():
    """Two hundred random timelines: no overlap, and no gap while something waits."""
    rng = random.Random(0)
    for _ in range(200):
        n = rng.randrange(1, 6)
        ready, sizes = [rng.randrange(10) * 1.0 for _ in range(n)], [rng.randrange(1, 40) for _ in range(n)]
        sent = sorted(finish(ready, sizes, 10.0))
        times = sorted(ready)
        for before, after in zip(sent, sent[1:]):
            assert after.start >= before.end, (ready, sizes, sent)
            assert after.start == before.end or after.start in times, (ready, sizes, sent)
