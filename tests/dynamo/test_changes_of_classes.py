"""Nothing that was captured changes unnoticed: classes and their instances. Each case is a world, a function, and a change
made between two calls of it; the compiled function must give what plain Python gives before and after.
"""
import abc

import pytest

from changes import noticed

CASES = {}


def case(make):
    """``make() -> (function of a tensor, change)``; the change is called once, between two calls."""
    CASES[make.__name__] = make
    return make


# ---- classes -----------------------------------------------------------------------------------------------------
class Base:
    k = 2

    def f(self, x):
        return x * self.k


def an_object():
    A = type("A", (Base,), {})
    return A, A()


@case
def class_attribute_of_the_base_shadowed():
    A, a = an_object()
    return lambda x: a.f(x), lambda: setattr(A, "k", 3)


@case
def instance_attribute_shadows_the_class():
    A, a = an_object()
    return lambda x: a.f(x), lambda: setattr(a, "k", 3)


@case
def instance_attribute_removed():
    A, a = an_object()
    a.k = 5
    return lambda x: a.f(x), lambda: delattr(a, "k")


@case
def property_over_an_instance_attribute():
    A, a = an_object()
    a.k = 5
    return lambda x: a.f(x), lambda: setattr(A, "k", property(lambda self: 9))


@case
def method_replaced_on_the_class():
    A, a = an_object()
    return lambda x: a.f(x), lambda: setattr(A, "f", lambda self, x: x - 1)


@case
def method_replaced_on_the_instance():
    A, a = an_object()
    return lambda x: a.f(x), lambda: setattr(a, "f", lambda x: x - 1)


@case
def class_of_the_object_changed():
    A, a = an_object()
    B = type("B", (Base,), {"k": 10})
    return lambda x: a.f(x), lambda: setattr(a, "__class__", B)


@case
def bases_changed():
    P = type("P", (Base,), {})
    A = type("A", (P,), {})
    a = A()
    New = type("New", (Base,), {"k": 11})
    return lambda x: a.f(x), lambda: setattr(A, "__bases__", (New,))


@case
def dunder_getattr_added():
    class A:
        pass

    a = A()
    return lambda x: x + getattr(a, "k", 1), lambda: setattr(A, "__getattr__", lambda self, name: 7)


@case
def hasattr_becomes_true():
    A, a = an_object()
    return lambda x: x + 1 if hasattr(a, "extra") else x, lambda: setattr(a, "extra", 1)


@case
def hasattr_becomes_true_by_the_class():
    A, a = an_object()
    return lambda x: x + 1 if hasattr(a, "extra") else x, lambda: setattr(A, "extra", 1)


@case
def class_attribute_read_from_the_class():
    A, a = an_object()
    return lambda x: x * A.k, lambda: setattr(A, "k", 4)


@case
def slots():
    class S:
        __slots__ = ("k",)

    s = S()
    s.k = 2
    return lambda x: x * s.k, lambda: setattr(s, "k", 3)


@case
def property_getter_replaced():
    class A:
        p = property(lambda self: 2)

    a = A()
    return lambda x: x * a.p, lambda: setattr(A, "p", property(lambda self: 3))


@case
def classmethod_replaced():
    class A:
        @classmethod
        def f(cls, x):
            return x + 1

    return lambda x: A.f(x), lambda: setattr(A, "f", classmethod(lambda cls, x: x - 1))


@case
def staticmethod_replaced():
    class A:
        @staticmethod
        def f(x):
            return x + 1

    a = A()
    return lambda x: a.f(x), lambda: setattr(A, "f", staticmethod(lambda x: x - 1))


@case
def operator_method_added():
    class A:
        def __mul__(self, x):
            return x * 2

    a = A()
    return lambda x: a * x, lambda: setattr(A, "__mul__", lambda self, x: x * 3)


@case
def len_method_decides_truth():
    class A:
        pass

    a = A()
    return lambda x: x + 1 if a else x, lambda: setattr(A, "__len__", lambda self: 0)


@case
def super_method_replaced():
    class P:
        def f(self, x):
            return x + 1

    class A(P):
        def f(self, x):
            return super().f(x) * 2

    a = A()
    return lambda x: a.f(x), lambda: setattr(P, "f", lambda self, x: x - 1)


@case
def method_inserted_between_super_and_base():
    class P:
        def f(self, x):
            return x + 1

    class Q(P):
        pass

    class A(Q):
        def f(self, x):
            return super().f(x) * 2

    a = A()
    return lambda x: a.f(x), lambda: setattr(Q, "f", lambda self, x: x - 1)


@case
def isinstance_by_registration():
    class Kind(abc.ABC):
        pass

    class A:
        pass

    a = A()
    return lambda x: x + 1 if isinstance(a, Kind) else x, lambda: Kind.register(A) and None


@pytest.mark.parametrize("name", CASES)
def test_a_change_of_a_class_is_noticed(name):
    noticed(CASES[name])
