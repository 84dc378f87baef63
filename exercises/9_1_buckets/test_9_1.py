import random

import torch

from minipt2.course.checks import same
from minipt2.distributed.buckets import FIRST, assign


def parameters(*megabytes, dtype=torch.float32):
    return [torch.empty(int(m * (1 << 20)) // dtype.itemsize, dtype=dtype) for m in megabytes]


def sizes(buckets):
    return [[round(p.nbytes / (1 << 20), 2) for p in b] for b in buckets]


def test_gradient_ready_order():
    """The list says what is ready first."""
    ps = parameters(0.5, 0.25, 2, 3, 1)
    buckets = assign(ps, 5 << 20)
    same([id(p) for b in buckets for p in b], [id(p) for p in ps], where="parameters in order")


def test_a_small_first_bucket():
    """At most FIRST bytes, however large the cap; later ones use the cap."""
    same(sizes(assign(parameters(0.5, 0.5, 0.5, 4, 4, 4), 10 << 20)), [[0.5, 0.5], [0.5, 4.0, 4.0], [4.0]])
    same(FIRST, 1 << 20)


def test_a_cap_below_the_first():
    """The smaller of both."""
    same(sizes(assign(parameters(0.25, 0.25, 0.25, 0.25), 1 << 19)), [[0.25, 0.25], [0.25, 0.25]])


def test_a_parameter_is_never_split():
    """One that is too large is alone, and no bucket is empty."""
    same(sizes(assign(parameters(7, 0.5, 9, 0.5), 2 << 20)), [[7.0], [0.5], [9.0], [0.5]])


def test_one_dtype_each():
    """Half and single precision travel apart; what is full first goes first."""
    a, b = parameters(0.75, 0.75, 3), parameters(0.5, 0.5, dtype=torch.bfloat16)
    buckets = assign([a[0], b[0], a[1], b[1], a[2]], 4 << 20)
    same([{str(p.dtype) for p in bucket} for bucket in buckets], [{"torch.float32"}, {"torch.float32"}, {"torch.bfloat16"}])
    same(sizes(buckets), [[0.75], [0.75, 3.0], [0.5, 0.5]])


def test_nothing():
    """No parameter, no bucket."""
    same(assign([], 100), [])


def test_random_models():
    """Complete, in order, within the cap."""
    rng = random.Random(0)
    for _ in range(50):
        ps, cap = parameters(*(rng.choice([0.1, 0.5, 1, 3]) for _ in range(rng.randrange(1, 12)))), rng.choice([1, 2, 4]) << 20
        buckets = assign(ps, cap)
        same([id(p) for b in buckets for p in b], [id(p) for p in ps])
        for k, b in enumerate(buckets):
            limit = min(cap, FIRST) if k == 0 else cap
            assert b and (len(b) == 1 or sum(p.nbytes for p in b) <= limit), sizes(buckets)
