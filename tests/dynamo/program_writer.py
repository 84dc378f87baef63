"""Source text of small random programs: what ``test_differential`` runs plain and compiled.

A program is ``HEADER`` (helpers: generators, context managers, classes) and ``make()``, which returns the function ``f`` and ``peek``, a
view of its closure. Statements are templates: ``{T}`` becomes a tensor expression, ``{I}`` an integer, ``{S}`` a string, ``{L}`` a list
of tensors, ``{C}`` a condition, ``{N}`` a tensor variable, ``{v}`` and ``{w}`` new names, and a line ``...`` a block of further statements.
"""
from __future__ import annotations

import random
import re
from typing import Any

from hypothesis import strategies as st

HEADER = '''
import collections, contextlib, copy, dataclasses, enum, functools, itertools, math, operator, random
import numpy as np
import torch

counter, registry = 0, {}
Spot = collections.namedtuple("Spot", ["a", "b"])

class Mode(enum.Enum):
    ON, OFF = 1, 2

class Point:
    unit = 2
    def __init__(self, x):
        self.x, self.seen = x, []
    @property
    def twice(self):
        return self.x * 2
    @twice.setter
    def twice(self, value):
        self.x = value / 2
    def move(self, by, *more, scale=1):
        self.x = self.x + by * scale
        self.seen.append(len(more))
        return self
    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(name)
    def __add__(self, other):
        return Point(self.x + other)
    def __len__(self):
        return len(self.seen)
    def __call__(self, value):
        return value * self.unit + self.x

class Slotted:
    __slots__ = ("a", "b")
    def __init__(self, a):
        self.a = a

@dataclasses.dataclass
class Pair:
    left: object
    right: object = 1
    log: list = dataclasses.field(default_factory=list)
    def __post_init__(self):
        self.log.append("made")

class Failure(Exception):
    def __init__(self, code, text="?"):
        super().__init__(code, text)
        self.code = code

class Guarded:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, kind, value, tb):
        self.log.append("out" if kind is None else kind.__name__)
        return kind is KeyError

@contextlib.contextmanager
def managed(log):
    log.append("enter")
    try:
        yield len(log)
    except LookupError:
        log.append("lookup")
        raise
    finally:
        log.append("leave")

def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        registry["calls"] = registry.get("calls", 0) + 1
        return fn(*args, **kwargs)
    return wrapper

@traced
def helper(a, b, k=1):
    c = a * k
    if k == 2:
        c = c + b
    return c + b

def fail(n):
    if n % 2:
        raise Failure(n, text="odd")
    raise ValueError(f"even {n}")

def numbers(n, log):
    try:
        for i in range(n):
            got = yield i
            if got is not None:
                log.append(got)
    finally:
        log.append("closed")

def evens(n):
    """May be left half-way: a real one dies later than in eager after a break, since the frame before still holds it."""
    for i in range(0, n, 2):
        yield i

def chained(n, log):
    yield -1
    yield from numbers(n, log)

def gather(first, *args, last=0, **named):
    return sum(args, first) + last + len(named)

def count_up():
    global counter
    counter += 1
    return counter

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def default_grows(v, store=[]):
    store.append(v)
    return len(store)

def make():
    total, cell = 0, []
    def f(x, y, box, table, point, n=1, *rest, key="k", **named):
        global counter
        nonlocal total
        a, b, m, log, bag = x + 1, y * 2, len(rest), [], set()
'''
FOOTER = '''
        return [a, b, x, y, n, m], log, sorted(bag, key=str), torch.is_grad_enabled()
    def peek():
        return total, cell, counter, registry, default_grows.__defaults__
    return f, peek
'''

