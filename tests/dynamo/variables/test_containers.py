"""Lists, tuples, dicts, sets, deques, iterators: methods, operators, mutation of what came from outside."""
from __future__ import annotations

import collections
import itertools
import operator

import pytest
import torch

import minipt2

from .checking import check

X = torch.arange(6.0).reshape(2, 3)


def list_methods(x):
    items = [x, x + 1]
    items.append(x * 2)
    items.insert(0, x - 1)
    items.extend([1, 2, 3])
    items[2:] = [n for n in items[2:] if not isinstance(n, int) or n != 2]
    last = items.pop()
    items.reverse()
    del items[0]
    items[0] = x * 5
    items[1:2] = [x, x]
    return items, last, len(items), [1, 2, 3].index(2), 1 in [2, 3]


def list_sort(x):
    names = ["b", "a", "c"]
    names.sort(reverse=True)
    pairs = sorted([(2, "x"), (1, "y")], key=lambda p: p[0])
    return x + len(names), names, pairs, [1, 2] + [3], [0] * 3, [1, 2] == [1, 2], [1] < [2], max([3, 1]), min(3, 1, 2)


def list_argument(x, items):
    items.append(x)
    items[0] += 1
    return x * items[0], items


def nested_argument(x, state):
    state["seen"].append(x.shape[0])
    state["count"] = state.get("count", 0) + 1
    state["new"] = {"a": [1]}
    return x * state["count"]


def tuples(x):
    a = (x, 1, "s")
    b = a + (2,)
    first, *rest = b
    return first, rest, a[1:], b[-1], (3, 1).index(1), (2, 2).count(2), (1, 2) < (1, 3), a * 2 is b, hash((1, 2))


def sizes(x):
    s = x.shape
    return x.view(-1, *s[1:]), s, s[0] + s[1], s.numel(), (-1,) + s[1:] + (4,), list(s), len(s), torch.Size([1, 2]), s == (2, 3)


Point = collections.namedtuple("Point", ["x", "y"], defaults=[3])


def named_tuples(x, p):
    q = Point(x, y=p.y + 1)
    r = q._replace(y=7)
    return q, r.y, p.x + q.x, Point._fields, q._asdict()["y"], isinstance(q, tuple), Point(1)


def dict_methods(x):
    d = {"a": x, "b": 2}
    d["c"] = x + 1
    d.update({"d": 4}, e=5)
    d.setdefault("f", []).append(x)
    popped = d.pop("b")
    missing = d.pop("zz", None)
    del d["d"]
    keys, values = list(d.keys()), [v for v in d.values() if isinstance(v, torch.Tensor)]
    copied = dict(d, g=1)
    merged = d | {"h": 2}
    return d, popped, missing, keys, values, [(k, 1) for k, _ in d.items()], copied, merged, "a" in d, len(d), d == copied


def dict_kinds(x):
    od = collections.OrderedDict(a=1, b=x)
    od.move_to_end("a")
    dd = collections.defaultdict(list)
    dd["k"].append(x)
    dd["k"].append(2)
    return od, list(od), dd, dict(dd), dict.fromkeys(["p", "q"], 0), {**od}, dict(zip("ab", [1, 2])), od.popitem()


def dict_argument(x, d):
    total = d["a"] + x
    d["b"] = total
    d["c"] = d.pop("a")
    for k in list(d):
        if k == "gone":
            del d[k]
    return total, "missing" in d, d.get("nothing", 4)


def dict_order_argument(x, od):
    od.move_to_end("a")
    return x + 1, list(od)


def sets(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(1)
    s |= {9}
    return x + len(s), s, s & {2, 9}, s - {2}, s ^ {2}, 2 in s, frozenset(s), s.issubset({2, 3, 4, 9}), sorted(s), {1} < {1, 2}


def set_argument(x, s):
    s.add("new")
    return x * len(s), "old" in s


def deques(x):
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(x)
    d.rotate(1)
    return d, d.popleft(), len(d), d[0], x + 1


def deque_argument(x, d):
    d.append(x + d[0])
    d.popleft()
    return x + 1


def iterators(x):
    out = []
    for i, (a, b) in enumerate(zip([x, x + 1], (1, 2)), start=1):
        out.append(a * b + i)
    it = iter([1, 2, 3])
    first = next(it)
    rest = list(it)
    end = next(it, "end")
    return out, first, rest, end, list(map(lambda v: v + 1, [1, 2])), list(filter(None, [0, 1, 2])), list(reversed([1, 2])), sum(
        [x, x]), any([0, 1]), all([]), [*range(3)], list(range(5, 0, -2)), dict(enumerate("ab"))


def itertools_functions(x):
    pairs = list(itertools.product([1, 2], "ab"))
    chained = list(itertools.chain([1], (2,), [x]))
    flat = list(itertools.chain.from_iterable([[1], [2, 3]]))
    counted = list(zip(itertools.count(5), "xyz"))
    return (x + 1, pairs, chained, flat, counted, list(itertools.islice(itertools.cycle([1, 2]), 5)), list(itertools.accumulate([1, 2, 3])),
            list(itertools.combinations([1, 2, 3], 2)), list(itertools.repeat(x, 2)), list(itertools.zip_longest([1], [2, 3])),
            list(itertools.starmap(operator.add, [(1, 2)])), list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])),
            [(k, list(g)) for k, g in itertools.groupby("aab")], list(itertools.permutations([1, 2])), list(itertools.pairwise([1, 2, 3])))


