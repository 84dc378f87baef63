"""Functions of torch: operators become one node; questions about modes and types are answered while tracing.

``torch.nn.functional`` functions written in Python are one node too, so that a graph reads like the program.
Upstream: ``torch/_dynamo/variables/torch.py`` and ``torch/_dynamo/trace_rules.py``.
"""
from __future__ import annotations

import math
import operator
import types
from typing import Any, Callable, NamedTuple

import torch

from ...errors import Unsupported
from ..marks import mark_dynamic, mark_static
from ..source import AnswerSource, TorchGlobalSource
from .base import KnownFunctionVariable, Variable, unsupported
from .containers import ContainerVariable, const, constants, fold, is_none, none, observed
from .numbers import NumberVariable, computed, is_open, numbers
from .tensor import TensorVariable

LEAF_MODULES = frozenset(("torch.functional", "torch.nn.functional", "torch._jit_internal", "torch.special", "torch.linalg",
                          "torch.fft", "torch._lobpcg", "torch._linalg_utils", "torch.signal.windows.windows"))  # fmt: skip
C_MODULES = frozenset(("torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft", "torch._C._sparse",
                       "torch._C._nested"))  # fmt: skip
OPERATORS = frozenset(f for n in dir(torch._C._VariableFunctions) if isinstance(
    f := getattr(torch._C._VariableFunctions, n), types.BuiltinFunctionType))  # fmt: skip
HANDLERS: dict[Any, Callable[..., Variable]] = {}
_manual_seed = torch.random.manual_seed


class TorchVariable(KnownFunctionVariable):
    """A torch function: put into the graph as a call, or handled by ``HANDLERS``."""

    def as_proxy(self):
        return self.fn

    def describe(self) -> str:
        return f"torch function {getattr(self.fn, '__module__', '')}.{getattr(self.fn, '__name__', self.fn)}"

    __repr__ = describe

    def getattr(self, tx, name):
        from .builder import from_constant
        from .builtin import fold_raw

        return from_constant(fold_raw(getattr, self.fn, name))

    def call(self, tx, args, kwargs):
        handler = HANDLERS.get(self.fn)
        if handler is not None:
            return handler(tx, *args, **kwargs)
        if isinstance(self.fn, types.FunctionType) and not all(map(is_graph_value, (*args, *kwargs.values()))):
            from .functions import UserFunctionVariable

            return UserFunctionVariable(self.fn, self.source).call(tx, args, kwargs)
        return tx.output.call(tx, self.fn, args, kwargs)

    def reconstruct(self, cg) -> None:
        cg.load_const(self.fn)


def is_graph_value(var: Variable) -> bool:
    """A tensor, a constant, or a container of those: what a node takes as an argument."""
    if isinstance(var, (TensorVariable, NumberVariable)):
        return True
    if isinstance(var, ContainerVariable):
        from .lists import SequenceVariable

        return isinstance(var, SequenceVariable) and all(map(is_graph_value, var.items)) or var.is_constant()
    return var.is_constant() and not isinstance(var.as_python_constant(), types.FunctionType)


def torch_function(value: Any, source=None) -> Variable | None:
    """``value`` as a TorchVariable, or None when it is not torch's to handle (then it is inlined or breaks)."""
    if _later:
        _register_later(value)
    if getattr(value, "__wrapped__", None) is _manual_seed:  # what loading upstream's dynamo turns torch.manual_seed into
        value = _manual_seed
    try:
        if value in HANDLERS:
            return TorchVariable(value, source)
    except TypeError:
        return None
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return TorchVariable(value, source)
    module = getattr(value, "__module__", None)
    if isinstance(value, types.FunctionType):
        return TorchVariable(value, source) if module in LEAF_MODULES and value.__globals__.get(
            "__name__") in LEAF_MODULES else None
    if isinstance(value, types.BuiltinFunctionType):
        if value in OPERATORS or getattr(value.__self__, "__name__", None) in C_MODULES:
            return TorchVariable(value, source)
        if (module or "").startswith("torch"):
            return RefusedTorchVariable(value, source)
    return None


