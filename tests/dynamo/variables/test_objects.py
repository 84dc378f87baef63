"""User classes: construction, attributes, descriptors, operators, inheritance, subclasses of builtin containers."""
from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import pytest
import torch

from .checking import check

X = torch.arange(6.0).reshape(2, 3)


class Plain:
    scale = 2
    registry: dict = {}

    def __init__(self, value, extra=1):
        self.value = value
        self.extra = extra

    @property
    def doubled(self):
        return self.value * 2

    @doubled.setter
    def doubled(self, new):
        self.value = new / 2

    @classmethod
    def make(cls, value):
        return cls(value, extra=5)

    @staticmethod
    def shift(x, by=1):
        return x + by

    def method(self, x):
        return self.shift(x) * self.scale + self.extra

    def __call__(self, x):
        return x * self.extra

    def __eq__(self, other):
        return isinstance(other, Plain) and self.extra == other.extra

    __hash__ = None


class Child(Plain):
    scale = 3

    def __init__(self, value):
        super().__init__(value, extra=7)
        self.child = True

    def method(self, x):
        return super().method(x) - 1


class Dunders:
    def __init__(self, data):
        self.data = list(data)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]

    def __setitem__(self, i, v):
        self.data[i] = v

    def __contains__(self, v):
        return v in self.data[1:]

    def __iter__(self):
        return iter(self.data)

    def __add__(self, other):
        return Dunders(self.data + list(other))

    def __radd__(self, other):
        return other + len(self)

    def __mul__(self, k):
        return NotImplemented if isinstance(k, str) else Dunders([d * k for d in self.data])

    def __iadd__(self, other):
        self.data.append(other)
        return self

    def __neg__(self):
        return -self.data[0]

    def __bool__(self):
        return False

    def __lt__(self, other):
        return len(self) < len(other)

    def __repr__(self):
        return f"Dunders({len(self.data)})"


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Dynamic:
    def __init__(self):
        self.known = 1

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)


class Watched:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __setattr__(self, name, value):
        self.log.append(name)
        super().__setattr__(name, value)


class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 0)

    def __set__(self, obj, value):
        setattr(obj, self.name, value + 1)


class WithDescriptor:
    field = Typed()

    @functools.cached_property
    def cached(self):
        return self.field * 10


@dataclasses.dataclass
class Data:
    x: Any
    n: int = 3
    items: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.total = self.n + 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: int = 2


class Typed2(NamedTuple):
    first: Any
    second: int = 5

    def both(self):
        return self.first * self.second


class Output(collections.OrderedDict):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        for k, v in kwargs.items():
            setattr(self, k, v)

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return tuple(self.values())[k]


class MyList(list):
    def total(self):
        return sum(self)


class MyDict(dict):
    def __missing__(self, key):
        return key


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    def describe(self):
        return self.name.lower()


class Base(abc.ABC):
    @abc.abstractmethod
    def run(self, x): ...

    def twice(self, x):
        return self.run(self.run(x))


class Impl(Base):
    def run(self, x):
        return x + 1


class Counter:
    count = 0

    def bump(self):
        type(self).count += 1
        return self


class NewMade:
    def __new__(cls, *args):
        obj = super().__new__(cls)
        obj.tag = len(args)
        return obj

    def __init__(self, *args):
        self.args = args


def construct(x):
    p = Plain(x)
    c = Child(x + 1)
    q = Plain.make(x)
    return p.method(x), c.method(x), q.extra, p.doubled, c.child, p == Plain(x), p(x), isinstance(c, Plain), type(c).__name__


def returned_object(x):
    p = Child(x)
    p.doubled = x * 4
    p.note = "hi"
    return x + 1, [p.value, p.note, p.__dict__["extra"], vars(p)["note"], hasattr(p, "nothing"), getattr(p, "zip", None)]


def dunders(x):
    d = Dunders([x, 2, 3])
    d[1] = 5
    e = d + [1]
    e += 9
    return d[0] * len(d), 3 in d, 5 in d, list(e)[1:], bool(d), -d, d < e, 1 + d, (d * 2)[1], repr(d), f"{d}", [v for v in d][1:]


def special(x):
    s = Slots(x)
    s.b = 3
    dyn = Dynamic()
    w = Watched()
    w.a = 1
    w.b = x
    desc = WithDescriptor()
    desc.field = 4
    return s.a * s.b, hasattr(s, "c"), dyn.auto_name, hasattr(dyn, "other"), w.log, w.b, desc.field, desc.cached, desc.__dict__["cached"]


def data_classes(x):
    d = Data(x, items=[1])
    e = dataclasses.replace(d, n=9)
    f = Frozen(1)
    return d.x * d.total, e.n, d.items, Data(x).items, f == Frozen(1, 2), f.a, [fd.name for fd in dataclasses.fields(d)], dataclasses.is_dataclass(f)


