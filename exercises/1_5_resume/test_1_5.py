import contextlib
import io

import torch

import minipt2
from minipt2.course.checks import same


@minipt2.disable
def stop(x):
    """A call that no graph holds."""
    return x


def agree(fn, *args):
    """The same result, and a graph on both sides of the break."""
    compiled = minipt2.compile(fn, backend="eager")
    for _ in range(2):
        same(compiled(*args), fn(*args))
    assert minipt2.counters()["breaks"] >= 1, "nothing broke: the test tests nothing"


def test_print_once_and_in_order():
    """What is done outside of graphs is done once, where it stands."""
    def fn(x):
        y = x * 2
        print("one", y.shape[0])
        z = y + 1
        print("two", z.shape[0])
        return z - x
    x, said = torch.randn(3), io.StringIO()
    compiled = minipt2.compile(fn, backend="eager")
    with contextlib.redirect_stdout(said):
        found = compiled(x)
    same(found, x * 2 + 1 - x)
    same(said.getvalue(), "one 3\ntwo 3\n")


def test_the_stack_survives():
    """Values that wait on the stack during the break keep their places."""
    def fn(x):
        return (x + 1) - (x * 2) / stop(x * 3) - torch.sub(x * 5, stop(x * 7), alpha=2)
    agree(fn, torch.randn(3))


def test_live_locals_go_on():
    """And so do arguments, defaults and unpacked values."""
    def fn(x, k=3, *rest, scale=2):
        a, (b, c) = x + k, (x * scale, rest)
        d = stop(a)
        return [a * b, d + k, c[0] * x, scale]
    agree(fn, torch.randn(2), 4, torch.ones(2))


def test_inside_loops_and_with_blocks():
    """The iterator waits on the stack; the context is left once."""
    def fn(x, items):
        with torch.no_grad():
            for k in items:
                x = x * k
                x = stop(x) + 1
        return x, torch.is_grad_enabled()
    agree(fn, torch.randn(2), [1, 2, 3])


def test_inside_try():
    """Handlers go on covering what they covered."""
    def fn(x, table):
        try:
            y = stop(x) * 2
            return y * table["missing"]
        except KeyError:
            return x - 100
    agree(fn, torch.randn(2), {})


def test_cells_survive():
    """A function made before the break sees what is assigned behind it."""
    def fn(x):
        k = 2

        def scaled(y):
            return y * k
        before = scaled(x)
        stop(x)
        k = 5
        return before, scaled(x)
    agree(fn, torch.randn(2))


def test_methods_and_super():
    """super() without arguments looks at the first argument of the frame."""
    class Base(torch.nn.Module):
        def forward(self, x):
            return x * 3

    class Derived(Base):
        def forward(self, x):
            y = stop(x + 1)
            return super().forward(y) + x
    agree(Derived(), torch.randn(2))
