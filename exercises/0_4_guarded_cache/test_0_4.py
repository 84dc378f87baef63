import torch

from minipt2.course import toy
from minipt2.course.checks import same


def counting(fn):
    """``toy.compile(fn)`` and a list with an entry for each time that ``fn`` was recorded."""
    made = []

    def counted(*args):
        made.append(1)
        return fn(*args)
    return toy.compile(counted), made


def test_the_first_call():
    """What comes out is what the function gives."""
    x = torch.randn(3, 4)
    same(toy.compile(lambda x: torch.tanh(x) * 2)(x)[0], torch.tanh(x) * 2)


def test_compile_counts():
    """Once for each kind of arguments, however often they come."""
    fn, made = counting(lambda x: torch.exp(x) + 1)
    a, b = torch.randn(4, 4), torch.randn(4, 4).t()
    for x, wanted in ((a, 1), (torch.randn(4, 4), 1), (b, 2), (a, 2), (torch.randn(2, 4), 3), (a.double(), 4), (b, 4)):
        same(fn(x)[0], torch.exp(x) + 1)
        same(len(made), wanted, where=f"compilations after a call with {x.dtype} {tuple(x.shape)} {x.stride()}")


def test_strides_matter():
    """A square matrix and its transpose."""
    fn = toy.compile(lambda x: x * 2 - 1)
    x = torch.randn(5, 5)
    for t in (x, x.t(), x):
        same(fn(t)[0], t * 2 - 1)


def test_dtypes_matter():
    """float after double: the bytes mean something else."""
    fn = toy.compile(lambda x: x * 2 - 1)
    for dtype in (torch.float64, torch.float32, torch.float64):
        x = torch.randn(5).to(dtype)
        same(fn(x)[0], x * 2 - 1)


def test_every_argument_matters():
    """Not only the first one."""
    fn = toy.compile(lambda x, y: x + y)
    x = torch.randn(4, 4)
    for y in (torch.randn(4, 4), torch.randn(4), torch.randn(4, 1), torch.randn(4, 4).t()):
        same(fn(x, y)[0], x + y)


def test_two_functions_do_not_share():
    """Each has a cache of its own."""
    double, square = toy.compile(lambda x: x + x), toy.compile(lambda x: x * x)
    x = torch.randn(3)
    same(double(x)[0], x + x)
    same(square(x)[0], x * x)


def test_new_numbers():
    """What is kept is code, not results."""
    fn = toy.compile(lambda x: torch.sin(x).sum())
    for _ in range(3):
        x = torch.randn(6)
        same(fn(x)[0], torch.sin(x).sum())