class RefusedTorchVariable(TorchVariable):
    """A C function of torch that is no operator: it changes or asks for state that a graph does not hold."""

    def call(self, tx, args, kwargs):
        unsupported("MP312", f"call of {self.describe()}", "call it outside the compiled code")


def handles(*functions: Any):
    """Register a handler ``(tx, *args, **kwargs) -> Variable``; a ``Later`` is found once its module is loaded."""

    def register(handler: Callable) -> Callable:
        for function in functions:
            if isinstance(function, Later):
                _later.setdefault(function.module, []).append((function.path, handler))
            else:
                HANDLERS[function] = handler
        return handler

    return register


class Later(NamedTuple):
    """A dotted path below a package that torch loads at first use; asking for it now would load the package."""

    module: str
    path: str


_later: dict[str, list[tuple[str, Callable]]] = {}  # package -> handlers to register when a value of it is met


def named(*paths: str) -> list[Any]:
    """Objects by dotted path from ``torch``, or a ``Later``; those missing in this version are left out."""
    found = []
    for path in paths:
        package = path.split(".")[0]
        if package in ("_dynamo", "onnx"):
            found.append(Later(f"torch.{package}", path))
        elif (value := _resolve(path)) is not None:
            found.append(value)
    return found


def _resolve(path: str) -> Any:
    value: Any = torch
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def _register_later(value: Any) -> None:
    """Called with every value looked up: registers the handlers of its package, which is loaded if there is a value of it."""
    module = getattr(value, "__module__", None)
    for package in [p for p in _later if isinstance(module, str) and (module + ".").startswith(p + ".")]:
        for path, handler in _later.pop(package):
            if (function := _resolve(path)) is not None:
                HANDLERS[function] = handler


# -- answered while tracing --------------------------------------------------------------------------------------------
def _fixed(result: Any) -> Callable:
    return lambda tx, *args, **kwargs: const(result)


for _value, _paths in {
    True: ("compiler.is_compiling", "compiler.is_dynamo_compiling", "_utils.is_compiling", "_dynamo.external_utils.is_compiling"),
    False: ("compiler.is_exporting", "jit.is_scripting", "jit.is_tracing", "_jit_internal.is_scripting", "onnx.is_in_onnx_export",
            "overrides.has_torch_function", "overrides.has_torch_function_unary", "overrides.has_torch_function_variadic",
            "_C._has_torch_function", "_C._has_torch_function_unary", "_C._has_torch_function_variadic",
            "cuda.is_current_stream_capturing", "xpu.is_current_stream_capturing", "_C._is_tracing", "_jit_internal.is_tracing",
            "jit._trace.is_tracing", "_C._is_torch_function_mode_enabled", "_C._functorch.is_batchedtensor",
            "_C._functorch.is_gradtrackingtensor", "_C._is_functorch_wrapped_tensor", "nn.functional.is_scripting"),
    None: ("_C._get_tracing_state", "_C._log_api_usage_once", "_C._functorch.peek_interpreter_stack"),
}.items():  # fmt: skip
    handles(*named(*_paths))(_fixed(_value))


MODES_ASKED = (
    "get_autocast_dtype", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype", "is_autocast_cpu_enabled", "is_autocast_cache_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "get_float32_matmul_precision", "cuda.current_device", "cuda.is_initialized",
    "get_num_threads", "get_default_device", "distributed.is_initialized", "_C._get_cudnn_enabled", "_C._get_flash_sdp_enabled",
    "_C._get_math_sdp_enabled", "_C._get_mem_efficient_sdp_enabled", "_C._is_any_autocast_enabled", "_C._get_autograd_fallback_mode",
    "backends.cuda.flash_sdp_enabled", "backends.cuda.math_sdp_enabled", "backends.cuda.mem_efficient_sdp_enabled",
    "_C._get_deterministic_fill_uninitialized_memory",
)  # fmt: skip
"""Questions whose answers the user may change, beyond the modes that every frame is guarded by: each answer is guarded."""


