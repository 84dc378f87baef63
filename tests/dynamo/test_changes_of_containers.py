"""Nothing that was captured changes unnoticed: containers, their contents, order and identity."""
import collections
import enum
import types
import weakref

import numpy as np
import pytest
import torch

from changes import X, in_globals, noticed


class Plain:
    k = 2


ROWS = {
    "list_item": ("x * c[0]", lambda: [2, 3], lambda c: c.__setitem__(0, 5)),
    "list_length": ("x * len(c)", lambda: [2, 3], lambda c: c.append(1)),
    "list_iterated": ("sum((x * k for k in c), x)", lambda: [2, 3], lambda c: c.pop()),
    "list_truth": ("x + 1 if c else x", lambda: [], lambda c: c.append(1)),
    "list_of_tensors": ("sum(c, x)", lambda: [X, X], lambda c: c.append(X)),
    "list_contains": ("x + 1 if 5 in c else x", lambda: [2, 3], lambda c: c.append(5)),
    "nested_list": ("x * c[0][1]", lambda: [[1, 2]], lambda c: c[0].__setitem__(1, 7)),
    "tuple_in_list": ("x * c[0][1]", lambda: [(1, 2)], lambda c: c.__setitem__(0, (1, 3))),
    "dict_value": ("x * c['a']", lambda: {"a": 2}, lambda c: c.update(a=3)),
    "dict_get_absent": ("x * c.get('b', 1)", lambda: {"a": 2}, lambda c: c.update(b=3)),
    "dict_order": ("x * list(c.values())[0] + [*c].index('a')", lambda: {"a": 2, "b": 3}, lambda c: c.update(a=c.pop("a"))),
    "dict_length": ("x * len(c)", lambda: {"a": 2}, lambda c: c.update(b=3)),
    "dict_contains": ("x + 1 if 'b' in c else x", lambda: {"a": 2}, lambda c: c.update(b=3)),
    "dict_items": ("sum((x * v for _, v in c.items()), x)", lambda: {"a": 2}, lambda c: c.update(b=3)),
    "dict_key_int_for_bool": ("x + sum(type(k) is bool for k in c)", lambda: {1: 2}, lambda c: (c.clear(), c.update({True: 2}))),
    "dict_keys_of_tuples": ("x * len([k for k in c if k[0] == 1])", lambda: {(1, 2): 0}, lambda c: c.update({(1, 3): 0})),
    "ordered_dict_order": ("x * next(iter(c.values()))", lambda: collections.OrderedDict(a=2, b=3), lambda c: c.move_to_end("a")),
    "defaultdict_factory": ("x * c['new'] if 'new' in c else x * c.default_factory()", lambda: collections.defaultdict(lambda: 2),
                            lambda c: setattr(c, "default_factory", lambda: 3)),
    "set_members": ("x + 1 if 3 in c else x", lambda: {1, 2}, lambda c: c.add(3)),
    "set_length": ("x * len(c)", lambda: {1, 2}, lambda c: c.add(3)),
    "set_bool_for_int": ("x + sum(type(k) is bool for k in c)", lambda: {1}, lambda c: (c.clear(), c.add(True))),
    "deque_length": ("x * len(c)", lambda: collections.deque([1, 2]), lambda c: c.append(3)),
    "deque_item": ("x * c[0]", lambda: collections.deque([1, 2]), lambda c: c.appendleft(3)),
    "deque_maxlen_reached": ("x * c[-1]", lambda: collections.deque([1, 2], 2), lambda c: c.append(9)),
    "range": ("x * len(c[0])", lambda: [range(3)], lambda c: c.__setitem__(0, range(4))),
    "slice": ("x[:, c[0]]", lambda: [slice(0, 2)], lambda c: c.__setitem__(0, slice(1, 3))),
    "string": ("x * len(c[0])", lambda: ["ab"], lambda c: c.__setitem__(0, "abc")),
    "float_nan": ("x * c[0]", lambda: [float("nan")], lambda c: c.__setitem__(0, 1.0)),
    "dtype": ("x.to(c[0])", lambda: [torch.float64], lambda c: c.__setitem__(0, torch.float16)),
    "device": ("torch.zeros(2, device=c[0])", lambda: [torch.device("cpu")], lambda c: c.__setitem__(0, torch.device("meta"))),
    "size": ("torch.zeros(c[0])", lambda: [torch.Size([2])], lambda c: c.__setitem__(0, torch.Size([3]))),
    "memory_format": ("torch.zeros(1, 2, 3, 3).contiguous(memory_format=c[0])", lambda: [torch.contiguous_format],
                      lambda c: c.__setitem__(0, torch.channels_last)),
    "namedtuple": ("x * c[0].b", lambda: [collections.namedtuple("P", "a b")(1, 2)], lambda c: c.__setitem__(0, c[0]._replace(b=5))),
    "str_enum": ("x * len(c[0])", lambda: ["a"], lambda c: c.__setitem__(0, enum.Enum("E", {"A": "bc"}, type=str).A)),
    "int_subclass": ("x * c[0]", lambda: [2], lambda c: c.__setitem__(0, type("I", (int,), {"__rmul__": lambda s, x: x - 1})(2))),
    "objects_in_a_list": ("x * c[0].k", lambda: [Plain()], lambda c: setattr(c[0], "k", 3)),
    "same_object_twice": ("x + 1 if c[0] is c[1] else x", lambda: [o := Plain(), o], lambda c: c.__setitem__(1, Plain())),
    "two_objects_become_one": ("x + 1 if c[0] is c[1] else x", lambda: [Plain(), Plain()], lambda c: c.__setitem__(1, c[0])),
    "two_tensors_become_one": ("c[0].add_(1) + c[1]", lambda: [torch.ones(2, 3), torch.ones(2, 3)], lambda c: c.__setitem__(1, c[0])),
    "one_tensor_becomes_two": ("c[0].add_(1) + c[1]", lambda: [t := torch.ones(2, 3), t], lambda c: c.__setitem__(1, torch.ones(2, 3))),
    "two_lists_become_one": ("(c[0].append(1), x * len(c[1]))[1]", lambda: [[], []], lambda c: c.__setitem__(1, c[0])),
    "tensor_becomes_overlapping_view": ("c[0].add_(1) + c[1]", lambda: [torch.ones(2, 3), torch.ones(2, 3)],
                                        lambda c: c.__setitem__(1, c[0].view(2, 3))),
    "list_subclass": ("x * len(c[0])", lambda: [type("L", (list,), {})([1, 2])], lambda c: c[0].append(3)),
    "dict_subclass_attribute": ("x * c[0].k", lambda: [type("D", (dict,), {"k": 2})()], lambda c: setattr(c[0], "k", 3)),
    "numpy_scalar": ("x * float(c[0])", lambda: [np.float32(2)], lambda c: c.__setitem__(0, np.float32(3))),
    "iterator_advanced": ("x * sum(c[0].__copy__() if hasattr(c[0], '__copy__') else [1])", lambda: [[1, 2]], lambda c: c.__setitem__(0, [3])),
    "simple_namespace": ("x * c[0].k", lambda: [types.SimpleNamespace(k=2)], lambda c: setattr(c[0], "k", 3)),
    "weak_reference": ("x * (1 if c[0]() is None else 2)", lambda: (lambda o: [weakref.ref(o), o])(Plain()), lambda c: c.__delitem__(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_change_of_a_container_is_noticed(name):
    text, make, change = ROWS[name]

    def world():
        contents = make()
        return in_globals(text, lambda g: change(contents), c=contents)

    noticed(world)


def test_the_order_of_an_instance_dict_is_noticed():
    def world():
        obj = types.SimpleNamespace(a=2, b=3)
        return lambda x: x * list(vars(obj).values())[0], lambda: setattr(obj, "a", vars(obj).pop("a"))

    noticed(world)