TENSORS = """
{N} | {N} | {N} | {T} + {T} | {T} * {T} | {T} - {T} | torch.relu({T}) | {N} * {I} | helper({T}, {T}, k={I} % 3) | {N}.sum() | point.x | point.twice
({T} if {C} else {T}) | {L}[0] | point({N}) | {N}[{I} % 2] | torch.stack([{T}, {T}]).sum(0) | {N} + {N}.sum().item() | gather({T}, {T}, last={I})
gather(*{L}, **table) | sum({L}) | max({L}, key=lambda t: t.dim()) | functools.reduce(operator.add, {L}) | (lambda q, r={N}: q - r)({T})
table.get(key, {N}) | ({v} := {T}) + 1 | getattr(point, "y", {N}) | torch.where({N} > 0, {N}, {T}) | {N}.clone().mul_(2) | copy.copy({N}) | {N}.detach()
functools.partial(helper, {N})({N}, k=2) | Pair({T}).left | Spot({T}, {T})._replace(b={N}).b | dataclasses.replace(Pair({N}), right={T}).right
torch.tensor({I}) | {N}.max() | {N}.view(-1) | (point + {N}).x | next(iter({L})) | [*{L}][-1] | {N}.new_zeros(2) | {N}.to(torch.float64).float()
"""
INTEGERS = """
0 | 1 | 2 | 3 | n | n | m | len(box) | len(log) | {I} + {I} | {I} % 3 | -{I} | min({I}, 3) | max({I}, {I}) | count_up() | fib({I} % 5) | total | counter | len(point)
{N}.dim() | {N}.numel() | table.get("n", 5) | point.dyn_abc | abs({I}) | sum(i for i in range({I} % 4)) | len({S}) | default_grows({I}) | math.floor(2.5) | hash({I})
random.randint(0, 2) | int(np.random.rand() * 3) | [1, 2, 3].index({I}) | int(str({I})) | ({I} and {I}) | ({I} or 2) | not {C} | divmod(7, {I})[1] | rest[0] if rest else 4
operator.itemgetter(1)([3, 1]) | len(range(0, {I})) | bool({I}) + 1 | Mode.ON.value | id(x) - id(x) | round(1.5) | 7 // {I} | 2 ** ({I} % 4) | int({N}.sum() > 0)
"""
STRINGS = """
"s" | key | f"{{n:>3}}|{{m!r}}" | "a,b".split(",")[{I} % 2] | type({N}).__name__ | ",".join(sorted(table)) | str({I}) | "x" * ({I} % 3) | "%s-%d" % (key, n)
repr({N}.shape) | "{{}}".format({I}) | f"{{Mode.ON}}" | f"{{point.unit + n}}" | key.upper() | point.__class__.__qualname__ | str(Spot(1, {I})) | f"{{sorted(bag, key=str)}}"
"""
LISTS = """
[{N}, {T}] | box[:2] | [{v} * 2 for {v} in box[:2]] | list(map(torch.relu, box[:2])) | [{v} for {v} in box[:2] if {v}.dim()] or [{N}] | [{T}]
[q for q, i in zip(box, range({I}))] or [{N}] | [v for k, v in enumerate(box[:2]) if k < 1] | sorted([{N}, {T}], key=torch.is_tensor)[:1] + [{N}] | list((x, y)) | [*box[:1], {N}]
list(itertools.islice(itertools.chain([{N}], box), 2)) | [t for row in [[{N}], [x]] for t in row] | list({{1: {N}}}.values()) | list(torch.unbind({N}.view(-1)))
list(filter(torch.is_tensor, [{N}, 1])) | list(collections.deque([{N}, {T}], maxlen=1)) | [{N}] * 2 | list(reversed([{N}, {T}])) | [w + n for w in (x, y)]
"""
CONDITIONS = """
{N}.sum() > 0 | {I} > {I} | {I} in (0, 2) | isinstance({N}, torch.Tensor) | {C} and {C} | not {C} | {N} is {N} | n | box | key in table | "k" == key | bag
0 <= {I} < 3 | {I} == {I} | hasattr(point, "x") | {N}.requires_grad | rest | named.get("flag") | {C} or {C} | table.keys() >= {{"n"}} | callable(point) | {N}.any()
any(i > 1 for i in range({I} % 4)) | all(t.dim() for t in {L}) | {S} < {S} | issubclass(type(point), Point) | None is {N} | Mode.ON is Mode(1) | {N} in [{N}]
"""
SIMPLE = """
{N} = {T} | {N} = {T} | {N} = {T} | {N} += {T} | {N} = {T}; {N} = {N} * 2 | {N}, {N} = {T}, {T} | n = {I} | n += 1 | m = {I} | m -= {I} | box.append({T}) | log.append({I})
log.append({S}) | bag.add({I}) | bag.add({S}) | bag |= {{{I}, {I}}} | bag.discard({I}) | table[{S}] = {T} | table["n"] = {I} | table.setdefault("s", {T}) | table.pop(key, None)
table.update(n={I}) | del table[{S}] | point.x = {T} | point.twice = {T} | point.move({T}, 1, *rest, scale={I}) | point.seen.append({I}) | point.y = {T} | del point.y
Point.unit = {I} | registry[{S}] = {I} | counter = {I} | counter += 1 | total += 1 | total = {I} | cell.append({I}) | print({S}, {I}) | print(f"{{n}} {{len(box)}}", end=";")
{N}.add_({I}) | {N}.mul_({T}) | {N}[{I}] = {I} | {N}[0] += 1 | x.zero_() | {N}.copy_({T}) | torch.add({N}, {N}, out={N}) | box[{I}] = {T} | box[-1] *= 2 | box.insert(0, {T})
box.extend({L}) | box[:1] = {L} | box.pop() | box.reverse() | box += [{T}] | {N}, *{v} = {L}; log.append(len({v})) | (first, second), third = ({T}, {I}), {I}; log.append(second)
assert {C}, {S} | assert {I} < 9 | {v} = {T}; del {v} | {v} = Pair({T}, {I}); {v}.right += 1; log.append({v}.log) | {v} = Slotted({T}); {v}.b = {N}; {N} = {v}.b + {v}.a
{v} = {{**table, "z": {I}}}; log.append(list({v})) | {v} = collections.OrderedDict(q={I}); {v}.move_to_end("q"); log.append({v}) | log.append(Spot({I}, {S})) | a, b = b, a
{v} = collections.defaultdict(list); {v}[{I}].append({S}); log.append(dict({v})) | {v} = numbers({I}, log); log.append(next({v}, None)); {v}.close() | log.extend(chained({I}, log))
log.append(list(numbers({I}, log))) | {v} = iter(box); log.append(next({v}).dim()) | log.append(random.random()) | log.append(float(np.random.rand())) | log.append(torch.rand(1))
{v} = itertools.count({I}); log.append([next({v}), next({v})]) | log.append(collections.Counter({S})) | log.append(sorted(table)) | log.append((yield_free := {I})) | return {T}
log.append([*map(str, range({I} % 4)), *bag][:1]) | key = {S} | rest = (*rest, {I}) | named[{S}] = {I} | {v} = slice(0, {I}); log.append([1, 2, 3][{v}]) | log.append(max(1, {I}, 2))
{v} = copy.deepcopy(log[:2]); {v}.append(1); log.append(len({v})) | {v} = log; {v} += [{I}] | setattr(point, "z", {I}) | log.append(vars(point).keys() & {{"x", "z"}}) | raise Failure({I})
log.append({N}.shape) | log.append({N}.dtype) | log.append(table.items() == table.copy().items()) | log.append(b"ab"[{I}:]) | log.append(frozenset([{I}, 1])) | pass | log.append(box)
"""
BLOCKS = [
    "if {C}:\n    ...", "if {C}:\n    ...\nelse:\n    ...", "if {C}:\n    ...\nelif {C}:\n    ...\nelse:\n    ...",
    "for {v} in range({I} % 4):\n    ...", "for {v} in range(3):\n    ...\n    if {C}:\n        break\n    ...\nelse:\n    ...",
    "for {v}, {v} in zip(range(2), {L}):\n    ...\n    if {C}:\n        continue\n    ...", "for {v} in list(box[:2]):\n    {N} = {T}\n    ...",
    "for {v} in numbers(2, log):\n    ...", "for {v} in evens(5):\n    ...\n    if {C}:\n        break", "for {v}, {v} in list(table.items())[:2]:\n    ...",
    "{w} = 0\nwhile {w} < 2:\n    {w} += 1\n    ...", "{w} = 0\nwhile True:\n    {w} += 1\n    if {w} > {I} % 3 or {w} > 3:\n        break\n    ...",
    "try:\n    ...\nexcept Exception as e:\n    log.append(type(e).__name__)\n    ...",
    "try:\n    ...\n    fail({I})\nexcept Failure as e:\n    log.append(e.code)\n    ...\nexcept (ValueError, TypeError) as e:\n    log.append(e.args)",
    "try:\n    ...\nexcept LookupError:\n    ...\nelse:\n    ...\nfinally:\n    ...", "try:\n    ...\nfinally:\n    log.append('end')\n    ...",
    "try:\n    log.append(table['missing'])\nexcept KeyError as e:\n    ...\n    raise Failure({I}) from e",
    "try:\n    raise Failure({I})\nexcept Failure as e:\n    ...\n    if {C}:\n        raise\n    log.append(e.args)",
    "try:\n    box[99]\nexcept IndexError:\n    try:\n        fail({I})\n    except ValueError as inner:\n        log.append(type(inner.__context__).__name__)\n    ...",
    "for {v} in range(2):\n    try:\n        ...\n        continue\n    except KeyError:\n        ...\n    finally:\n        log.append({v})",
    "with torch.no_grad():\n    ...", "with Guarded(log):\n    ...", "with Guarded(log) as g, managed(log) as size:\n    log.append(size)\n    ...",
    "with contextlib.suppress(KeyError, Failure):\n    ...\n    fail({I})", "with torch.enable_grad():\n    ...",
    "with contextlib.ExitStack() as stack:\n    stack.enter_context(managed(log))\n    stack.callback(log.append, {I})\n    ...",
    "with Guarded(log):\n    ...\n    raise KeyError({S})", "with managed(log):\n    ...\n    if {C}:\n        return {T}",
    "def {w}(p, q=n):\n    nonlocal n\n    n += 1\n    return p * q + {N}\n{N} = {w}({T})", "def {w}(*p, **q):\n    return len(p) + len(q)\nlog.append({w}(*rest, **named))",
    "def {w}():\n    ...\n    return {T}\n{N} = {w}()", "def {w}(p):\n    yield p\n    yield from [{N}, p + 1]\n{N} = sum({w}({T}))",
    "def {w}():\n    nonlocal total\n    total += {I}\n    cell.append(total)\n{w}()\nlog.append(total)", "{w} = [lambda p, k=k: p * k + n for k in range(2)]\n{N} = {w}[1]({T})",
    "match {I}:\n    case 0:\n        ...\n    case 1 | 2:\n        ...\n    case _:\n        log.append('other')",
    "match (n, table):\n    case (1, {{'n': {v}}}):\n        log.append({v})\n    case [_, {{**others}}] if {C}:\n        log.append(len(others))\n    case _:\n        ...",
    "match Pair({N}, {I}):\n    case Pair(right=1):\n        ...\n    case Pair(left=torch.Tensor() as {v}):\n        {N} = {v} * 2",
]  # fmt: skip
DEPTH = 3
NAMES = ("a", "b", "x", "y")