def _folded(function: Callable) -> Callable:
    mode = next((path for path in MODES_ASKED if _resolve(path) is function), None)

    def handler(tx, *args, **kwargs):
        known = constants(*args, *kwargs.values())
        if known is None:
            unsupported("MP303", f"call of {function.__name__} with values not known while tracing")
        if mode is not None and not kwargs:
            tx.output.guard(AnswerSource(TorchGlobalSource(mode), tuple(known)), "CONST", function(*known))
        return fold(function, *known[:len(args)], **dict(zip(kwargs, known[len(args):])))

    return handler


for _function in named(
    "is_grad_enabled", "is_inference_mode_enabled", "get_default_dtype", "is_autocast_enabled", "get_autocast_dtype",
    "get_autocast_gpu_dtype", "get_autocast_cpu_dtype", "is_autocast_cpu_enabled", "is_autocast_cache_enabled", "promote_types",
    "can_cast", "are_deterministic_algorithms_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "get_float32_matmul_precision", "cuda.is_available", "cuda.device_count", "cuda.is_bf16_supported", "cuda.current_device",
    "cuda.get_device_capability", "cuda.get_device_name", "cuda.is_initialized", "xpu.is_available", "mps.is_available",
    "backends.mps.is_available", "backends.mps.is_built", "backends.mkldnn.is_available", "backends.cudnn.is_available",
    "backends.cudnn.version", "backends.cuda.is_built", "get_num_threads", "get_default_device", "distributed.is_available",
    "distributed.is_initialized", "finfo", "iinfo", "device", "amp.is_autocast_available", "_C._get_cudnn_enabled",
    "_C._get_flash_sdp_enabled", "_C._get_math_sdp_enabled", "_C._get_mem_efficient_sdp_enabled", "_C._is_any_autocast_enabled",
    "_C._get_autograd_fallback_mode", "nn.modules.utils._ntuple", "nn.grad._grad_input_padding", "backends.cuda.flash_sdp_enabled",
    "backends.cuda.math_sdp_enabled", "backends.cuda.mem_efficient_sdp_enabled", "_C._get_privateuse1_backend_name",
    "nn.functional._verify_batch_size", "_C._get_deterministic_fill_uninitialized_memory", "accelerator.is_available",
    "nn.modules.utils._reverse_repeat_tuple", "nn._reduction.get_enum", "nn._reduction.legacy_get_string",
):  # fmt: skip
    if not isinstance(_function, type):
        handles(_function)(_folded(_function))


@handles(torch._C._set_grad_enabled)
def set_grad_enabled(tx, enabled):
    """What grad-mode contexts call when they are left; the classes themselves are in ``context``."""
    tx.output.set_grad(enabled.truth(tx))
    return none()


@handles(*named("is_tensor"))
def is_tensor(tx, obj):
    return const(issubclass(obj.python_type(), torch.Tensor))


@handles(*named("overrides.is_tensor_like", "is_storage"))
def is_tensor_like(tx, obj):
    return const(issubclass(obj.python_type(), torch.Tensor))


def _tensor_fact(name: str) -> Callable:
    def handler(tx, input):
        if not isinstance(input, TensorVariable):
            raise observed(TypeError, f"{name}(): argument 'input' must be Tensor")
        return tx.wrap_constant(getattr(input.value, name)())

    return handler


for _name in ("is_floating_point", "is_complex", "numel"):
    HANDLERS[getattr(torch, _name)] = _tensor_fact(_name)


@handles(*named("result_type"))
def result_type(tx, tensor1, tensor2):
    return const(torch.result_type(*(v.value if isinstance(v, TensorVariable) else v.python_type()(1) for v in (tensor1, tensor2))))


@handles(torch.broadcast_shapes)
def broadcast_shapes(tx, *shapes):
    sizes = [tuple(shape.as_proxy()) if isinstance(shape, ContainerVariable) else (shape.as_proxy(),) for shape in shapes]
    result = [1] * max(map(len, sizes), default=0)
    for size in sizes:
        for k in range(-len(size), 0):
            if size[k] != 1 and result[k] != size[k]:
                if result[k] != 1:
                    raise observed(RuntimeError, "Shape mismatch: objects cannot be broadcast to a single shape")
                result[k] = size[k]
    return tx.wrap_constant(torch.Size(result))


