"""Every kind of Python statement inside captured code, whole: exceptions, ``with``, generators, comprehensions, patterns, unpacking, scopes.

PYTEST_DONT_REWRITE: an assert statement here is one.
"""
from __future__ import annotations

import contextlib

import pytest
import torch
from torch.utils._pytree import tree_flatten

from minipt2.config import config
from minipt2.dynamo import optimize

X = torch.arange(6.0).reshape(2, 3)


def whole(fn, *args):
    """``fn`` is captured as one graph and gives what it gives plain, twice."""
    with config.patch(raise_internal_errors=True):
        compiled = optimize(fn, lambda gm, examples: gm.forward, fullgraph=True)
        for _ in range(2):
            expected, spec = tree_flatten(fn(X, *args))
            found, found_spec = tree_flatten(compiled(X, *args))
            assert spec == found_spec
            for e, f in zip(expected, found):
                torch.testing.assert_close(f, e) if isinstance(e, torch.Tensor) else None
                assert isinstance(e, torch.Tensor) or (type(e), e) == (type(f), f)


class Refused(Exception):
    def __init__(self, n, note=""):
        super().__init__(n)
        self.n, self.note = n, note


def refuse(n):
    raise Refused(n, note="small") if n < 2 else ValueError(n)


# ------------------------------------------------------------------ exceptions
def caught_by_base_class(x):
    try:
        refuse(1)
    except (KeyError, Exception) as error:
        return x + error.n, error.note, str(error), error.args


def else_and_finally(x):
    steps = []
    for n in range(3):
        try:
            steps.append("try")
            if n == 1:
                refuse(n)
            x = x + 1
        except Refused:
            steps.append("except")
            x = x * 2
        else:
            steps.append("else")
        finally:
            steps.append("finally")
    return x, steps


def finally_with_return(x):
    def inner(steps):
        try:
            return x + 1
        finally:
            steps.append("left")
    steps = []
    return inner(steps), steps


def return_in_finally_swallows(x):
    def inner():
        try:
            refuse(5)
        finally:
            return x - 1  # noqa: B012
    return inner()


def continue_and_break_in_finally(x):
    for n in range(4):
        try:
            if n == 1:
                continue
            if n == 3:
                break
            x = x + n
        finally:
            x = x * 2
    return x


def raised_from(x):
    try:
        try:
            refuse(3)
        except ValueError as error:
            raise Refused(7) from error
    except Refused as error:
        return x + error.n, type(error.__cause__).__name__, error.__cause__.args, error.__suppress_context__


def raised_from_none(x):
    try:
        try:
            refuse(3)
        except ValueError:
            raise Refused(7) from None
    except Refused as error:
        return x, error.__cause__, error.__suppress_context__


def context_of_an_exception(x):
    try:
        try:
            refuse(3)
        except ValueError:
            {}["missing"]
    except KeyError as error:
        return x + 1, type(error.__context__).__name__, error.__context__.args


def reraised(x):
    try:
        try:
            refuse(1)
        except Refused as error:
            error.note = "seen"
            raise
    except Refused as error:
        return x * 3, error.note


def nested_handlers(x):
    out = []
    try:
        try:
            raise KeyError("a")
        except KeyError as first:
            try:
                raise IndexError("b")
            except IndexError as second:
                out.append((first.args, second.args))
            raise
    except KeyError as again:
        out.append(again.args)
    return x, out


def from_builtins(x):
    n = 0
    for attempt in (lambda: {}["k"], lambda: [][1], lambda: int("no"), lambda: 1 // 0, lambda: None.attribute, lambda: undefined,  # noqa: F821
                    lambda: next(iter(())), lambda: "a" + 1):
        try:
            attempt()
        except (KeyError, IndexError):
            n += 1
        except (ValueError, ArithmeticError):
            n += 10
        except (AttributeError, NameError):
            n += 100
        except StopIteration:
            n += 1000
        except TypeError:
            n += 10000
    return x + n, n


