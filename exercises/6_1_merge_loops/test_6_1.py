import itertools
import random

import torch
from torch import nn

import minipt2
from minipt2.course.checks import same
from minipt2.inductor.scheduler.affine import merge_runs


def test_plain_loops():
    """A contiguous block is one loop; a gap ends it."""
    same(merge_runs((4, 4), [(4, 1)]), [[0, 1]])
    same(merge_runs((4, 4), [(5, 1)]), [[0], [1]])
    same(merge_runs((2, 3, 4), [(12, 4, 1)]), [[0, 1, 2]])


def test_every_operand_counts():
    """One operand that jumps keeps the loops apart."""
    same(merge_runs((4, 4), [(4, 1), (1, 4)]), [[0], [1]])
    same(merge_runs((2, 3, 4), [(12, 4, 1), (0, 4, 1)]), [[0], [1, 2]])


def test_broadcasts_stay():
    """Two broadcast dimensions are one; a broadcast one does not join a walked one."""
    same(merge_runs((3, 4), [(0, 0)]), [[0, 1]])
    same(merge_runs((3, 4), [(4, 1), (0, 1)]), [[0], [1]])
    same(merge_runs((3, 4), [(4, 1), (1, 0)]), [[0], [1]])


def test_size_one_means_nothing():
    """A dimension of size 1 is in no run, whatever its stride says."""
    same(merge_runs((1, 4), [(99, 1)]), [[1]])
    same(merge_runs((4, 1, 4), [(4, 17, 1)]), [[0, 2]])
    same(merge_runs((4, 1, 4), [(4, 4, 1), (4, 0, 1)]), [[0, 2]])
    same(merge_runs((1, 1), [(1, 1)]), [])


def test_against_addresses():
    """Three hundred random nests: the merged loops visit the same addresses in the same order."""
    rng = random.Random(3)
    for _ in range(300):
        rank = rng.randrange(1, 5)
        sizes = tuple(rng.choice([1, 2, 3, 4]) for _ in range(rank))
        strides = []
        for _ in range(rng.choice([1, 2, 3])):
            step, own = 1, []
            for n in reversed(sizes):
                own.append(rng.choice([step, step, step, 0, step + 1]))
                step *= n
            strides.append(tuple(reversed(own)))
        runs = merge_runs(sizes, strides)
        flat = [d for run in runs for d in run]
        same(flat, [d for d in range(rank) if sizes[d] != 1], where=f"dimensions kept of {sizes}")
        for s in strides:
            walked = [sum(i * k for i, k in zip(index, s)) for index in itertools.product(*map(range, sizes))]
            merged = []
            for run in runs:
                n = 1
                for d in run:
                    n *= sizes[d]
                merged.append((n, s[run[-1]]))
            again = [sum(i * k for i, (_, k) in zip(index, merged)) for index in itertools.product(*(range(n) for n, _ in merged))]
            same(again, walked, where=f"addresses of sizes {sizes} strides {strides}")


def test_compiles_small_images():
    """The whole compiler on your loops: a convolution block with 4x4 images and a broadcast bias."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish()).eval()
    x = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        same(minipt2.compile(model)(x), model(x), rtol=1e-4, atol=1e-5)
