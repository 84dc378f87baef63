"""Activation functions and their gradients. Formulas run in float32 for bfloat16 and float16 and are rounded once, as in eager kernels.

Upstream: ``torch._refs.nn.functional``, ``torch._decomp.decompositions`` (``*_backward``).
"""
from __future__ import annotations

import math
from typing import Any

from .. import ops as p
from ..core import Value
from ..promote import to_float
from .registry import elementwise, rounded, rule
from .views import narrow

_SQRT_HALF = math.sqrt(0.5)
_TANH_SCALE, _TANH_CUBIC = math.sqrt(2 / math.pi), 0.044715


@elementwise("gelu", opmath=True)
def gelu(x: Value, *, approximate: str = "none") -> Value:
    """x times the normal distribution function at x, exactly by erf or approximately by tanh."""
    if approximate == "tanh":
        inner = (x + x * x * x * _TANH_CUBIC) * _TANH_SCALE
        return x * 0.5 * (p.tanh(inner) + 1.0)
    return x * 0.5 * (p.erf(x * _SQRT_HALF) + 1.0)


@elementwise("gelu_backward", operands=2, opmath=True)
def gelu_backward(grad: Value, x: Value, *, approximate: str = "none") -> Value:
    if approximate == "tanh":
        t = p.tanh((x + x * x * x * _TANH_CUBIC) * _TANH_SCALE)
        inner_slope = (x * x * (3 * _TANH_CUBIC) + 1.0) * _TANH_SCALE
        return grad * ((t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * inner_slope)
    cdf = (p.erf(x * _SQRT_HALF) + 1.0) * 0.5
    pdf = p.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return grad * (cdf + x * pdf)


@elementwise("silu", opmath=True)
def silu(x: Value) -> Value:
    return x / (p.exp(-x) + 1.0)


@elementwise("silu_backward", operands=2, opmath=True)
def silu_backward(grad: Value, x: Value) -> Value:
    s = p.sigmoid(x)
    return grad * s * (x * (1.0 - s) + 1.0)


@elementwise("sigmoid_backward", operands=2, opmath=True)
def sigmoid_backward(grad: Value, out: Value) -> Value:
    return grad * (1.0 - out) * out


@elementwise("tanh_backward", operands=2, opmath=True)
def tanh_backward(grad: Value, out: Value) -> Value:
    return grad * (1.0 - out * out)


@elementwise("threshold", operands=1)
def threshold(x: Value, threshold: float, value: float) -> Value:
    return p.where(p.le(x, threshold), value, x)


@elementwise("threshold_backward", operands=2)
def threshold_backward(grad: Value, x: Value, threshold: float) -> Value:
    """The gradient of relu when threshold is 0; x may be relu's result."""
    return p.where(p.le(x, threshold), 0, grad)


def _hard_gate(x: Value) -> Value:
    return p.minimum(p.maximum(x + 3.0, 0.0), 6.0)


@elementwise("hardswish", opmath=True)
def hardswish(x: Value) -> Value:
    return x * _hard_gate(x) / 6.0


@elementwise("hardswish_backward", operands=2, opmath=True)
def hardswish_backward(grad: Value, x: Value) -> Value:
    middle = grad * (x / 3.0 + 0.5)
    return p.where(p.le(x, -3.0), 0.0, p.where(p.lt(x, 3.0), middle, grad))


@elementwise("hardsigmoid", opmath=True)
def hardsigmoid(x: Value) -> Value:
    return _hard_gate(x) / 6.0


@elementwise("hardsigmoid_backward", operands=2, opmath=True)
def hardsigmoid_backward(grad: Value, x: Value) -> Value:
    return p.where(p.gt(x, -3.0) & p.lt(x, 3.0), grad * (1 / 6), 0.0)


@elementwise("hardtanh")
def hardtanh(x: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    return p.minimum(p.maximum(x, _number(x, min_val)), _number(x, max_val))


def _number(x: Value, value: Any) -> Any:
    return to_float(value) if x.dtype.is_floating_point else int(value)


@elementwise("hardtanh_backward", operands=2)
def hardtanh_backward(grad: Value, x: Value, min_val: Any, max_val: Any) -> Value:
    return p.where(p.le(x, min_val) | p.ge(x, max_val), 0.0, grad)


@elementwise("relu6")
def relu6(x: Value) -> Value:
    return hardtanh(x, 0, 6)


@elementwise("leaky_relu", opmath=True)
def leaky_relu(x: Value, negative_slope: float = 0.01) -> Value:
    return p.where(p.gt(x, 0), x, x * to_float(negative_slope))


@elementwise("leaky_relu_backward", operands=2, opmath=True)
def leaky_relu_backward(grad: Value, x: Value, negative_slope: float, self_is_result: bool) -> Value:
    return p.where(p.gt(x, 0), grad, grad * to_float(negative_slope))


@elementwise("prelu", "_prelu_kernel", operands=2)
def prelu(x: Value, weight: Value) -> Value:
    return p.where(p.gt(x, 0), x, weight * x)


@rule("_prelu_kernel_backward")
def prelu_backward(grad: Value, x: Value, weight: Value) -> tuple[Value, Value]:
    return _prelu_grad_input(grad, x, weight), _prelu_grad_weight(grad, x)


@elementwise(operands=3)
def _prelu_grad_input(grad: Value, x: Value, weight: Value) -> Value:
    return p.where(p.gt(x, 0), grad, weight * grad)


@elementwise(operands=2)
def _prelu_grad_weight(grad: Value, x: Value) -> Value:
    return p.where(p.gt(x, 0), 0.0, x * grad)


@elementwise("elu", opmath=True)
def elu(x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    return p.where(p.le(x, 0), p.expm1(x * to_float(input_scale)) * to_float(alpha * scale), x * to_float(scale))


@rule("elu_backward")
def elu_backward(grad: Value, alpha: float, scale: float, input_scale: float, is_result: bool, x: Value) -> Value:
    return _elu_backward(grad, x, to_float(alpha), to_float(scale), to_float(input_scale), is_result)


@elementwise(operands=2, opmath=True)
def _elu_backward(grad: Value, x: Value, alpha: float, scale: float, input_scale: float, is_result: bool) -> Value:
    slope = (x + alpha * scale) * input_scale if is_result else p.exp(x * input_scale) * (input_scale * alpha * scale)
    return p.where(p.le(x, 0), grad * slope, grad * scale)


def _softplus(x: Value) -> Value:
    return p.log1p(p.exp(x))


@elementwise("softplus", opmath=True)
def softplus(x: Value, beta: float = 1, threshold: float = 20) -> Value:
    scaled = x * to_float(beta)
    return p.where(p.gt(scaled, to_float(threshold)), x, _softplus(scaled) / to_float(beta))


@elementwise("softplus_backward", operands=2, opmath=True)
def softplus_backward(grad: Value, x: Value, beta: float, threshold: float) -> Value:
    z = p.exp(x * to_float(beta))
    return p.where(p.gt(x * to_float(beta), to_float(threshold)), grad, grad * z / (z + 1.0))


@elementwise("mish", opmath=True)
def mish(x: Value) -> Value:
    return x * p.tanh(_softplus(x))


@elementwise("mish_backward", operands=2, opmath=True)
def mish_backward(grad: Value, x: Value) -> Value:
    s, t = p.sigmoid(x), p.tanh(_softplus(x))
    return grad * (t + x * s * (1.0 - t * t))


@rule("log_sigmoid_forward")
def log_sigmoid_forward(x: Value) -> tuple[Value, Value]:
    """(result, buffer); on CPU the buffer holds exp(-|x|) for the gradient."""
    buffer = _log_sigmoid_buffer(x)
    return _log_sigmoid(x), (buffer if x.device.type == "cpu" else p.full((0,), 0.0, x.dtype, x.device))


@elementwise(opmath=True)
def _log_sigmoid(x: Value) -> Value:
    return p.minimum(x, 0.0) - p.log1p(p.exp(-p.abs(x)))


@elementwise(opmath=True)
def _log_sigmoid_buffer(x: Value) -> Value:
    return p.exp(-p.abs(x))


@rule("log_sigmoid_backward")
def log_sigmoid_backward(grad: Value, x: Value, buffer: Value) -> Value:
    return _log_sigmoid_backward(grad, x)


@elementwise(operands=2, opmath=True)
def _log_sigmoid_backward(grad: Value, x: Value) -> Value:
    z = p.exp(-p.abs(x))
    negative = p.lt(x, 0)
    slope = z / (z + 1.0)
    return grad * p.where(negative, 1.0 - slope, slope)


@elementwise("hardshrink")
def hardshrink(x: Value, lambd: float = 0.5) -> Value:
    return p.where(p.ge(x, -lambd) & p.le(x, lambd), 0.0, x)


@elementwise("hardshrink_backward", "softshrink_backward", operands=2)
def hardshrink_backward(grad: Value, x: Value, lambd: float) -> Value:
    return p.where(p.ge(x, -lambd) & p.le(x, lambd), 0.0, grad)


@rule("softshrink")
def softshrink(x: Value, lambd: float = 0.5) -> Value:
    """NaN stays: it is neither above nor below, and x * 0 is NaN. Only on the CPU ``lambd`` is a number of float32 where x is in half precision."""
    return _softshrink(x, to_float(lambd) if x.device.type == "cpu" else rounded(lambd, x.dtype))


@elementwise(opmath=True)
def _softshrink(x: Value, lambd: float) -> Value:
    return p.where(p.gt(x, lambd), x - lambd, p.where(p.lt(x, -lambd), x + lambd, x * 0.0))


@rule("glu")
def glu(x: Value, dim: int = -1) -> Value:
    half = x.shape[dim] // 2
    return _gated(narrow(x, dim, 0, half), narrow(x, dim, half, half))


@elementwise(operands=2, opmath=True)
def _gated(a: Value, b: Value) -> Value:
    return a * p.sigmoid(b)


@rule("glu_backward")
def glu_backward(grad: Value, x: Value, dim: int) -> Value:
    half = x.shape[dim] // 2
    a, b = narrow(x, dim, 0, half), narrow(x, dim, half, half)
    return p.cat((_gated(grad, b), _glu_grad_gate(grad, a, b)), dim % x.ndim)


@elementwise(operands=3, opmath=True)
def _glu_grad_gate(grad: Value, a: Value, b: Value) -> Value:
    s = p.sigmoid(b)
    return (1.0 - s) * s * grad * a