def frozen_raises(x):
    f = Frozen(1)
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError:
        return x + f.a


def typed_tuple(x):
    t = Typed2(x)
    return t.both(), t, t[1], t._replace(second=2).both(), [v for v in t][1:]


def dict_subclass(x):
    out = Output(loss=x * 2, logits=x)
    out["extra"] = 1
    return out["loss"], out[0], list(out.keys()), out.logits, MyDict(a=1).get("a"), len(out)


def list_subclass(x):
    m = MyList([1, 2])
    m.append(3)
    return x * m.total(), m[0], len(m), list(m), isinstance(m, list), m[1:]


def enums(x, c):
    return x * c.value, c is Color.RED, c == Color.GREEN, Color["RED"].describe(), Color(2).name, [m.name for m in Color], c in (Color.RED,)


def abstract(x):
    return Impl().twice(x), issubclass(Impl, Base), NewMade(1, 2).tag, NewMade(3).args


def copies(x):
    p = Plain(x)
    c = copy.copy(p)
    c.extra = 10
    return p.extra + x, c.extra, copy.deepcopy([1, {"a": 2}]), copy.copy([x])[0]


def object_argument(x, p):
    p.extra += 1
    p.value = p.value * x
    p.items.append(x)
    p.new = [1]
    return p.method(x), p


class Holder:
    def __init__(self):
        self.extra, self.value, self.items, self.nested = 1, torch.ones(2, 3), [], {"k": [1, 2]}

    def method(self, x):
        self.nested["k"].append(self.extra)
        return x + self.value + self.extra


@pytest.mark.parametrize("fn", [construct, returned_object, dunders, special, data_classes, frozen_raises, typed_tuple, dict_subclass,
                                list_subclass, abstract, copies], ids=lambda f: f.__name__)
def test_made_inside(fn):
    check(fn, X)


def test_enum_argument():
    check(enums, X, Color.RED)


def test_object_argument_is_changed_once_and_in_order():
    from minipt2.dynamo import optimize

    from .checking import Recorder

    a, b = Holder(), Holder()
    compiled = optimize(object_argument, Recorder(), fullgraph=True)
    for _ in range(2):
        out, ref = compiled(X, a), object_argument(X, b)
        torch.testing.assert_close(out[0], ref[0])
        assert out[1] is a
    torch.testing.assert_close(a.value, b.value)
    assert (a.extra, a.nested, a.new, len(a.items)) == (b.extra, b.nested, b.new, len(b.items))


def test_objects_returned_have_their_state():
    from minipt2.dynamo import optimize

    from .checking import Recorder

    def fn(x):
        p = Child(x)
        d = Data(x + 1, items=[p])
        p.owner = d
        return p, d, Output(a=x * 2, b=[1]), MyList([x]), Slots(x * 3)

    p, d, out, items, slots = optimize(fn, Recorder(), fullgraph=True)(X)
    assert type(p) is Child and d.items[0] is p and p.owner is d and d.total == 4
    torch.testing.assert_close(d.x, X + 1)
    assert type(out) is Output and list(out.keys()) == ["a", "b"] and out.b == [1] and out["b"] is out.b
    torch.testing.assert_close(out.a, X * 2)
    assert type(items) is MyList and len(items) == 1
    torch.testing.assert_close(slots.a, X * 3)


def test_class_attribute_is_guarded_and_written():
    from minipt2.dynamo import optimize

    from .checking import Recorder

    recorder = Recorder()
    compiled = optimize(lambda x, p: x * p.scale, recorder)
    p = Plain(X)
    assert torch.equal(compiled(X, p), X * 2)
    Plain.scale = 4
    try:
        assert torch.equal(compiled(X, p), X * 4)
        p.scale = 5
        assert torch.equal(compiled(X, p), X * 5)
    finally:
        Plain.scale = 2
    counter = Counter()
    bump = optimize(lambda x, c: x + c.bump().count, Recorder())
    assert torch.equal(bump(X, counter), X + 1) and torch.equal(bump(X, counter), X + 2) and Counter.count == 2


def test_replaced_method_is_noticed():
    from minipt2.dynamo import optimize

    from .checking import Recorder

    compiled = optimize(lambda x, p: p.method(x), Recorder())
    p = Impl2()
    assert torch.equal(compiled(X, p), X + 1)
    Impl2.method = lambda self, x: x - 1
    assert torch.equal(compiled(X, p), X - 1)
    p.method = lambda x: x * 9
    assert torch.equal(compiled(X, p), X * 9)


class Impl2:
    def method(self, x):
        return x + 1