def _alternatives(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


KINDS = {"T": _alternatives(TENSORS), "I": _alternatives(INTEGERS), "S": _alternatives(STRINGS), "L": _alternatives(LISTS),
         "C": _alternatives(CONDITIONS)}  # fmt: skip
LEAF = {"T": "{N}", "I": "n", "S": "key", "L": "[{N}]", "C": "n > 1"}
STATEMENTS = _alternatives(SIMPLE)
HOLE = re.compile(r"\{\{|\}\}|\{([A-Za-z])\}")


class Writer:
    """Fills templates with choices of ``chooser`` (a ``random.Random``, hypothesis' own or a plain one)."""

    def __init__(self, chooser: random.Random):
        self.choose = chooser
        self.counter = 0

    def fill(self, template: str, depth: int = 0) -> str:
        """The template with its holes filled; ``{v}`` and ``{w}`` are new names, each the same in the whole template."""
        fresh: dict[str, str] = {}

        def one(match: re.Match) -> str:
            kind = match[1]
            if kind is None:
                return match[0][0]
            if kind == "N":
                return self.choose.choice(NAMES)
            if kind in "vw":
                if kind not in fresh:
                    self.counter += 1
                    fresh[kind] = f"{kind}{self.counter}"
                return fresh[kind]
            text = self.fill(LEAF[kind] if depth >= DEPTH else self.choose.choice(KINDS[kind]), depth + 1)
            return f"({text})" if kind in "TILC" and " " in text else text

        return HOLE.sub(one, template)

    def block(self, indent: int, size: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.choose.randint(1, size)):
            simple = indent >= 5 or self.choose.random() < 0.6
            template = self.choose.choice(STATEMENTS if simple else BLOCKS)
            for line in self.fill(template).splitlines():
                inner = len(line) - len(line.lstrip())
                if line.strip() == "...":
                    lines += self.block(indent + inner // 4, 2)
                else:
                    lines.append("    " * indent + line)
        return lines

    def program(self) -> str:
        return HEADER + "\n".join(self.block(2, 7)) + FOOTER


@st.composite
def programs(draw: Any) -> str:
    """Source text of a program."""
    return Writer(draw(st.randoms(use_true_random=False))).program()
