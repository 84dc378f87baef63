import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.bytecode import decode
from minipt2.dynamo.bytecode.liveness import liveness


def live_at(fn, marker):
    """Names live before the instruction that loads the global ``marker``."""
    instructions = decode(fn.__code__)
    live = liveness(instructions)
    return sorted(next(names for instr, names in zip(instructions, live) if instr.arg == marker))


def here():
    pass


def test_straight_line():
    """What is read later and not written before."""
    def fn(a, b, c):
        b = a
        here()
        a = c
        return a, b
    same(live_at(fn, "here"), ["b", "c"])


def test_both_branches():
    """Whatever either of them reads."""
    def fn(a, b, c, flag):
        here()
        if flag:
            return a
        return b
    same(live_at(fn, "here"), ["a", "b", "flag"])


def test_around_a_loop():
    """What the next round reads is live at the end of this one."""
    def fn(xs, total, last, unused):
        for x in xs:
            total = total + last
            here()
            last = x
        return total
    same(live_at(fn, "here"), ["total", "x"])

    def other(n, a, b, c):
        while n:
            here()
            a, b, c = b, c, n
            n = n - 1
        return a
    same(live_at(other, "here"), ["b", "c", "n"])


def test_what_a_handler_reads():
    """Any instruction of a try may raise."""
    def fn(a, b):
        try:
            here()
            a = 1
        except ValueError:
            return b
        return a
    assert "b" in live_at(fn, "here"), live_at(fn, "here")


def test_nothing_is_live_across_a_return():
    """Code behind a return is reached by jumps alone."""
    def fn(flag, a, b):
        if flag:
            b = 2
            here()
            return a
        return b
    same(live_at(fn, "here"), ["a"])


def test_cells():
    """A store into a cell needs the cell: a closure holds it."""
    def fn(a):
        def inner():
            return a
        here()
        a = 2
        return inner
    assert "a" in live_at(fn, "here")


def test_a_break_hands_on_what_is_needed():
    """The whole compiler on your analysis, in a loop with a break."""
    @minipt2.disable
    def stop(x):
        return x

    def fn(x, items):
        big, total, last = x * 100, x * 0, x
        for k in items:
            total = total + last * k
            last = stop(x * k)
        return total, last
    x = torch.randn(3)
    same(minipt2.compile(fn, backend="eager")(x, [1, 2, 3]), fn(x, [1, 2, 3]))
