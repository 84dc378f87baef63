"""What can be guarded: every kind of guard as a row that says how it is tested, and the guards of a tensor.

A test is Python text: ``{v}`` stands for the guarded value, ``{d}`` for its ``__dict__``, and ``const`` puts an expected
object into the generated function (weakly where it belongs to the user). Upstream: ``torch/_dynamo/guards.py``.
"""
from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional

import torch

from ..exercise import exercise
from .source import AttrSource, Source

Const = Callable[[Any], str]


@dataclass(frozen=True)
class Guard:
    """Something that must stay true of ``source`` for the compiled code to be right. ``kind`` is a key of ``KINDS``."""

    source: Optional[Source]
    kind: str
    value: Any = None
    hint: str = ""
    """The user's line that relied on it."""


@dataclass(frozen=True)
class Kind:
    rank: int
    """Order among the guards of one source: what the others rely on, and what is cheap and changes often, first."""
    says: str
    """What is compared, for explanations."""
    test: Callable[[Any, Const], str]
    """(expected value, const) -> text that is true when the guard holds."""
    found: str = "{v}"
    """Text of what is there instead."""
    whole: bool = False
    """``says`` is all there is to say: there is no value to compare with."""


def _row(rank: int, says: str, test: str | Callable[[Any, Const], str], found: str = "{v}") -> Kind:
    if isinstance(test, str):
        template = test
        return Kind(rank, says, lambda value, const: template.replace("{c}", const(value)), found)
    return Kind(rank, says, test, found)


def _whole(rank: int, says: str, test: str, found: str = "{v}") -> Kind:
    return Kind(rank, says, lambda value, const: test, found, whole=True)


LITERALS = (int, str, bytes, bool, type(None))


def is_literal(value: Any) -> bool:
    """Whether its ``repr`` is Python text for it that nothing can change."""
    return type(value) in LITERALS or type(value) is tuple and all(map(is_literal, value))