def name_of_exception_is_deleted(x):
    error = 1
    try:
        refuse(1)
    except Refused as error:  # noqa: F841
        pass
    try:
        return x, error
    except UnboundLocalError:
        return x + 1, "gone"


def asserts(x, n=3):
    assert n == 3, "three"
    try:
        assert n == 4, f"not {n}"
    except AssertionError as error:
        return x, error.args


# ------------------------------------------------------------------ with
class Scope:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return len(self.log)

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else "exit")
        return self.swallow


def with_several(x):
    log = []
    with Scope(log) as a, Scope(log, swallow=True) as b, torch.no_grad():
        x = x + a * 10 + b
        refuse(1)
    return x, log


def with_exception_passing_through(x):
    log = []
    try:
        with Scope(log), Scope(log):
            refuse(9)
    except ValueError as error:
        return x, log, error.args


def with_return_inside(x):
    log = []

    def inner():
        with Scope(log):
            for n in range(3):
                with Scope(log):
                    if n == 1:
                        return x * n
    return inner(), log


@contextlib.contextmanager
def managed(log, catch=()):
    log.append("in")
    try:
        yield len(log)
    except catch as error:
        log.append(type(error).__name__)
    finally:
        log.append("out")


def with_generator_manager(x):
    log = []
    with managed(log) as n:
        x = x + n
    with managed(log, Refused):
        refuse(0)
    try:
        with managed(log, KeyError):
            refuse(5)
    except ValueError:
        log.append("passed")
    return x, log


@contextlib.contextmanager
def delegating(log):
    result = yield from inner_manager(log)
    log.append(result)


def inner_manager(log):
    try:
        yield "inner"
    except Refused:
        log.append("caught inside")
    return "returned"


def throw_reaches_the_inner_generator(x):
    log = []
    with delegating(log) as name:
        log.append(name)
        refuse(1)
    return x + len(log), log


# ------------------------------------------------------------------ generators
def countdown(n):
    while n:
        received = yield n
        n = n - 1 if received is None else received
    return "done"


def generator_consumed(x):
    return x + sum(countdown(3)), list(countdown(2)), max(n * n for n in countdown(3)), [*zip(countdown(2), countdown(2))]


def generator_by_hand(x):
    it = countdown(5)
    first, second = next(it), it.send(2)
    rest = [n for n in it]
    return x * first + second, rest, next(it, "empty")


def yield_from_value(x):
    def outer():
        result = yield from countdown(2)
        yield result
    return x, list(outer())


def generator_keeps_state_between_tensors(x):
    def running():
        total = torch.zeros(3)
        for row in x:
            total = total + row
            yield total
    return list(running())


def generator_with_finally(x):
    log = []

    def numbers():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")
    for n in numbers():
        x = x + n
    return x, log


def generator_raises_inside_caller(x):
    def numbers():
        yield 1
        raise Refused(1)
    out = []
    try:
        for n in numbers():
            out.append(n)
    except Refused:
        out.append("caught")
    return x, out


def generator_thrown_into(x):
    def numbers():
        try:
            yield 1
        except Refused as error:
            yield error.n + 10
    it = numbers()
    return x + next(it), it.throw(Refused(4)), list(it)


def generator_closed(x):
    log = []

    def numbers():
        try:
            yield 1
        finally:
            log.append("closed")
    it = numbers()
    x = x + next(it)
    it.close()
    return x, log, next(it, "over")


def exceptions_with_more(x):
    class_level = Described("a", 1)
    try:
        try:
            raise class_level
        except Described as error:
            error.add_note("noted")
            error.extra = [1]
            raise
    except Exception as error:
        return x, str(error), repr(error), error.label(), error.kind, error.__notes__, error.extra, str(KeyError("k")), repr(Refused(3))


class Described(Exception):
    kind = "described"

    def __init__(self, name, size):
        self.name, self.size = name, size

    def label(self):
        return self.name * self.size

    def __str__(self):
        return f"<{self.name}>"