def _number_function(function: Callable) -> Callable:
    def handler(tx, *args):
        values = numbers(*args)
        result = computed(tx, function, *values) if values is not None else None
        return result if result is not None else fold(function, *(a.as_python_constant() for a in args))

    return handler


for _name, _function in {"sym_max": max, "sym_min": min, "sym_int": int, "sym_float": float, "sym_not": operator.not_, "_sym_sqrt": math.sqrt,
                         "sym_ite": torch.sym_ite, "sym_sum": torch.sym_sum}.items():  # fmt: skip
    HANDLERS[getattr(torch, _name)] = _number_function(_function)


@handles(*named("typename"))
def typename(tx, obj):
    return const(obj.value.type()) if isinstance(obj, TensorVariable) else fold(torch.typename, obj.as_python_constant())


# -- checks ------------------------------------------------------------------------------------------------------------
def _text(tx, message: Variable | None) -> str | None:
    """What a check's message function says, if that is known while tracing."""
    try:
        known = constants(message.call(tx, [], {})) if message is not None else None
    except Unsupported:
        return None
    return str(known[0]) if known else None


def _check(error: type[Exception]) -> Callable:
    def handler(tx, cond, message=None):
        if isinstance(cond, TensorVariable):
            unsupported("MP101", "a check on tensor data", "use torch._assert_async")
        if isinstance(cond, NumberVariable) and isinstance(cond.value, torch.SymBool) and is_open(cond.value):
            tx.output.check(cond.value, error, _text(tx, message))
            return none()
        if not cond.truth(tx):
            text = message.call(tx, [], {}) if not is_none(message) else const("")
            raise observed(error, text)
        return none()

    return handler


for _name, _error in {"_check": RuntimeError, "_check_value": ValueError, "_check_index": IndexError,
                      "_check_type": TypeError, "_check_not_implemented": NotImplementedError}.items():  # fmt: skip
    handles(*named(_name))(_check(_error))


@handles(*named("_check_is_size"))
def _check_is_size(tx, i, message=None, *, max=None):
    from .operators import binary_op

    for comparison, bound in (("ge", const(0)), ("le", max)):
        if bound is not None:
            _check(RuntimeError)(tx, binary_op(tx, comparison, i, bound), message)
    return none()


@handles(*named("_check_with"))
def _check_with(tx, *args, **kwargs):
    return none()


@handles(*named("_assert"))
def _assert(tx, condition, message=None):
    if isinstance(condition, TensorVariable):
        unsupported("MP101", "an assertion on tensor data", "use torch._assert_async")
    if not condition.truth(tx):
        raise observed(AssertionError, message if message is not None else const(""))
    return none()


# -- passed through ----------------------------------------------------------------------------------------------------
@handles(*named("jit.annotate", "jit._unwrap_optional", "_jit_internal.annotate"))
def annotate(tx, *args):
    return args[-1]


@handles(mark_dynamic, mark_static, *named(
                "compiler.cudagraph_mark_step_begin", "_dynamo.mark_static_address", "_dynamo.mark_static",
                "_dynamo.mark_dynamic", "_dynamo.maybe_mark_dynamic", "_dynamo.mark_unbacked",
                "_dynamo.decorators.mark_static_address", "_dynamo.decorators.mark_static",
                "_dynamo.decorators.mark_dynamic", "_dynamo.decorators.maybe_mark_dynamic"))  # fmt: skip
def ignored(tx, *args, **kwargs):
    return none()


# -- refused -----------------------------------------------------------------------------------------------------------
def _refuse(code: str, what: str, advice: str) -> Callable:
    def handler(tx, *args, **kwargs):
        unsupported(code, f"call of {what}", advice)

    return handler


for _path in ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "random.manual_seed", "random.seed",
              "random.get_rng_state", "random.set_rng_state", "cuda.manual_seed", "cuda.manual_seed_all", "cuda.synchronize",
              "cuda.empty_cache", "save", "load", "set_default_dtype", "set_default_device", "set_num_threads", "set_printoptions",
              "use_deterministic_algorithms", "set_float32_matmul_precision", "set_grad_enabled_", "frombuffer",
              "utils.data.get_worker_info", "cuda.memory_allocated", "cuda.stream", "from_dlpack"):  # fmt: skip
    handles(*named(_path))(_refuse("MP312", f"torch.{_path}", "call it outside the compiled code"))
