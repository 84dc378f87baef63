"""Every common kind of value in every place it can come from: as input, global, closure cell, attribute, made inside, returned, mutated,
and across a graph break. A row says how to make one, what to do with it, and how to change it."""
from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import math
import operator
import types
import typing
from typing import Any, Callable

import numpy as np
import pytest
import torch

from minipt2 import trace
from minipt2.dynamo import disable, optimize

from snapshot import Snapshot, first_difference

Point = collections.namedtuple("Point", "x y")


class Typed(typing.NamedTuple):
    a: int
    b: str = "b"


class Color(enum.Enum):
    RED, BLUE = 1, 2


class Level(enum.IntEnum):
    LOW, HIGH = 1, 2


class Flags(enum.Flag):
    A, B = enum.auto(), enum.auto()


class Text(str, enum.Enum):
    FIRST = "first"


@dataclasses.dataclass
class Data:
    x: Any
    items: list = dataclasses.field(default_factory=list)
    twice: Any = dataclasses.field(init=False, default=None)

    def __post_init__(self):
        self.twice = self.x * 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: int = 3


@dataclasses.dataclass(slots=True)
class Slots:
    x: Any
    y: int = 3


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, x):
        self.x = x


class Positive:
    """A data descriptor that keeps its value in the instance."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        return self if obj is None else getattr(obj, self.name, 1)

    def __set__(self, obj, value):
        setattr(obj, self.name, abs(value))


class Thing:
    size = Positive()
    shared = [1]

    def __init__(self, x):
        self.x, self.calls = x, 0

    @property
    def half(self):
        return self.x / 2

    @half.setter
    def half(self, value):
        self.x = value * 2

    @functools.cached_property
    def expensive(self):
        self.calls += 1
        return self.x + self.calls

    @classmethod
    def make(cls, x):
        return cls(x)

    @staticmethod
    def double(x):
        return x * 2

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return name[5:]
        raise AttributeError(name)

    def __contains__(self, item):
        return item == 7

    def __getitem__(self, key):
        return self.x * key

    def __iter__(self):
        yield self.x
        yield self.x + 1

    def __eq__(self, other):
        return isinstance(other, Thing)

    __hash__ = None


class Stack(list):
    def push(self, item):
        self.append(item)
        return self


class Config(dict):
    __getattr__ = dict.__getitem__


@functools.singledispatch
def dispatched(value):
    return 1


@dispatched.register
def _(value: int):
    return value * 3


@functools.lru_cache
def cached(n):
    return n + 1


def add(a, b=1, *, c=0):
    return a + b + c


@functools.wraps(add)
def wrapped(*args, **kwargs):
    return add(*args, **kwargs) * 2


def T():
    return torch.tensor([1.0, 2.0])


Row = tuple[Callable[[], Any], Callable[[Any, torch.Tensor], Any], "Callable[[Any, torch.Tensor], Any] | None"]
"""(make, use(value, x), change(value, x) or None)"""

KINDS: dict[str, Row] = {
    "bool": (lambda: True, lambda v, x: x + v, None),
    "int": (lambda: 3, lambda v, x: (x * v, v // 2, v.bit_length(), divmod(v, 2), -v % 5), None),
    "float": (lambda: 1.5, lambda v, x: (x * v, v.is_integer(), round(v), math.floor(v)), None),
    "complex": (lambda: 1 + 2j, lambda v, x: (x * v, v.real, abs(v)), None),
    "str": (lambda: "ab-c", lambda v, x: (x + len(v), v.split("-"), v.title(), f"{v!r:>8}", v[1:], "a" in v, v.encode()), None),
    "bytes": (lambda: b"ab", lambda v, x: (x + v[0], v.decode(), v + b"c", v.hex(), list(v)), None),
    "none": (lambda: None, lambda v, x: x if v is None else x + 1, None),
    "ellipsis": (lambda: ..., lambda v, x: x[v, 0], None),
    "slice": (lambda: slice(0, 1), lambda v, x: (x[v], v.stop, v.indices(5), [1, 2][v]), None),
    "range": (lambda: range(1, 6, 2), lambda v, x: (x + sum(v), len(v), v[1], 3 in v, v[::-1], list(v)), None),
    "enum": (lambda: Color.RED, lambda v, x: (x * v.value, v.name, v is Color.RED, v == Color.BLUE, Color(2), Color["RED"], list(Color), str(v)), None),
    "int enum": (lambda: Level.HIGH, lambda v, x: (x * v, v + 1, v > Level.LOW, v.name), None),
    "flag": (lambda: Flags.A, lambda v, x: (x + (v | Flags.B).value, Flags.B in v, bool(v & Flags.A)), None),
    "str enum": (lambda: Text.FIRST, lambda v, x: (x + len(v), v == "first", {"first": 1}[v]), None),
    "tuple": (lambda: (1, T(), "s"), lambda v, x: (x * v[1], v[::2], v + (1,), v.index("s"), len(v), {v[0]: 1}), None),
    "named tuple": (lambda: Point(T(), 2), lambda v, x: (x * v.x + v.y, v._replace(y=3), v._asdict(), v._fields, Point._make([1, 2]), v[0], [*v]), None),
    "typed tuple": (lambda: Typed(3), lambda v, x: (x * v.a, v.b, v == Typed(3), Typed(a=1, b="q")), None),
    "list": (lambda: [T(), 2], lambda v, x: (v[0] + x, v * 2, v + [x], v[-1], len(v), v.copy(), v == v), lambda v, x: (v.append(x), v.insert(0, 1), v.pop(1))),
    "nested list": (lambda: [[1], [2, [T()]]], lambda v, x: (v[1][1][0] + x, sum(v[0])), lambda v, x: v[1][1].append(v[0])),
    "deque": (lambda: collections.deque([1, T()], maxlen=3), lambda v, x: (x + v[0], len(v), v.maxlen, list(v)), lambda v, x: (v.appendleft(x), v.rotate(1), v.extend([1, 2]), v.popleft())),
    "dict": (lambda: {"a": T(), 2: 3}, lambda v, x: (x + v["a"], list(v), v.get(5), {**v}, v | {"z": 1}, "a" in v), lambda v, x: (v.update(b=x), v.pop(2, None), v.setdefault("c", []).append(1))),
    "dict views": (lambda: {"a": 1, "b": 2}, lambda v, x: (x + sum(v.values()), list(v.keys() & {"a"}), list(v.items()), v.keys() == {"a", "b"}, max(v.items(), key=lambda p: p[1])), None),
    "ordered dict": (lambda: collections.OrderedDict(a=1, b=T()), lambda v, x: (x + v["b"], list(reversed(v))), lambda v, x: (v.move_to_end("a"), v.update(c=1), v.pop("c"))),
    "default dict": (lambda: collections.defaultdict(list, a=[1]), lambda v, x: (x + len(v["a"]), v.default_factory is list), lambda v, x: (v["new"].append(x), v["a"].append(2))),
    "counter": (lambda: collections.Counter("aab"), lambda v, x: (x + v["a"], v["zz"], v.most_common(1), sorted(v.elements()), sum(v.values())), lambda v, x: (v.update("ab"), v.subtract("a"))),
    "set": (lambda: {1, 2}, lambda v, x: (x + len(v), v | {3}, v & {1}, v - {1}, v ^ {9}, 1 in v, v <= {1, 2, 3}), lambda v, x: (v.add(5), v.discard(1), v.update([7, 8]))),
    "frozen set": (lambda: frozenset([1, 2]), lambda v, x: (x + sum(v), v | {3}, 1 in v, {v: 1}[v]), None),
    "zip": (lambda: zip([1, 2, 3], "abc"), lambda v, x: (x + next(v, (0,))[0], list(v)), None),
    "enumerate": (lambda: enumerate(["a", "b"], 5), lambda v, x: (x + next(v, (0,))[0], [*v]), None),
    "map": (lambda: map(operator.neg, [1, 2, 3]), lambda v, x: (x + next(v, 0), list(v)), None),
    "filter": (lambda: filter(None, [0, 1, 2]), lambda v, x: (x + next(v, 0), list(v)), None),
    "list iterator": (lambda: iter([1, 2, 3]), lambda v, x: (x + next(v, 0), list(v), next(v, "end")), None),
    "generator": (lambda: (i * i for i in range(4)), lambda v, x: (x + next(v, 0), list(v)), None),
    "chain": (lambda: itertools.chain([1], (2, 3)), lambda v, x: (x + next(v, 0), list(v)), None),
    "count": (lambda: itertools.count(3, 2), lambda v, x: (x + next(v), next(v), list(itertools.islice(v, 2))), None),
    "itertools": (lambda: [3, 1, 2], lambda v, x: (x + sum(itertools.accumulate(v)), list(itertools.product(v, repeat=2))[:3], list(itertools.combinations(v, 2)), list(itertools.pairwise(v)),
                  list(itertools.permutations(v))[1], [(k, list(g)) for k, g in itertools.groupby(sorted(v), lambda n: n > 1)], list(itertools.zip_longest(v, [1])), list(itertools.takewhile(lambda n: n > 2, v)),
                  list(itertools.starmap(pow, [(2, 3)])), list(itertools.repeat(1, 2)), list(itertools.compress(v, [1, 0, 1])), list(itertools.dropwhile(lambda n: n > 2, v)), list(itertools.chain.from_iterable([v, v]))), None),
    "dataclass": (lambda: Data(T()), lambda v, x: (x + v.twice, dataclasses.replace(v, x=x).twice, [f.name for f in dataclasses.fields(v)], dataclasses.is_dataclass(v), v.items), lambda v, x: (v.items.append(x), setattr(v, "x", x))),
    "dataclass made equal": (lambda: Frozen(1), lambda v, x: (x + v.y, v == Frozen(1), v != Frozen(2), dataclasses.asdict(v), dataclasses.astuple(v)), None),
    "frozen dataclass": (lambda: Frozen(T()), lambda v, x: (x + v.x, dataclasses.replace(v, y=5).y), None),
    "slots dataclass": (lambda: Slots(T()), lambda v, x: (x + v.x, v.y), lambda v, x: setattr(v, "y", 9)),
    "slots": (lambda: Slotted(T()), lambda v, x: (x + v.x, hasattr(v, "y")), lambda v, x: setattr(v, "y", x)),
    "object": (lambda: Thing(T()), lambda v, x: (x + v.half, v.auto_name, v.size, v.shared, 7 in v, v[2], [*v], v.make(x).x, v.double(x), v == v, v.expensive, v.expensive, hasattr(v, "nothing")),
               lambda v, x: (setattr(v, "half", x), setattr(v, "size", -4), setattr(v, "extra", 1))),
    "list subclass": (lambda: Stack([1]), lambda v, x: (x + v[0], len(v), [*v]), lambda v, x: v.push(x).push(2)),
    "dict subclass": (lambda: Config(a=T(), n=2), lambda v, x: (x + v.a, v.n, sorted(v)), lambda v, x: v.update(b=x)),
    "namespace": (lambda: types.SimpleNamespace(a=1, t=T()), lambda v, x: (x + v.t, v.a, vars(v)["a"]), lambda v, x: setattr(v, "b", x)),
    "partial": (lambda: functools.partial(add, 1, c=2), lambda v, x: (v(x), v.func is add, v.args, {**v.keywords}), None),
    "wraps": (lambda: wrapped, lambda v, x: (v(x, c=3), v.__name__, v.__wrapped__(x)), None),
    "lambda": (lambda: lambda a, k=2: a * k, lambda v, x: (v(x), v(x, k=3), v.__name__, v.__defaults__), None),
    "lru_cache": (lambda: cached, lambda v, x: x + v(3), None),
    "reduce": (lambda: [T(), T()], lambda v, x: (functools.reduce(operator.add, v, x), functools.reduce(lambda a, b: a * b, [1, 2, 3])), None),
    "singledispatch": (lambda: dispatched, lambda v, x: (x + v(3), v("s")), None),
    "bound method": (lambda: Thing(T()).__getitem__, lambda v, x: x + v(3), None),
    "builtin": (lambda: len, lambda v, x: (x + v([1, 2]), v is len), None),
    "class": (lambda: Thing, lambda v, x: (v(x).half, v.shared, v.__name__, issubclass(v, Thing), isinstance(v(x), v)), None),
    "operator": (lambda: operator.itemgetter(1, 0), lambda v, x: (v([x, 1])[1], operator.attrgetter("x")(Point(x, 1)), operator.methodcaller("upper")("a"), operator.contains([1], 1), operator.mul(x, 2), operator.index(3)), None),
    "math": (lambda: 2.5, lambda v, x: (x * math.sqrt(v), math.prod([1, 2]), math.inf, math.isnan(v), math.gcd(4, 6), math.ceil(v), math.log2(8), math.comb(4, 2), math.pi), None),
    "numpy float": (lambda: np.float32(1.5), lambda v, x: (x * v, float(v), v + 1, v.dtype), None),
    "numpy int": (lambda: np.int64(3), lambda v, x: (x + v, int(v), x.view(2, 1).expand(2, v), [0] * v), None),
    "numpy bool": (lambda: np.bool_(True), lambda v, x: x + 1 if v else x, None),
    "numpy array": (lambda: np.array([1.0, 2.0], dtype=np.float32), lambda v, x: (torch.from_numpy(v) + x, v.sum(), v.shape, v * 2, torch.as_tensor(v), torch.tensor(v)), lambda v, x: v.__setitem__(0, 5)),
    "size": (lambda: torch.Size([2, 1]), lambda v, x: (x.view(v), v.numel(), v[0], v + (1,), tuple(v), v == (2, 1)), None),
    "dtype": (lambda: torch.float64, lambda v, x: (x.to(v), v.is_floating_point, v == torch.float64, torch.zeros(1, dtype=v), torch.finfo(v).eps, str(v), v.itemsize), None),
    "device": (lambda: torch.device("cpu"), lambda v, x: (x.to(v), v.type, v.index, v == x.device, torch.ones(1, device=v), str(v)), None),
    "generator of torch": (lambda: torch.Generator().manual_seed(3), lambda v, x: x + torch.rand(2, generator=v), None),
    "tensor": (T, lambda v, x: (v + x, v.dtype, v.shape, v.is_leaf, v.ndim, v.data + 1, v.grad, v.requires_grad, v.itemsize, v.nbytes, v.is_contiguous(), v.stride(), v.storage_offset(), v.element_size(), len(v), v.layout), lambda v, x: (v.add_(x), v.__setitem__(0, 7.0))),
    "matrix": (lambda: torch.arange(6.0).view(2, 3), lambda v, x: (x, v.T @ x, v.mT, v.H, v.mH.shape, v[:, None].shape, v[..., 0], v.where(v > 2, 0).sum(), [r.sum() for r in v], v.unbind(), v.real), lambda v, x: (v[0].zero_(), v.mul_(2))),
    "parameter": (lambda: torch.nn.Parameter(T()), lambda v, x: (v * x, v.is_leaf, isinstance(v, torch.nn.Parameter), v.data, v.grad is None), None),
    "type alias": (lambda: list[int], lambda v, x: (x, typing.cast(v, 3), typing.get_origin(v)), None),
    "mapping proxy": (lambda: types.MappingProxyType({"a": 1}), lambda v, x: (x + v["a"], list(v.items()), len(v)), None),
    "exception": (lambda: ValueError("a", 2), lambda v, x: (x, v.args, isinstance(v, ValueError)), None),
}  # fmt: skip


OUTSIDE = ("as_input", "as_global", "as_closure", "as_attribute")
USED = (*OUTSIDE, "made_inside")
BREAKS = {
    "count": OUTSIDE, "generator": OUTSIDE, "chain": OUTSIDE, "mapping proxy": OUTSIDE, "exception": USED, "dataclass made equal": USED,
    "singledispatch": USED, "generator of torch": (*USED, "returned"), "numpy array": (*USED, "mutated"), "parameter": ("made_inside", "returned"),
}  # fmt: skip
"""Where a kind breaks the graph."""


class Holder:
    def __init__(self, value):
        self.value = value


@disable
def cut(value=None):
    """A graph break."""
    return value


CURRENT: Any = None
HOLDER = Holder(None)


def as_input(make, use, change, kept):
    return lambda value, x: use(value, x)


def as_global(make, use, change, kept):
    return lambda value, x: use(CURRENT, x)


def as_closure(make, use, change, kept):
    return lambda value, x: use(kept, x)


def as_attribute(make, use, change, kept):
    return lambda value, x: use(HOLDER.value, x)


def made_inside(make, use, change, kept):
    return lambda value, x: use(make(), x)


def returned(make, use, change, kept):
    return lambda value, x: (x + 1, value, [value], make())


def mutated(make, use, change, kept):
    def f(value, x):
        new = make()
        for changed in (value, new):
            change(changed, x)
        return use(value, x), new, x * 2

    return f


def across_break(make, use, change, kept):
    def f(value, x):
        new = make()
        first = use(value, x)
        cut()
        if change is not None:
            change(value, x)
            change(new, x * 2)
        return first, use(new, x + 1), cut(value) is value, new

    return f


PLACES = (as_input, as_global, as_closure, as_attribute, made_inside, returned, mutated, across_break)


def observe(place: Callable, row: Row, wrap: Callable) -> Any:
    """What three calls give and leave behind: two with one value, one with a new one."""
    global CURRENT
    make, use, change = row
    see, outcomes = Snapshot(), []
    value = make()
    run = wrap(place(make, use, change, value))
    for call in range(3):
        if call == 2:
            value = make()
        CURRENT = HOLDER.value = value
        outcomes.append(run(value, torch.tensor([0.5, -1.0])))
    return see((outcomes, value))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind, place):
    row = KINDS[kind]
    if place is mutated and row[2] is None:
        return
    plain = observe(place, row, lambda f: f)
    trace.reset()
    compiled = observe(place, row, lambda f: optimize(f, lambda gm, examples: gm.forward))
    assert plain == compiled, first_difference(plain, compiled)
    if place is not across_break:
        counters = trace.counters()
        broken = counters["breaks"] + counters["skipped_frames"]
        assert bool(broken) == (place.__name__ in BREAKS.get(kind, ())), counters


def run_eagerly(f: Callable) -> Callable:
    return optimize(f, lambda gm, examples: gm.forward)


def test_guards_run_no_code_of_the_user():
    """An attribute kept by one object is a property still to be computed of another."""
    f = run_eagerly(lambda thing: thing.expensive * 2)
    kept, fresh = Thing(torch.ones(2)), Thing(torch.zeros(2))
    f(kept), f(kept)
    assert torch.equal(f(fresh), torch.full((2,), 2.0)) and fresh.calls == 1


class Coded(ValueError):
    def __init__(self, code):
        super().__init__(cut(code), "text")


def test_method_of_super_across_a_break():
    """It is another function than the object's own of that name."""
    def f(x):
        try:
            raise Coded(3)
        except Coded as error:
            return x + error.args[0], error.args

    assert run_eagerly(f)(torch.ones(1)) == f(torch.ones(1))


def test_list_extended_by_a_generator_that_reads_it():
    def f(x):
        items = [1]
        items.extend(len(items) for _ in range(3))
        return x + items[-1], items

    assert run_eagerly(f)(torch.ones(1)) == f(torch.ones(1))
