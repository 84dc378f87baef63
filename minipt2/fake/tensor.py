"""``FakeTensor``: the metadata of a tensor on some device; ``FakeMode``: runs operators on them.

A fake tensor is a tensor subclass whose dispatch keys are those of the real device, so that everything above
``__torch_dispatch__`` (autograd, autocast, composite operators) does what it does for real tensors; below, the operator's meta
kernel runs on plain meta tensors (``FakeTensor.elem``), which share a storage exactly where the real tensors would.
"""
from __future__ import annotations

import weakref
from typing import Any, Callable

import torch
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
_DEVICE_QUERY = torch.ops.prim.device.default
_META = torch.device("meta")
CONSTANT_LIMIT = 16  # elements up to which tensors made while tracing keep their values, for ``.item()``


class DataDependent(Exception):
    """The operator returns a Python value that depends on a tensor's data."""


class DynamicShape(Exception):
    """The size of the operator's result depends on a tensor's data."""


class Unfakeable(Exception):
    """A kind of tensor or operator that has no fake form."""


class FakeTensor(torch.Tensor):
    """A tensor without data. ``elem``: the meta tensor it stands on; ``fake_device``; ``fake_mode``; ``constant``: its value, where known."""

    elem: torch.Tensor
    fake_device: torch.device
    fake_mode: "FakeMode"
    constant: torch.Tensor | None

    @staticmethod
    def __new__(cls, mode: "FakeMode", elem: torch.Tensor, device: torch.device, constant: torch.Tensor | None = None):
        self = torch.Tensor._make_subclass(cls, elem, False, dispatch_device=True, device_for_backend_keys=device)
        self.elem, self.fake_device, self.fake_mode, self.constant = elem, device, mode, constant
        return self

    @property
    def device(self) -> torch.device:
        return self.fake_device

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is _DEVICE_QUERY:
            return args[0].fake_device
        return _mode_of(args, kwargs)(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"FakeTensor({tuple(self.shape)}, {self.dtype}, {self.fake_device}{grad})"


class FakeMode(TorchDispatchMode):
    """While active, operators run on fake tensors; real tensors among their operands are made fake."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, tuple[StorageWeakRef, torch.UntypedStorage]] = {}
        self._constants: list[weakref.ref] = []
        self.environment: Callable[[], Any] | None = None
        """Gives the ``ShapeEnv`` that makes symbols for what depends on data; without one such operators are errors."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the method below so that its first call imports all of upstream's compiler

    # -- making fake tensors ---------------------------------------------------------------------------------------
    def from_tensor(self, real: torch.Tensor, shape: Any = None, strides: Any = None) -> FakeTensor:
        """A fake tensor like ``real``: shape, dtype, strides, device, requires_grad, leaf or not; storages shared as there.

        With ``shape`` and ``strides`` (ints and SymInts) one that has those instead.

        Raises ``Unfakeable`` for tensors that are not plain strided ones.
        """
        if hasattr(real, "fake_device") and not isinstance(real, FakeTensor):  # upstream's: from a backend that calls us with its inputs
            from .borrowed import take

            return self._with_history(real, take(self, real))
        why = _unfakeable(real)
        if why:
            raise Unfakeable(why)
        if real.is_conj():
            return self._with_history(real, self.from_tensor(real.detach().conj()).conj())
        if real.is_neg():
            return self._with_history(real, self.from_tensor(real.detach()._neg_view())._neg_view())
        kept = torch.inference_mode() if real.is_inference() else torch.no_grad()
        with kept, torch._C._DisableTorchDispatch():  # the mode may be active
            elem = torch.empty(0, dtype=real.dtype, device=_META)
            elem.set_(self._storage(real), real.storage_offset(), real.size(), real.stride())
            if shape is not None:  # set_ would ask whether they fit into the storage
                elem = elem.as_strided(shape, strides)
            fake = FakeTensor(self, elem, real.device)
        return self._with_history(real, fake)

    def _with_history(self, real: torch.Tensor, fake: FakeTensor) -> FakeTensor:
        if not real.requires_grad:
            return fake
        fake.requires_grad_()
        if real.is_leaf:
            return fake
        with torch.enable_grad():
            return _History.apply(fake)

    def _storage(self, real: torch.Tensor) -> torch.UntypedStorage:
        storage = real.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is None or known[0].expired():
            known = self._storages[storage._cdata] = (StorageWeakRef(storage), torch.UntypedStorage(storage.nbytes(), device=_META))
        return known[1]

    def constant(self, value: torch.Tensor) -> FakeTensor:
        """A fake tensor whose value is known: one made while tracing. ``value`` is copied when it is small."""
        fake = self.from_tensor(value)
        return self._remember(fake, value.detach().clone()) if value.numel() <= CONSTANT_LIMIT else fake

    def _remember(self, fake: FakeTensor, value: torch.Tensor) -> FakeTensor:
        fake.constant = value
        self._constants.append(weakref.ref(fake))
        return fake

    # -- running operators -----------------------------------------------------------------------------------------
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is _DEVICE_QUERY:
            return args[0].fake_device
        return self(func, args, kwargs or {})

    def __call__(self, func: OpOverload, args: tuple, kwargs: dict) -> Any:
        """The result of ``func`` on fake (or real) operands. Raises what the meta kernel raises for wrong operands, and
        ``DataDependent``, ``DynamicShape`` or ``Unfakeable``."""
        handler = _handlers.get(func)
        if handler is None:
            from .rules import handler_of

            handler = _handlers[func] = handler_of(func)
        if func not in _TAKE_REAL and _any_real(args):
            args = tuple([self._fake(a) for a in args])
        if kwargs:
            kwargs = {k: self._fake(v) for k, v in kwargs.items()}
        if self._constants:
            known = self._run_constant(func, args, kwargs)
            if known is not None:
                return known
        return handler(self, func, args, kwargs)

    def _fake(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and type(value) is not FakeTensor:
            return self.from_tensor(value)
        return type(value)([self._fake(v) for v in value]) if type(value) in (list, tuple) else value

    def run_meta(self, func: Callable, args: tuple, kwargs: dict, device: torch.device | None = None) -> Any:
        """Run ``func``'s meta kernel; results lie on ``device``, by default the operands' common one."""
        seen: dict[int, FakeTensor] = {}
        args = tuple([self._elem(a, seen) for a in args])
        if kwargs:
            kwargs = {k: self._elem(v, seen) for k, v in kwargs.items()}
            if "device" in kwargs:
                device = kwargs["device"] or device
                kwargs["device"] = _META
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            known = seen.get(id(result))
            return known if known is not None else FakeTensor(self, result, device or common_device(func, seen))
        return self._wrap(result, device or common_device(func, seen), seen) if isinstance(result, (tuple, list)) else result

    def _elem(self, value: Any, seen: dict[int, FakeTensor]) -> Any:
        kind = type(value)
        if kind is FakeTensor:
            elem = value.elem
            seen[id(elem)] = value
            return elem
        if kind is list or kind is tuple:
            return kind([self._elem(v, seen) for v in value])
        return None if kind is torch.Generator else value

    def _wrap(self, result: Any, device: torch.device, seen: dict[int, FakeTensor]) -> Any:
        if isinstance(result, torch.Tensor):
            known = seen.get(id(result))
            return known if known is not None else FakeTensor(self, result, device)
        if isinstance(result, (tuple, list)):
            items = [self._wrap(r, device, seen) for r in result]
            return items if isinstance(result, list) else tuple(items)
        return result

    # -- known values ----------------------------------------------------------------------------------------------
    def _run_constant(self, func: OpOverload, args: tuple, kwargs: dict) -> Any:
        """The result of ``func`` where all operands' values are known; values in memory that it writes are forgotten."""
        fakes = [a for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        if func._schema.is_mutable:
            self._forget(fakes)
            return None
        if not fakes or torch.Tag.nondeterministic_seeded in func.tags or any(getattr(f, "constant", None) is None for f in fakes):
            return None
        real_args, real_kwargs = torch.utils._pytree.tree_map_only(FakeTensor, lambda f: f.constant, (args, kwargs))
        result = func(*real_args, **real_kwargs)
        if not isinstance(result, torch.Tensor):
            return result if isinstance(result, (bool, int, float, complex)) else None
        if result.numel() > CONSTANT_LIMIT or func.is_view:
            return None
        return self.constant(result)

    def _forget(self, written: list[torch.Tensor]) -> None:
        places = {f.elem.untyped_storage()._cdata for f in written if isinstance(f, FakeTensor)}
        alive = [(ref, fake) for ref in self._constants if (fake := ref()) is not None]
        for _, fake in alive:
            if fake.elem.untyped_storage()._cdata in places:
                fake.constant = None
        self._constants = [ref for ref, fake in alive if fake.constant is not None]


class _History(torch.autograd.Function):
    """A non-leaf that shares its input's storage and is no view of it."""

    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad


_handlers: dict[Any, Callable] = {}
_TAKE_REAL = (aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default)


def _any_real(args: Any) -> bool:
    for a in args:
        if type(a) in (list, tuple):
            if a and _any_real(a):
                return True
        elif isinstance(a, torch.Tensor) and type(a) is not FakeTensor:
            return True
    return False


def common_device(func: Any, operands: dict[int, FakeTensor]) -> torch.device:
    """The device of the operands; numbers (tensors of no dimension on the CPU) go along with the others."""
    found: torch.device | None = None
    number = True
    for fake in operands.values():
        device, scalar = fake.fake_device, fake.fake_device.type == "cpu" and fake.dim() == 0
        if found is None or (number and not scalar):
            found, number = device, scalar
        elif found != device and not scalar:
            raise RuntimeError(f"Expected all tensors to be on the same device, but {func} got {found} and {device}")
    return found if found is not None else torch.get_default_device()


def _mode_of(args: Any, kwargs: Any) -> FakeMode:
    return next(a.fake_mode for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, FakeTensor))


def _unfakeable(real: torch.Tensor) -> str | None:
    if isinstance(real, FakeTensor):
        return "a fake tensor from elsewhere"
    if type(real) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and type(real).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a tensor subclass ({type(real).__name__}) that has dispatch rules of its own"
    if real.layout is not torch.strided or real.is_nested or real.is_mkldnn:
        return f"a tensor of layout {real.layout}"
    if real.is_quantized:
        return "a quantised tensor"
    return None