@handles(torch._foreach_addcdiv_)
def _foreach_addcdiv_(tx, tensors, numerators, denominators, scalars=None, **kwargs):
    """With its scalars in a tensor (Adam's step sizes), which the operator would read while tracing: element by element."""
    given = [tensors, numerators, denominators]
    if not isinstance(scalars, TensorVariable):
        return tx.output.call(tx, torch._foreach_addcdiv_, given + [scalars] * (scalars is not None), kwargs)
    for k, (target, *fraction) in enumerate(zip(*(v.iterate(tx) for v in given))):
        target.call_method(tx, "addcdiv_", fraction, {"value": tx.output.call(tx, torch.select, [scalars, const(0), const(k)], {})})
    return const(None)


@handles(torch._C._group_tensors_by_device_and_dtype)
def group_tensors(tx, lists, with_indices=None):
    """{(device, dtype of the first list's tensors): (the lists, with these tensors only, their places)}, for the foreach operators."""
    rows = [row.iterate(tx) for row in lists.iterate(tx)]
    groups: dict[tuple, list[int]] = {}
    for k, first in enumerate(rows[0]):
        if not isinstance(first, TensorVariable):
            unsupported("MP312", "a grouping of something that is no tensor")
        groups.setdefault((first.value.device, first.value.dtype), []).append(k)
    known = with_indices is not None and with_indices.truth(tx)
    parts = {key: tx.list([tx.list([row[k] for k in places if row]) for row in rows]) for key, places in groups.items()}
    return tx.dict([(tx.wrap_constant(key), tx.tuple([parts[key], tx.list(map(const, places if known else ()))])) for key, places in groups.items()])


@handles(*named("_dynamo.graph_break"))
def _graph_break(tx):
    """A break, but where ``torch.optim`` asks for one: for the sake of a compiler that would keep the gradients of a step."""
    if tx.f_globals.get("__name__") != "torch.optim.optimizer":
        unsupported("MP312", "torch._dynamo.graph_break")
    return const(None)


handles(*named("_pack_padded_sequence", "_pad_packed_sequence"))(_refuse(
    "MP103", "a function of packed sequences, whose sizes are in a tensor", "pack and unpack outside the compiled code, or mask padded sequences"))
for _path in ("autograd.grad", "autograd.backward", "autograd.functional.jacobian", "autograd.functional.hessian"):
    handles(*named(_path))(_refuse("MP317", f"torch.{_path}", "differentiate outside the compiled code"))
for _path in ("vmap", "func.vmap", "func.grad", "func.grad_and_value", "func.vjp", "func.jvp", "func.jacrev", "func.jacfwd",
              "func.hessian", "func.functional_call", "func.functionalize", "func.linearize", "compile", "export.export"):  # fmt: skip
    handles(*named(_path))(_refuse("MP313", f"torch.{_path}", "apply function transforms outside the compiled code"))


@handles(*named("utils.checkpoint.checkpoint"))
def checkpoint(tx, function, *args, **kwargs):
    """Runs the function inline; the partitioner saves nothing from inside (with a policy of the user's, ``context_fn``, what it likes)."""
    own = {"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"}
    rest = {k: v for k, v in kwargs.items() if k not in own}
    return function.call(tx, list(args), rest) if "context_fn" in kwargs else _in_region(tx, function, list(args), rest)


def _in_region(tx, function, args: list, kwargs: dict):
    """``function`` called as one checkpointed region; inside another one, as a part of that."""
    if tx.output.checkpoint is not None:
        return function.call(tx, args, kwargs)
    regions = tx.output.scratch("checkpoints")
    tx.output.checkpoint = regions[len(regions)] = len(regions)
    try:
        return function.call(tx, args, kwargs)
    finally:
        tx.output.checkpoint = None
