"""The order in which units run: valid, and what is made for later not early."""
import random

from minipt2.inductor.scheduler.graph import Order
from minipt2.inductor.scheduler.late import late_order


def order_of(steps, sizes, lasting=(), merged=()):
    """``steps``: (reads, writes) in a valid order; ``merged``: pairs of steps that are one unit."""
    writer = {name: k for k, (_, writes) in enumerate(steps) for name in writes}
    graph = Order(len(steps), [{writer[r] for r in reads if r in writer} for reads, _ in steps])
    for a, b in merged:
        graph.merge(a, b)
    traffic = {u: (set().union(*(steps[m][0] for m in graph.members[u])), set().union(*(steps[m][1] for m in graph.members[u])))
               for u in graph.sorted_units()}
    order = late_order(graph, traffic, lambda n: sizes.get(n, 1), lasting.__contains__)
    place = {u: k for k, u in enumerate(order)}
    assert sorted(order) == sorted(graph.sorted_units())
    assert all(place[u] < place[v] for u in order for v in graph.after(u))
    return order


def names(*pairs):
    return [(set(reads.split()), set(writes.split())) for reads, writes in pairs]


def test_what_is_computed_again_comes_before_its_first_reader():
    steps = names(("s1", "r1"), ("s2", "r2"), ("g s1 s2", "a"), ("a r2", "b"), ("b r1", "c"))
    assert order_of(steps, {}) == [2, 1, 3, 0, 4]


def test_a_chain_of_it_does_too():
    steps = names(("s", "r1"), ("r1 s", "r2"), ("g", "a"), ("a s", "b"), ("b r2", "c"))
    assert order_of(steps, {}) == [2, 3, 0, 1, 4]


def test_what_frees_more_than_it_makes_does_not_wait():
    steps = names(("big", "small"), ("g", "a"), ("a", "b"), ("b small", "c"))
    assert order_of(steps, {"big": 100}) == [0, 1, 2, 3]
    assert order_of(steps, {"big": 100}, lasting=["big"]) == [1, 2, 0, 3]


def test_a_unit_with_a_late_member_runs_when_others_need_it():
    steps = names(("g", "a"), ("w", "cast"), ("a", "b"), ("b cast", "c"), ("a", "out"))
    assert order_of(steps, {"cast": 50, "w": 0}, merged=[(0, 4)]) == [0, 2, 1, 3]


def test_random_graphs_stay_in_order():
    for seed in range(50):
        rng = random.Random(seed)
        steps = [({f"v{rng.randrange(k + 1)}" for _ in range(rng.randint(1, 3))}, {f"v{k + 1}"}) for k in range(rng.randint(2, 25))]
        order_of(steps, {f"v{k}": rng.randint(1, 9) for k in range(26)})
