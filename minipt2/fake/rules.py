"""Which way an operator's metadata is found, and the rules of those whose meta kernel does not know enough.

``handler_of(func)`` is asked once per overload: a rule here, the meta kernel, or upstream's fake tensors.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
from types import CodeType
from typing import Any, Callable, Sequence

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from ..assume import ASSUME
from ..prims.meta import channels_last_strides, contiguous_strides, is_channels_last
from ..shapes.known import SYMBOLIC, equal_all, likely
from .borrowed import run_borrowed
from .data import RULES as DATA, mask_indices
from .dtypes import dtype_refusal_of
from .families import Irregular, family_of, adjacent_index, new
from .images import batch_norm, image_strides
from .overlap import refusal_of
from .rows import ROW_MAJOR, row_major
from .tensor import DataDependent, DynamicShape, FakeMode, FakeTensor
from .views import VIEWS, has_symbols

aten = torch.ops.aten
Rule = Callable[[FakeMode, OpOverload, tuple, dict], Any]
_rules: dict[OpOverload, Rule] = {}
_ASK_FOR_DEVICES = {"device_hint", "fake_device"}  # names by which upstream's Python meta kernels tell devices apart


def rule(*overloads: OpOverload) -> Callable[[Rule], Rule]:
    def put(fn: Rule) -> Rule:
        _rules.update(dict.fromkeys(overloads, fn))
        return fn
    return put


@rule(aten._fused_sdp_choice.default)
def _attention_choice(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Which kernel eager's attention would run: the tensors' own device decides, which the fakes carry and their meta tensors do not.

    With sizes that vary the choice is that of the sizes at hand: C++ asks for numbers, and every kernel computes the same for all sizes.
    """
    args, kwargs = pytree.tree_map_only(FakeTensor, functools.partial(_at_hand, mode), (args, kwargs))
    before = torch._C._meta_in_tls_dispatch_include()
    with torch._C._DisableTorchDispatch(), torch._C._PreserveDispatchKeyGuard():
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            return func(*args, **kwargs)
        finally:
            torch._C._set_meta_in_tls_dispatch_include(before)


def _at_hand(mode: FakeMode, tensor: FakeTensor) -> FakeTensor:
    """``tensor`` with its likely sizes for those that vary."""
    if not tensor.elem._has_symbolic_sizes_strides:
        return tensor
    with torch._C._DisableTorchDispatch():
        elem = torch.empty_strided(likely(tensor.elem.shape), likely(tensor.elem.stride()), dtype=tensor.dtype, device="meta")
        return FakeTensor(mode, elem, tensor.fake_device).requires_grad_(tensor.requires_grad)


@rule(ASSUME)
def _assume(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> None:
    """Nothing to know of an operator that is called for what it may raise."""


def handler_of(func: OpOverload) -> Rule:
    """How ``func`` is run on fake tensors."""
    rule = _rule_of(func)
    for refusal in (refusal_of(func), dtype_refusal_of(func)) if isinstance(func, OpOverload) else ():
        rule = _after(refusal, rule) if refusal is not None else rule
    return rule


def _rule_of(func: OpOverload) -> Rule:
    if func in ROW_MAJOR:
        return row_major(_general_rule_of(func), ROW_MAJOR[func])
    return _rules[func] if func in _rules else _general_rule_of(func)


def _general_rule_of(func: OpOverload) -> Rule:
    if not isinstance(func, OpOverload) or func.namespace not in ("aten", "prim"):
        return run_borrowed
    if func in DATA:
        return DATA[func]
    if torch.Tag.data_dependent_output in func.tags:
        return _data_dependent
    if torch.Tag.dynamic_output_shape in func.tags:
        return _dynamic_shape
    name = func.name()
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        return _decompose
    if torch.Tag.inplace_view in func.tags:
        return _change_in_place
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "Meta") or _asks_for_device(func):
        return _elsewhere
    general = _no_operands if not _has_tensors(func) else _meta
    special = family_of(func)
    return _first(special, general) if special is not None else general