def comprehension_and_unpacking(x):
    def take(*args, **kwargs):
        return len(args), sorted(kwargs)

    rows = [r * i for i, r in enumerate(x)]
    return torch.stack(rows), {k: v for k, v in zip("ab", rows)}, {i % 2 for i in range(5)}, take(*[1, 2], *(3,), **{"a": 1}, b=2)


def slices(x):
    s = slice(0, 1)
    return x[s], x[:, 1:], x[..., -1], [1, 2, 3, 4][::2], s.start, s.indices(5), "abc"[1:], x[[0, 1]], x[None].shape


def shared_lists(x, a, b):
    a.append(1)
    return x + len(b), a is b


@pytest.mark.parametrize("fn", [list_methods, list_sort, tuples, sizes, dict_methods, dict_kinds, sets, deques, iterators,
                                itertools_functions, comprehension_and_unpacking, slices], ids=lambda f: f.__name__)
def test_made_inside(fn):
    check(fn, X, graphs=None)


@pytest.mark.parametrize("fn,argument", [
    (list_argument, [1, 2]), (nested_argument, {"seen": [], "other": X}), (named_tuples, Point(X, 4)), (dict_argument, {"a": X, "gone": 1, "z": 2}),
    (dict_order_argument, collections.OrderedDict(a=1, b=2)), (set_argument, {"old"}), (deque_argument, collections.deque([X, 2])),
], ids=lambda v: getattr(v, "__name__", ""))
def test_arguments_and_their_mutation(fn, argument):
    check(fn, X, argument, graphs=None, calls=1)


def test_two_lists_then_one_list_twice():
    from minipt2.dynamo import optimize

    from .checking import Recorder

    compiled = optimize(shared_lists, Recorder())
    one, two = [], []
    assert compiled(X, one, two)[1] is False
    same_list = []
    out = compiled(X, same_list, same_list)
    assert out[1] is True and torch.equal(out[0], X + 1)


def test_iteration_over_growing_list():
    def fn(x):
        items = [1]
        for n in items:
            if n < 4:
                items.append(n + 1)
            x = x + n
        return x, items

    check(fn, X)


def test_key_error_is_the_users():
    def fn(x, d):
        try:
            return x + d["missing"]
        except KeyError as error:
            return x - 1, error.args

    check(fn, X, {"a": 1})


def test_guards_follow_what_was_read():
    from minipt2.dynamo import optimize

    from .checking import Recorder

    recorder = Recorder()
    compiled = optimize(lambda x, d: x * d["k"], recorder)
    compiled(X, {"k": 2})
    compiled(X, {"k": 2, "unused": 5})
    assert len(recorder.graphs) == 1
    assert torch.equal(compiled(X, {"k": 3}), X * 3)
    assert len(recorder.graphs) == 2


class Named:
    """Equal by name."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name


def test_a_key_of_an_existing_dict_found_by_an_equal_object():
    table = {Named("a"): torch.ones(3), Named("b"): torch.zeros(3)}
    wanted = Named("b")
    compiled = minipt2.compile(lambda x: x + table[wanted], backend="eager")
    x = torch.randn(3)
    assert torch.equal(compiled(x), x)
    assert minipt2.counters()["skipped_frames"] == 0


def test_distributions_check_their_arguments():
    def f(mean, scale):
        made = torch.distributions.Normal(mean, scale)
        return made.log_prob(mean + 1), torch.distributions.kl_divergence(made, torch.distributions.Normal(mean + 1, scale))

    args = torch.randn(3), torch.rand(3) + 1
    for ours, eager in zip(minipt2.compile(f, backend="eager")(*args), f(*args)):
        assert torch.equal(ours, eager)
    assert minipt2.counters()["skipped_frames"] == 0