def same_constant(a: Any, b: Any) -> bool:
    """Equal in type and value all the way down: ``1``, ``True`` and ``1.0`` differ, nan is nan, ``0.0`` isn't ``-0.0``."""
    if type(a) is not type(b):
        return False
    if a is b:
        return True
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_constant, a, b))
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    if isinstance(a, slice):
        return same_constant((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return bool(a == b)


def rest_length(iterator: Any) -> int:
    """How many items a copyable iterator will still give."""
    return sum(1 for _ in copy.copy(iterator))


def _constant(value: Any, const: Const) -> str:
    if value is None or isinstance(value, (bool, torch.dtype, torch.layout, torch.memory_format)):
        return f"{{v}} is {const(value)}"
    if type(value) in LITERALS or type(value) is float and value == value and value != 0:
        kept = const(Fixed(value))  # an attribute gives the very same object again and again
        return f"({{v}} is {kept} or type({{v}}) is {type(value).__name__} and {{v}} == {kept})"
    if type(value) is tuple and is_literal(value):
        kept = const(Fixed(value))
        return f"({{v}} is {kept} or same_constant({{v}}, {kept}))"
    return f"same_constant({{v}}, {const(value)})"


def _keys(value: Any, const: Const) -> str:
    keys = list(value)
    if all(type(k) is str for k in keys):
        return f"[*{{v}}] == {const(Fixed(keys))}"
    if all(type(k) in LITERALS for k in keys):
        return f"same_constant([*{{v}}], {const(Fixed(keys))})"
    return f"[*map(id, {{v}})] == {const(Fixed([const.identity(k) for k in keys]))}"  # type: ignore[attr-defined]


def _members(value: Any, const: Const) -> str:
    if all(type(k) is str for k in value):
        return f"{{v}} == {const(Fixed(frozenset(value)))}"
    if all(type(k) in LITERALS for k in value):
        kinds = sorted(type(k).__name__ for k in value)
        return f"({{v}} == {const(Fixed(frozenset(value)))} and sorted(type(k).__name__ for k in {{v}}) == {kinds!r})"
    return f"{{{{*map(id, {{v}})}}}} == {const(Fixed({const.identity(k) for k in value}))}"  # type: ignore[attr-defined]


def _sizes(value: tuple, const: Const) -> str:
    """``None`` in the expected size stands for any."""
    known = [f"{{v}}[{k}] == {n}" for k, n in enumerate(value) if n is not None]
    return "(" + " and ".join([f"len({{v}}) == {len(value)}", *known]) + ")"


def _stride(value: tuple, const: Const) -> str:
    """A stride is a number, a product of sizes, or None for any."""
    if all(type(step) is int for step in value):
        return f"{{v}}.stride() == {const(value)}"
    texts = [step if step is None or type(step) is int else step.text("{v}.shape") for step in value]
    if None not in texts:
        return f"{{v}}.stride() == ({', '.join(map(str, texts))},)"
    return "(" + " and ".join([f"{{v}}.stride({k}) == {text}" for k, text in enumerate(texts) if text is not None] or ["True"]) + ")"


def _device(value: torch.device, const: Const) -> str:
    return "{v}.is_cpu" if value.type == "cpu" else f"{{v}}.device == {const(value)}"


def _has_attribute(value: tuple[str, bool], const: Const) -> str:
    name, present = value
    return f"{'' if present else 'not '}hasattr({{v}}, {name!r})"


def _state(value: Any, const: Const) -> str:
    return " and ".join(f"{text} {'==' if type(expected) is int else 'is'} {const(expected)}" for text, expected in value)


@dataclass(frozen=True, eq=False)
class Fixed:
    """Made by a guard, not the user's: the generated function may hold it."""

    value: Any


KINDS: dict[str, Kind] = {
    # any value
    "NONE": _whole(0, "value None", "{v} is None"),
    "NOT_NONE": _whole(0, "value other than None", "{v} is not None"),
    "TYPE": _row(0, "type", "type({v}) is {c}", "type({v})"),
    "ID": _row(0, "object", "{v} is {c}"),
    "ALIAS": _row(1, "object", "{v} is {c}"),
    "NOT_ALIAS": _row(1, "object other than", "{v} is not {c}"),
    "CONST": _row(1, "value", _constant),
    "BOOL": _row(1, "value", "{v} is {c}"),
    "TRUTH": _row(1, "truth", lambda value, const: "bool({v})" if value else "not {v}", "bool({v})"),
    "HASATTR": _row(5, "attribute (name, present)", _has_attribute, "[*vars({v})]"),
    "DICT_LACKS": _row(5, "absent instance attribute", lambda name, const: f"{name!r} not in {{d}}", "[*{d}]"),
    "CLASS_LACKS": _row(5, "absent class attribute", lambda name, const: f"not hasattr({{v}}, {name!r})", "dir({v})"),
    "FUNC_CODE": _row(1, "code of the function", "{v}.__code__ is {c}", "{v}.__code__"),
    "CHECK": _row(6, "condition", lambda fn, const: f"{const(Fixed(fn))}({{v}})"),
    "WEAKREF_ALIVE": _row(0, "object", lambda value, const: f"{const(value)} is not None"),
    # containers
    "LEN": _row(2, "length", "len({v}) == {c}", "len({v})"),
    "ITER_LEN": _row(2, "items left", "rest_length({v}) == {c}", "rest_length({v})"),
    "EMPTY": _whole(2, "nothing in it", "not {v}"),
    "DICT_KEYS": _row(2, "keys in order", _keys, "[*{v}]"),
    "NOT_CONTAINS": _row(2, "absent item", "{c} not in {v}"),
    "CONTAINS": _row(2, "present item", "{c} in {v}"),
    "SET": _row(2, "members", _members),
    # tensors
    "DTYPE": _row(2, "dtype", "{v}.dtype is {c}", "{v}.dtype"),
    "SIZE": _row(1, "size", "{v}.shape == {c}", "tuple({v}.shape)"),
    "SIZES": _row(1, "size", _sizes, "tuple({v})"),
    "STRIDE": _row(3, "stride", _stride, "{v}.stride()"),
    "CONTIGUOUS": _whole(3, "stride contiguous", "{v}.is_contiguous()", "{v}.stride()"),
    "DEVICE": _row(4, "device", _device, "{v}.device"),
    "REQUIRES_GRAD": _row(
        2, "requires_grad", lambda value, const: "{v}.requires_grad" if value else "not {v}.requires_grad", "{v}.requires_grad"
    ),
    "LAYOUT": _row(1, "layout", "{v}.layout is {c}", "{v}.layout"),
    "NOT_LAZY": _row(
        4, "pending conjugation or negation",
        lambda is_complex, const: "not {v}.is_neg() and not {v}.is_conj()" if is_complex else "not {v}.is_neg()",
        "({v}.is_conj(), {v}.is_neg())",
    ),
    "TENSOR_VERSION": _row(3, "version", "{v}._version == {c}", "{v}._version"),
    # modules
    "MODULE_TRAINING": _row(1, "training", lambda value, const: f"{{d}}['training'] is {bool(value)}", "{d}['training']"),
    "PLAIN_MODULE": _whole(
        1, "no hooks and no forward of its own",
        "not ({d}['_forward_hooks'] or {d}['_forward_pre_hooks'] or {d}['_backward_hooks']"
        " or {d}['_backward_pre_hooks'] or 'forward' in {d})",
    ),
    # no source
    "GLOBAL_STATE": Kind(0, "torch's modes as they were", _state, whole=True),
    "SHAPE": Kind(7, "sizes", lambda guard, const: str(guard)),
    "DISTINCT": Kind(7, "different objects", lambda guard, const: str(guard)),
}  # fmt: skip
KINDS["TENSOR_ALIAS"] = KINDS["ALIAS"]
JOINT = frozenset(("SHAPE", "DISTINCT"))
"""Kinds whose value tells its ``places()`` and the ``test(text of a place)``: conditions on several sources at once."""


@dataclass(frozen=True)
class Distinct:
    """Objects that must stay different ones: what a set of them holds, or what is written into each, depends on it."""

    sources: tuple[Source, ...]

    def places(self) -> tuple[Source, ...]:
        return self.sources

    def test(self, text: Callable[[Source], str]) -> str:
        return f"len({{*map(id, ({', '.join(map(text, self.sources))},))}}) == {len(self.sources)}"

    def __str__(self) -> str:
        first = ", ".join(source.name() for source in self.sources[:4])
        return f"{len(self.sources)} different objects: {first}" + ", …" * (len(self.sources) > 4)


@exercise("2.1")
def tensor_guards(t: torch.Tensor, src: Source) -> list[Guard]:
    """What compiled code relies on of an input tensor: type, dtype, size, stride, device, requires_grad.

    Each property is one guard, so that one that changes fails one. None of them keeps ``t`` alive.
    """
    # >>> 2.1
    guards = [Guard(src, "TYPE", type(t)), Guard(src, "SIZE", tuple(t.shape)), Guard(src, "DTYPE", t.dtype)]
    guards.append(Guard(src, "REQUIRES_GRAD", t.requires_grad))
    if t.layout is not torch.strided:
        guards.append(Guard(src, "LAYOUT", t.layout))
    elif 1 not in t.shape and 0 not in t.shape and t.is_contiguous():
        guards.append(Guard(src, "CONTIGUOUS"))  # says the same as the strides, in half the time
    else:
        guards.append(Guard(src, "STRIDE", t.stride()))
    guards.append(Guard(src, "DEVICE", t.device))
    if (t.is_floating_point() or t.is_complex()) and not isinstance(t, torch.nn.Parameter):
        guards.append(Guard(src, "NOT_LAZY", t.is_complex()))
    return guards
    # <<< 2.1


class Product(NamedTuple):
    """``factor`` times the sizes of ``dims`` (in ascending order): a stride that follows from symbolic sizes."""

    factor: int
    dims: tuple[int, ...]

    def times(self, dim: int, size: Optional[int]) -> "Product":
        """Times the size of ``dim``, which is a number or (None) a symbol."""
        return Product(self.factor, tuple(sorted((*self.dims, dim)))) if size is None else Product(self.factor * size, self.dims)

    def of(self, shape: Any) -> Any:
        value = self.factor
        for dim in self.dims:
            value = value * shape[dim]
        return value

    def text(self, shape: str) -> str:
        return " * ".join([str(self.factor)] * (self.factor != 1 or not self.dims) + [f"{shape}[{dim}]" for dim in self.dims])


def symbolic_guards(t: torch.Tensor, src: Source, shape: list, strides: list) -> list[Guard]:
    """The same for an input some of whose sizes (``shape``) are symbols; a stride is an int, a ``Product`` or a symbol.

    Sizes that are numbers are guarded here; what symbols must be is their environment's to say.
    """
    guards = [guard for guard in tensor_guards(t, src) if guard.kind not in ("SIZE", "STRIDE", "CONTIGUOUS")]
    guards.append(Guard(AttrSource(src, "shape"), "SIZES", tuple(n if type(n) is int else None for n in shape)))
    if not {0, 1} & {*t.shape} and follow_sizes(strides, shape):
        return [*guards, Guard(src, "CONTIGUOUS")]
    return [*guards, Guard(src, "STRIDE", tuple(s if type(s) in (int, Product) else None for s in strides))]


def follow_sizes(strides: list, shape: list) -> bool:
    """Whether the strides are those of a contiguous tensor of any size, and not by chance of these sizes only."""
    expected = Product(1, ())
    for k in reversed(range(len(shape))):
        if strides[k] != (expected if expected.dims else expected.factor):
            return False
        expected = expected.times(k, shape[k] if type(shape[k]) is int else None)
    return True


DEVICES = ("cpu", "cuda")
STATE_FUNCTIONS: dict[str, Any] = {
    "is_grad_enabled": torch.is_grad_enabled,
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
    "get_default_dtype": torch.get_default_dtype,
    "is_autocast_enabled": torch.is_autocast_enabled,
    "get_autocast_dtype": torch.get_autocast_dtype,
    "is_autocast_cache_enabled": torch.is_autocast_cache_enabled,
    "are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled,
    "torch_function_modes": torch._C._len_torch_function_stack,
    "torch_dispatch_modes": torch._C._len_torch_dispatch_stack,
    "functorch_is_active": torch._C._are_functorch_transforms_active,
    "forward_ad": torch.autograd.forward_ad,
}
"""Modes that decide what an operation does; all give singletons (bools, dtypes) or numbers. One is an attribute of a module."""


def under_transform() -> bool:
    """Whether ``vmap``, ``grad`` or forward-mode AD is going on: its tensors hide more than graphs know of."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def global_state_guard() -> Guard:
    """The modes of torch as they are now, as one guard without a source."""
    autocast = [device for device in DEVICES if torch.is_autocast_enabled(device)]
    texts = [
        "is_grad_enabled()", "is_inference_mode_enabled()", "get_default_dtype()",
        *(f"is_autocast_enabled({device!r})" for device in DEVICES), *(f"get_autocast_dtype({device!r})" for device in autocast),
        *(["is_autocast_cache_enabled()"] if autocast else []), "are_deterministic_algorithms_enabled()",
        "torch_function_modes()", "torch_dispatch_modes()", "functorch_is_active()", "forward_ad._current_level",
    ]  # fmt: skip
    return Guard(None, "GLOBAL_STATE", tuple((text, eval(text, dict(STATE_FUNCTIONS))) for text in texts))


def describe(value: Any) -> str:
    """One short line, never the numbers of a tensor."""
    if isinstance(value, Source):
        return value.name()
    if isinstance(value, Fixed):
        value = value.value
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of size {tuple(value.shape)}"
    if isinstance(value, torch.nn.Module):
        return f"a {type(value).__name__} module"
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return f"{getattr(value, '__module__', None) or ''}.{name}".lstrip(".")
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(describe, itertools.islice(value, 8))) + (", …)" if len(value) > 8 else ",)" if len(value) == 1 else ")")
    try:
        text = repr(value) if type(value).__repr__ is not object.__repr__ else f"a {type(value).__name__}"
    except Exception:  # a class whose text needs more than is there, an int of too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "…"
