"""Questions to torch that are answered while tracing: modes, types, facts about tensors, checks.

An answer that the user may change becomes a guard. Fills the handlers of ``torch_functions``.
Upstream: ``torch/_dynamo/variables/torch.py``.
"""
from __future__ import annotations

import math
import operator
from typing import Any, Callable

import torch

from ...errors import Unsupported
from ...shapes.known import symbolic
from ..marks import mark_dynamic, mark_static
from ..source import AnswerSource, TorchGlobalSource
from .base import Variable, unsupported
from .containers import ContainerVariable, const, constants, fold, is_none, none, observed
from .numbers import NumberVariable, computed, is_open, numbers
from .tensor import TensorVariable
from .torch_functions import HANDLERS, _resolve, handles, named


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


def _assumed(tx, condition: TensorVariable, what: str) -> Variable:
    """A check that raises where ``condition``, a tensor, is not true."""
    if not tx.output.dynamism.assumes or symbolic(condition.value.shape) or condition.value.numel() != 1:
        unsupported("MP101", what, "use torch._assert_async")
    tx.output.assume(condition, True)
    return none()


def _check(error: type[Exception]) -> Callable:
    def handler(tx, cond, message=None):
        if isinstance(cond, TensorVariable):
            return _assumed(tx, cond, "a check on tensor data")
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
        return _assumed(tx, condition, "an assertion on tensor data")
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