def _after(refusal: Callable[[tuple, dict], None], rule: Rule) -> Rule:
    def handler(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
        refusal(args, kwargs)
        return rule(mode, func, args, kwargs)
    return handler


def _first(special: Rule, general: Rule) -> Rule:
    def handler(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
        try:
            return special(mode, func, args, kwargs)
        except Irregular:
            return general(mode, func, args, kwargs)
    return handler


def _asks_for_device(func: OpOverload) -> bool:
    """Whether ``func``'s meta kernel is written in Python and answers by device: a meta tensor does not know its own."""
    kernel = func.py_kernels.get(torch._C.DispatchKey.Meta)
    code = getattr(inspect.unwrap(kernel), "__code__", None) if kernel else None
    return code is not None and not _ASK_FOR_DEVICES.isdisjoint(_names_in(code))


def _names_in(code: CodeType) -> set[str]:
    """The names that ``code`` and the functions defined within it look up."""
    return set(code.co_names).union(*[_names_in(c) for c in code.co_consts if isinstance(c, CodeType)])


def _has_tensors(func: OpOverload) -> bool:
    return any("Tensor" in str(argument.type) for argument in func._schema.arguments)


# -- the ways of running ----------------------------------------------------------------------------------------------
def _meta(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    if has_symbols(args) or kwargs and has_symbols(kwargs.values()):
        return _with_symbols(mode, func, args, kwargs)
    try:
        return mode.run_meta(func, args, kwargs)
    except NotImplementedError:  # a meta kernel that is only a name
        return run_borrowed(mode, func, args, kwargs)


def _elsewhere(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Upstream knows the device; of symbols there may be a rule."""
    if has_symbols(args) or kwargs and has_symbols(kwargs.values()):
        return VIEWS[func](mode, func, args, kwargs) if func in VIEWS else _borrowed_or_specialized(mode, func, args, kwargs)
    return run_borrowed(mode, func, args, kwargs)


def _with_symbols(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """By a rule for symbols; by a meta kernel that is written in Python; else by upstream's fake tensors, which know compositions for many more."""
    rule = VIEWS.get(func)
    if rule is not None:
        return rule(mode, func, args, kwargs)
    if torch._C.DispatchKey.Meta in func.py_kernels:
        with contextlib.suppress(NotImplementedError), enable_python_dispatcher():
            return mode.run_meta(func, args, kwargs)
    return _borrowed_or_specialized(mode, func, args, kwargs)


def _borrowed_or_specialized(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """By upstream's fake tensors; where these refuse symbols too, the sizes become known ones: the code is right for those only, and guarded."""
    try:
        return run_borrowed(mode, func, args, kwargs, symbols=True)
    except (RuntimeError, AttributeError):  # the latter where they ask a symbol for what only upstream's nodes have
        back: dict[int, FakeTensor] = {}

        def settled(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value.node.guard_int()
            shape, strides = ([int(n) for n in sizes] for sizes in (value.shape, value.stride()))
            known = FakeTensor(mode, torch.empty_strided(shape, strides, dtype=value.dtype, device="meta"), value.fake_device)
            back[id(known)] = value
            return known
        args, kwargs = pytree.tree_map_only((torch.Tensor, *SYMBOLIC), settled, (args, kwargs))
        return pytree.tree_map_only(torch.Tensor, lambda t: back.get(id(t), t), mode(func, args, kwargs))


def _no_operands(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Factories: on the default device unless told."""
    kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
    return mode.run_meta(func, args, {**kwargs, "device": kwargs.get("device") or torch.get_default_device()})


def _decompose(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Composite operators that come whole (in inference mode, or called from below autograd)."""
    with mode:
        result = func.decompose(*args, **kwargs)
    return run_borrowed(mode, func, args, kwargs) if result is NotImplemented else result


def _change_in_place(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """``t_``, ``squeeze_`` and their like: the tensor object itself takes the meta tensor's new look."""
    target = args[0]
    mode.run_meta(func, args, kwargs)
    with torch._C._DisableTorchDispatch():
        aten.as_strided_(target, target.elem.size(), target.elem.stride(), target.elem.storage_offset())
    return target


def _data_dependent(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    raise DataDependent(str(func))


def _dynamic_shape(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    raise DynamicShape(str(func))


# -- the rules --------------------------------------------------------------------------------------------------------
@rule(aten.size.default, aten.stride.default)
def _refused(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """Asked by compositions in C++ that take known sizes only: see ``composed``."""
    raise RuntimeError("C++ asked for the sizes of a tensor that has symbols among them")


@rule(aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default)
def _lift(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """``torch.tensor(...)``: a real tensor whose value is a fact of the program."""
    return args[0] if isinstance(args[0], FakeTensor) else mode.constant(args[0])


@rule(aten.detach_.default)
def _detach_in_place(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return args[0]


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    args = (args[0], mask_indices(mode, func, args[1]))
    try:
        return adjacent_index(mode, func, args, kwargs)
    except Irregular:
        return mode.run_meta(func, args, kwargs, device=args[0].device)


@rule(aten._unsafe_view.default)
def _unsafe_view(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return _meta(mode, aten.view.default, args, kwargs)


@rule(aten.view_copy.default)
def _view_copy(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """Of any layout, for what cannot be viewed is copied."""
    with mode:
        return args[0].reshape(args[1]).clone(memory_format=torch.contiguous_format)


@rule(aten.index_put.default, aten.index_put_.default, aten._unsafe_index_put.default, aten._index_put_impl_.default, aten.copy.default,
      aten.copy_.default, aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default)
def _on_first_device(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return mode.run_meta(func, args, kwargs, device=args[0].device)


@rule(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def _batch_norm(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    try:
        return batch_norm(mode, func, args, kwargs)
    except Irregular:
        out, mean, rstd = mode.run_meta(func, args, kwargs)
    if not args[5] and out.fake_device.type == "cpu":  # saved only when training
        mean, rstd = (mode.run_meta(aten.new_empty.default, (args[0], (0,)), {}) for _ in range(2))
    return out, mean, rstd


@rule(aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.no_stats)
def _batch_norm_variants(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    """As ``native_batch_norm``, whose meta kernel alone knows the statistics' dtype; the first returns the running statistics too."""
    if kwargs:
        return _meta(mode, func, args, kwargs)
    if func is aten._native_batch_norm_legit.no_stats:
        return _batch_norm(mode, aten.native_batch_norm.default, (*args[:3], None, None, *args[3:]), {})
    with mode:
        written = tuple(map(torch.empty_like, args[3:5]))
    return (*_batch_norm(mode, aten.native_batch_norm.default, args, {}), *written)


@rule(aten._batch_norm_with_update.default, aten._batch_norm_with_update_functional.default, aten._batch_norm_no_update.default)
def _batch_norm_with_workspace(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    """On a CPU the workspace is empty, and all else as ``native_batch_norm`` has it."""
    if args[0].fake_device.type != "cpu" or kwargs or len(args) != 7:
        return _meta(mode, func, args, kwargs)
    training = func is not aten._batch_norm_no_update.default
    results = _batch_norm(mode, aten.native_batch_norm.default, (*args[:5], training, *args[5:]), {})
    with mode:
        written = tuple(map(torch.empty_like, args[3:5])) if func is aten._batch_norm_with_update_functional.default else ()
        return (*results, args[0].new_empty((0,), dtype=torch.uint8), *written)


@rule(aten.channel_shuffle.default)
def _channel_shuffle(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """In the memory format of the image; upstream's rule knows row-major and known sizes only."""
    x, groups = (*args, *kwargs.values())
    if x.dim() < 3 or groups < 1 or x.shape[1] % groups:
        return run_borrowed(mode, func, args, kwargs)  # eager's error
    return new(mode, x.shape, x, None, image_strides(x))


@rule(aten.convolution.default)
def _convolution(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """Sizes by arithmetic (the meta kernel speaks where something is wrong); memory format as the library that would run it prefers."""
    x, weight, bias, *geometry = args
    shape = _conv_shape(x, weight, bias, *geometry)
    wanted = _conv_format(x, weight, bias, None, geometry)
    if shape is None:
        return _in_format(mode, mode.run_meta(func, args, kwargs, device=x.device), wanted)
    return FakeTensor(mode, torch.empty_strided(shape, _format_strides(shape, wanted), dtype=x.dtype, device="meta"), x.fake_device)


def _conv_shape(x: FakeTensor, weight: FakeTensor, bias: FakeTensor | None, stride: Sequence[int], padding: Sequence[int],
                dilation: Sequence[int], transposed: bool, extra: Sequence[int], groups: int) -> tuple[int, ...] | None:
    ndim = x.dim() - 2
    fits = weight.dim() == x.dim() and weight.dtype == x.dtype and all(len(v) == ndim for v in (stride, padding, dilation)) and all(n != 0 for n in x.shape)
    if not fits or x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups) or weight.shape[0] % groups:
        return None
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and (not equal_all(bias.shape, (channels,)) or bias.dtype != x.dtype):
        return None
    sizes = []
    for n, k, s, p, d, e in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, extra or (0,) * ndim):
        sizes.append((n - 1) * s - 2 * p + d * (k - 1) + e + 1 if transposed else (n + 2 * p - d * (k - 1) - 1) // s + 1)
    return (x.shape[0], channels, *sizes) if all(n > 0 for n in sizes) else None


@rule(aten.convolution_backward.default)
def _convolution_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    grad, x, weight, bias_sizes, *geometry, mask = args
    wanted = _conv_format(x, weight, None, bias_sizes, geometry)
    strides = [_format_strides(tuple(t.shape), wanted) for t in (x, weight)] + [(1,)]
    shapes = (x.shape, weight.shape, (grad.shape[1],))
    return tuple(FakeTensor(mode, torch.empty_strided(shape, s, dtype=x.dtype, device="meta"), x.fake_device) if m else None
                 for shape, s, m in zip(shapes, strides, mask))


def _format_strides(shape: Sequence[int], wanted: torch.memory_format) -> tuple[int, ...]:
    if wanted is torch.contiguous_format:
        return contiguous_strides(shape)
    if len(shape) == 3:
        flat = channels_last_strides((*shape[:2], 1, shape[2]))
        return (*flat[:2], flat[3])
    return channels_last_strides(shape)


def _conv_format(x: FakeTensor, weight: FakeTensor, bias: FakeTensor | None, bias_sizes: Any, geometry: list) -> torch.memory_format:
    """Row-major operands give a row-major result everywhere, and images on a CPU need no questions; else torch is asked."""
    last = any(is_channels_last(tuple(t.shape), tuple(t.stride())) for t in (x, weight))
    if not last and x.is_contiguous() and weight.is_contiguous():
        return torch.contiguous_format
    if x.dim() == 4 and x.fake_device.type == "cpu" and x.dtype in (torch.float32, torch.float64, torch.bfloat16):
        return torch.channels_last if last else torch.contiguous_format
    stride, padding, dilation, transposed, output_padding, groups = geometry
    more = {"bias_sizes": bias_sizes} if bias is None else {}
    backend = torch._C._select_conv_backend(x, weight, bias=bias, stride=stride, padding=padding, dilation=dilation,
                                            transposed=transposed, output_padding=output_padding, groups=groups, **more)
    if x.dim() == 3:  # run as a flat image; the backend above was chosen so too
        x, weight = x.contiguous().unsqueeze(2), weight.unsqueeze(2)
    return torch._C._conv_determine_backend_memory_format(x, weight, backend)


def _in_format(mode: FakeMode, fake: FakeTensor | None, wanted: torch.memory_format) -> FakeTensor | None:
    if fake is None or wanted is torch.contiguous_format:
        return fake
    elem = fake.elem
    elem = elem.unsqueeze(2).to(memory_format=wanted).squeeze(2) if elem.dim() == 3 else elem.to(memory_format=wanted)
    return FakeTensor(mode, elem, fake.fake_device)
