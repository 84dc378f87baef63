import torch

from minipt2.course import toy
from minipt2.course.checks import same
from minipt2.course.toy import Buf, load, number, pointwise


def buf(name, *shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return Buf(name, shape, tuple(strides), torch.float32)


def test_text_of_an_element():
    """The operands' elements in the places of the format."""
    v = pointwise("({0} + {1})", load(buf("a", 2, 3)), load(buf("b", 2, 3)))
    same(v.shape, (2, 3))
    same(v.text(["i0", "i1"]), "(a[i0*3 + i1] + b[i0*3 + i1])")


def test_shapes_align_from_the_right():
    """(4, 3) and (3,): the vector is indexed by the last dimension."""
    v = pointwise("({0} * {1})", load(buf("a", 4, 3)), load(buf("b", 3)))
    same(v.text(["i0", "i1"]), "(a[i0*3 + i1] * b[i1])")
    same(pointwise("{0}{1}", load(buf("a", 3)), load(buf("b", 4, 3))).shape, (4, 3))


def test_a_size_of_one_stands_for_any():
    """(4, 1) with (3,): both broadcast."""
    v = pointwise("({0} + {1})", load(buf("a", 4, 1)), load(buf("b", 3)))
    same(v.shape, (4, 3))
    same(v.text(["i0", "i1"]), "(a[i0] + b[i1])")


def test_reads_are_listed_once():
    """In the order in which they are met."""
    a, b = buf("a", 2), buf("b", 2)
    v = pointwise("({0} - {1})", pointwise("({0} * {1})", load(a), load(b)), load(a))
    same(v.reads, (a, b))


def test_closures_nest():
    """Values made of values, and numbers."""
    v = pointwise("exp({0})", pointwise("({0} * {1})", load(buf("a", 5)), number(2)))
    same(v.text(["k"]), "exp((a[k] * 2.0))")


def test_the_index_is_not_changed():
    """A closure may be asked again, and its caller goes on with the list."""
    v = pointwise("({0} + {1})", load(buf("a", 2, 1, 4)), load(buf("b", 3, 1)))
    index = ["i0", "i1", "i2"]
    first = v.text(index)
    same(index, ["i0", "i1", "i2"], where="the caller's index")
    same(v.text(index), first)


def test_a_compiled_function_broadcasts():
    """The rest of the toy on your closures."""
    def fn(x, y, z):
        return (x + y) * z
    args = torch.randn(4, 1), torch.randn(3), torch.randn(2, 1, 3)
    same(toy.compile(fn)(*args)[0], fn(*args))