# ------------------------------------------------------------------ comprehensions, lambdas, scopes
def comprehension_scopes(x):
    n = 10
    squares = [n * n for n in range(3)]
    pairs = {k: [k + j for j in range(k)] for k in range(3) if k != 1}
    return x + n, squares, pairs, {n % 2 for n in squares}, [f(1) for f in [lambda y, k=k: y + k for k in range(3)]]


def comprehension_closure(x):
    scale = 3
    rows = [[scale * i + j for j in range(2)] for i in range(2)]
    late = [lambda: k for k in range(3)]
    return x * scale, rows, [f() for f in late]


def comprehension_in_try(x):
    n = "kept"
    try:
        [1 // n for n in (1, 0)]
    except ZeroDivisionError:
        return x, n


def nonlocal_counter(x):
    total, calls = x, 0

    def add(n):
        nonlocal total, calls
        calls += 1
        total = total + n
        return add
    add(1)(2)(3)
    return total, calls


def deleted_names(x):
    y = x + 1
    z = [1, 2, 3]
    del y, z[1]
    try:
        return y
    except UnboundLocalError:
        return x, z


def walrus(x):
    out = []
    while (n := len(out)) < 3:
        out.append(n)
    return x + n, [y for k in out if (y := k * 2) > 0], y


# ------------------------------------------------------------------ unpacking and calls
def star_unpacking(x):
    first, *middle, last = range(5)
    (a, *b), *c = [[1, 2, 3], 4]
    head, *rest = x
    return first, middle, last, a, b, c, head, rest, [*middle, *b], {**{"a": 1}, "b": 2}, (*c, *"xy")


def unpacking_errors(x):
    out = []
    for bad in ([1], [1, 2, 3]):
        try:
            a, b = bad
        except ValueError as error:
            out.append(str(error))
    try:
        a, b, *c = [1]
    except ValueError as error:
        out.append(str(error))
    return x, out


def everything(a, b=2, /, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


def calls_of_every_shape(x):
    return x, everything(1, d=4), everything(1, 2, 3, 4, 5, d=6, f=7), everything(*[1, 2], **{"d": 3, "z": 4}), everything(0, c=1, d=2)


def wrong_calls(x):
    out = []
    for call in (lambda: everything(), lambda: everything(1), lambda: everything(a=1, d=2), lambda: everything(1, d=1, **{"d": 2})):
        try:
            call()
        except TypeError:
            out.append("TypeError")
    return x, out


def mutable_default(x):
    def collect(n, into=[]):  # noqa: B006
        into.append(n)
        return into
    collect(1)
    return x, collect(2)


# ------------------------------------------------------------------ match
class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


def classify(value):
    match value:
        case 0 | 1:
            return "bit"
        case int(n) if n > 100:
            return "large", n
        case [a, [b, *rest], {"k": c, **others}]:
            return a, b, rest, c, others
        case {"kind": "point", "at": Point(x, y=2)}:
            return "point", x
        case Point(x, y):
            return x, y
        case (first, *_):
            return "sequence", first
        case str() as text:
            return text.upper()
        case None | True:
            return "singleton"
        case _:
            return "other"


def match_statement(x):
    values = (1, 500, [1, [2, 3, 4], {"k": 5, "m": 6}], {"kind": "point", "at": Point(1, 2)}, {"kind": "point"}, Point(3, 4), (7, 8),
              "text", None, 2.5)
    return x, [classify(v) for v in values]


def loop_else(x):
    out = []
    for stop in (1, 9):
        for n in range(3):
            if n == stop:
                break
        else:
            out.append("else")
    while len(out) < 3:
        out.append("while")
    else:
        out.append("done")
    return x, out


def chained_comparisons(x, n=3):
    return x, 1 < n < 5, 1 < n > 5, n and x.ndim, n == 3 and not n > 4 or None


def slices(x):
    items = list(range(6))
    items[1:3] = [9]
    del items[-1:]
    return x[:, ::2], x[..., -1], items, items[::-1], "abc"[1:], x[1, 1:]


def augmented(x):
    y = x.clone()
    y += 1
    items, n = [1], 2
    items += [2]
    items *= 2
    n **= 3
    n //= 3
    table = {"n": n}
    table["n"] -= 5
    table |= {"m": 1}
    return y, items, n, table


def text(x):
    name, n = "n", 3.14159
    return x, f"{name}={n:.2f} {n!r:>10} {{}} {name:{6}}|", "%s-%d" % ("a", 3), f"{x.shape[0]:03d}"


STATEMENTS = [
    caught_by_base_class, else_and_finally, finally_with_return, return_in_finally_swallows, continue_and_break_in_finally, raised_from,
    raised_from_none, context_of_an_exception, reraised, nested_handlers, from_builtins, name_of_exception_is_deleted, asserts,
    with_several, with_exception_passing_through, with_return_inside, with_generator_manager, throw_reaches_the_inner_generator,
    generator_consumed, generator_by_hand, yield_from_value, generator_keeps_state_between_tensors, generator_with_finally,
    generator_raises_inside_caller, generator_thrown_into, generator_closed, exceptions_with_more, comprehension_scopes, comprehension_closure, comprehension_in_try,
    nonlocal_counter, deleted_names, walrus, star_unpacking, unpacking_errors, calls_of_every_shape, wrong_calls, mutable_default,
    match_statement, loop_else, chained_comparisons, slices, augmented, text]


@pytest.mark.parametrize("fn", STATEMENTS, ids=lambda fn: fn.__name__)
def test_statement(fn):
    whole(fn)


def test_generator_left_half_way_is_closed_as_in_eager():
    log = []

    def f(x):
        def numbers():
            try:
                yield 1
                yield 2
            finally:
                log.append("closed")
        for n in numbers():
            x = x + n
            break
        return x * 2
    compiled = optimize(f, lambda gm, examples: gm.forward)
    with config.patch(raise_internal_errors=False):  # which keeps tracebacks, and all that they hold, for tests
        for calls in (1, 2):
            found = compiled(X)
            if log != ["closed"] * calls:
                raise ValueError(log)
    torch.testing.assert_close(found, f(X))


def test_class_bodies_run_as_they_are(recwarn):
    def f(x):
        class Constants:
            k = 2
            doubled = [k] * 2
        return x * Constants.k, Constants.doubled
    with config.patch(raise_internal_errors=False):
        found, doubled = optimize(f, lambda gm, examples: gm.forward)(X)
    torch.testing.assert_close(found, X * 2)
    if doubled != [2, 2] or len(recwarn):
        raise ValueError(doubled, [str(w.message) for w in recwarn])


def test_exceptions_that_outlive_the_frame():
    def f(x, errors):
        try:
            try:
                refuse(3)
            except ValueError as error:
                raise Refused(7, note="kept") from error
        except Refused as error:
            errors.append(error)
        return x + 1
    errors = []
    with config.patch(raise_internal_errors=True):
        optimize(f, lambda gm, examples: gm.forward, fullgraph=True)(X, errors)
    (error,) = errors
    found = type(error), error.args, error.n, error.note, type(error.__cause__), error.__cause__.args, error.__suppress_context__
    assert found == (Refused, (7,), 7, "kept", ValueError, (3,), True), found
    assert error.__context__ is error.__cause__


def test_lengths_that_c_code_computes():
    import array

    def f(x, items):
        try:
            return x + len(items)
        except TypeError:
            return x - 1
    with config.patch(raise_internal_errors=True):
        found = optimize(f, lambda gm, examples: gm.forward)(X, array.array("i", [1, 2]))
    torch.testing.assert_close(found, X + 2)


def test_functions_of_no_module():
    names = {"torch": torch}
    exec("""class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

def inner(x):
    return Twice.apply(x)

def f(x):
    return inner(x) + 1
""", names)
    with config.patch(raise_internal_errors=True):
        found = optimize(names["f"], lambda gm, examples: gm.forward, fullgraph=True)(X)
    torch.testing.assert_close(found, X * 2 + 1)
