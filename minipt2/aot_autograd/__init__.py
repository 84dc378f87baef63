"""The backward pass ahead of time: a captured graph becomes functional forward and backward graphs, and a callable.

In: an ``fx.GraphModule`` of torch calls and methods (from ``dynamo``) with fake example inputs. Out: ``run(*args) -> tuple`` with
eager's outputs, gradients, aliases, strides and mutated inputs. In between each compiler gets one graph: ``call_function`` nodes on
ATen overloads (or what ``decompose`` made of them), no mutation, outputs that share storage with nothing. Called by
``backends``; knows neither ``dynamo`` nor ``inductor``.

The order: ``trace`` (record forward and gradient) -> ``functionalize`` -> ``simplify`` -> ``decompose`` -> ``partition`` (what to
save) -> compilers -> ``runtime``. Upstream: ``torch._functorch.aot_autograd`` and ``torch._functorch.partitioners``.
"""
from .compile import aot_compile, aot_eager, compile_backward, compiled, make_plan, run_eagerly
from .partition import min_cut, split
from .pieces import in_pieces
from .runtime import Compiled, Plan
from .trace import Tracer, trace_joint

__all__ = ["Compiled", "Plan", "Tracer", "aot_compile", "aot_eager", "compile_backward", "compiled", "in_pieces", "make_plan", "min_cut", "run_eagerly", "split", "trace_joint"]
