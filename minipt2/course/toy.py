"""A whole compiler in one file: the pipeline of chapter 0, small enough for an afternoon.

    record the operators of a call  ->  closures over indices  ->  loops in C  ->  cached under guards  ->  a backward by recording autograd

What it leaves out is what the other chapters are about. It takes functions of tensors that write nothing in place and whose control flow no
tensor decides; what is not pointwise runs as the eager operator. Run ``python -m minipt2.course.toy``.
Upstream: the order of things in ``torch.compile``; the closures are TorchInductor's ``inner_fn``.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ..exercise import exercise
from ..inductor.cache import compile_c

aten = torch.ops.aten
T = torch.Tensor
Index = Sequence[str]
C_TYPES = {torch.float32: "float", torch.float64: "double"}


# ------------------------------------------------------------------ 0.1 record
class Call(NamedTuple):
    """One operator that ran: ``func(*args, **kwargs)`` gave ``result``."""

    func: Any
    args: tuple
    kwargs: dict[str, Any]
    result: Any


class Recorder(TorchDispatchMode):
    """While it is active every operator that runs below autograd is logged in ``calls``."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @exercise("0.1")
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Run the operator ``func``, log it, and return its result: the very object, as autograd goes on with it."""
        # >>> 0.1
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.calls.append(Call(func, args, kwargs, result))
        return result
        # <<< 0.1


@dataclass
class Program:
    """A recording that can be run again: ``inputs`` and ``outputs`` are tensors of the recording itself."""

    calls: list[Call]
    inputs: list[T]
    outputs: list[T]


def record(fn: Callable[..., Any], args: Sequence[T]) -> Program:
    """Run ``fn`` once on ``args`` and keep what it did. Raises NotImplementedError for operators that write into their arguments."""
    with Recorder() as recorder:
        outputs = fn(*args)
    for call in recorder.calls:
        if call.func._schema.is_mutable:
            raise NotImplementedError(f"{call.func} writes in place: chapter 3 shows what to do about it")
    return Program(recorder.calls, list(args), list(outputs) if isinstance(outputs, (list, tuple)) else [outputs])


def place(t: T) -> tuple:
    """What tells tensors of one recording apart: two objects that look at the same memory in the same way are one value."""
    return t.untyped_storage().data_ptr(), t.storage_offset(), tuple(t.shape), t.stride(), t.dtype


# ------------------------------------------------------------------ 0.2 closures over indices
@dataclass(frozen=True)
class Buf:
    """Memory that a kernel reads or writes; ``key`` says which tensor of the recording it is."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    key: tuple = ()


@dataclass(frozen=True)
class Value:
    """A tensor that need not exist: ``text(index)`` is the C expression of one element, ``reads`` the memory that it is made from."""

    shape: tuple[int, ...]
    text: Callable[[Index], str]
    reads: tuple[Buf, ...]


def offset(index: Index, strides: Sequence[int]) -> str:
    """Where an element lies: ``i0*4 + i1``."""
    return " + ".join(f"{i}*{s}" if s != 1 else i for i, s in zip(index, strides) if s != 0 and i != "0") or "0"


def load(buf: Buf) -> Value:
    """The value that stands in memory."""
    return Value(buf.shape, lambda index: f"{buf.name}[{offset(index, buf.strides)}]", (buf,))


def number(x: float) -> Value:
    """A Python number: no dimensions, nothing to read."""
    return Value((), lambda index: repr(float(x)).replace("inf", "INFINITY").replace("nan", "NAN"), ())


@exercise("0.2")
def pointwise(fmt: str, *xs: Value) -> Value:
    """The value whose element is ``fmt`` filled with the operands' elements, as in ``pointwise("({0} + {1})", a, b)``.

    Shapes broadcast as in torch: aligned from the right, a size of 1 stands for any (its index is then ``"0"``).
    """
    # >>> 0.2
    shape = torch.broadcast_shapes(*(x.shape for x in xs))

    def text(index: Index) -> str:
        parts = []
        for x in xs:
            own = index[len(index) - len(x.shape):]
            parts.append(x.text(["0" if n == 1 else i for i, n in zip(own, x.shape)]))
        return fmt.format(*parts)
    return Value(tuple(shape), text, tuple(dict.fromkeys(b for x in xs for b in x.reads)))
    # <<< 0.2


# ------------------------------------------------------------------ 0.3 loops
@exercise("0.3")
def emit(name: str, out: Buf, v: Value) -> str:
    """A C function ``void name(out, reads...)`` that stores ``v`` into ``out``: a loop for each dimension, the one with the largest stride outside.

    Indices are called ``i0``, ``i1`` ... by dimension; ``out`` may have any strides.
    """
    # >>> 0.3
    parameters = [f"{C_TYPES[out.dtype]}* out", *(f"const {C_TYPES[b.dtype]}* {b.name}" for b in v.reads)]
    index = [f"i{d}" for d in range(len(out.shape))]
    loops = [f"  for (long i{d} = 0; i{d} < {out.shape[d]}; i{d}++)" for d in sorted(range(len(out.shape)), key=lambda d: -out.strides[d])]
    return "\n".join([f"void {name}({', '.join(parameters)}) {{", *loops, f"    out[{offset(index, out.strides)}] = {v.text(index)};", "}"]) + "\n"
    # <<< 0.3


# ------------------------------------------------------------------ which operators become closures
POINTWISE = {
    aten.add.Tensor: "({0} + {1})", aten.sub.Tensor: "({0} - {1})", aten.mul.Tensor: "({0} * {1})", aten.div.Tensor: "({0} / {1})",
    aten.neg.default: "(-{0})", aten.exp.default: "exp({0})", aten.log.default: "log({0})", aten.tanh.default: "tanh({0})",
    aten.sqrt.default: "sqrt({0})", aten.rsqrt.default: "(1 / sqrt({0}))", aten.abs.default: "fabs({0})", aten.sin.default: "sin({0})",
    aten.cos.default: "cos({0})", aten.sigmoid.default: "(1 / (1 + exp(-{0})))",
    aten.relu.default: "({0} > 0 || {0} != {0} ? {0} : 0)", aten.threshold_backward.default: "({1} > {2} ? {0} : 0)",
    aten.tanh_backward.default: "({0} * (1 - {1} * {1}))", aten.sigmoid_backward.default: "({0} * {1} * (1 - {1}))",
    aten.maximum.default: "({0} > {1} || {0} != {0} ? {0} : {1})",
}
"""ATen operator to C; the rest runs as it is. Chapter 4 makes two hundred operators of two thousand, so that this table can be complete."""
HEADER = "#include <tgmath.h>\n"


def is_pointwise(call: Call) -> bool:
    """Whether the toy has a formula for it, on floating-point tensors of one dtype."""
    tensors = [x for x in call.args if isinstance(x, T)]
    return (call.func in POINTWISE and not call.kwargs and isinstance(call.result, T) and call.result.dtype in C_TYPES
            and all(t.dtype == call.result.dtype for t in tensors))


# ------------------------------------------------------------------ from a recording to steps
@dataclass
class Step:
    """One thing to run: a kernel, or an eager operator. Arguments and results are places in the table of values."""

    run: Callable[[list[Any]], Any]
    reads: list[tuple]
    writes: list[tuple]


@dataclass
class Plan:
    """What a recording becomes: steps in order, C text, how many kernels there are."""

    steps: list[Step] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)


def build(program: Program, fuse: bool = True) -> Callable[..., list[T]]:
    """Compile a recording into ``run(*inputs) -> outputs``; ``run.plan`` says what was made. ``fuse=False``: a kernel for each operator."""
    plan, values = Plan(), {}
    names: dict[tuple, str] = {}
    known = {place(t) for t in program.inputs}
    constants: dict[tuple, T] = {}
    wanted = _realised(program, fuse)
    for call in program.calls:
        for t in _tensors((call.args, call.kwargs)):
            if place(t) not in known:  # a parameter, or any tensor that the function did not get as an argument
                constants[place(t)] = t
                known.add(place(t))
        known.update(place(t) for t in _tensors(call.result))
        if not is_pointwise(call):
            plan.steps.append(_eager(call))
            continue
        key = place(call.result)
        values[key] = pointwise(POINTWISE[call.func], *(_operand(x, values, names) for x in call.args))
        if key in wanted:
            plan.steps.append(_kernel(plan, call.result, values.pop(key)))
    constants.update((place(t), t) for t in program.outputs if place(t) not in known)
    library = compile_c(HEADER + "\n".join(plan.kernels)) if plan.kernels else None

    def run(*inputs: T) -> list[T]:
        table: dict[tuple, T] = {**constants, **{place(t): x for t, x in zip(program.inputs, inputs)}}
        for step in plan.steps:
            made = step.run([library, *(table[key] for key in step.reads)])
            table.update(zip(step.writes, made))
        return [table[place(t)] for t in program.outputs]
    run.plan = plan  # type: ignore[attr-defined]
    return run


def _tensors(x: Any) -> list[T]:
    return [t for t in tree_leaves(x) if isinstance(t, T)]


def _realised(program: Program, fuse: bool) -> set[tuple]:
    """Pointwise results that must stand in memory: outputs, what an eager operator reads, what several read."""
    readers: dict[tuple, int] = {}
    needed = {place(t) for t in program.outputs}
    for call in program.calls:
        for t in _tensors((call.args, call.kwargs)):
            readers[place(t)] = readers.get(place(t), 0) + 1
            if not is_pointwise(call):
                needed.add(place(t))
    many = {key for key, count in readers.items() if count > 1 or not fuse}
    return needed | many


def _operand(x: Any, values: dict[tuple, Value], names: dict[tuple, str]) -> Value:
    if not isinstance(x, T):
        return number(x)
    key = place(x)
    if key in values:
        return values[key]
    return load(Buf(names.setdefault(key, f"b{len(names)}"), tuple(x.shape), x.stride(), x.dtype, key))


def _eager(call: Call) -> Step:
    given = _tensors((call.args, call.kwargs))

    def run(values: list[Any]) -> list[T]:
        rest = iter(values[1:])
        args, kwargs = tree_map(lambda x: next(rest) if isinstance(x, T) else x, (call.args, call.kwargs))
        return _tensors(call.func(*args, **kwargs))
    return Step(run, [place(t) for t in given], [place(t) for t in _tensors(call.result)])


def _kernel(plan: Plan, like: T, value: Value) -> Step:
    """A kernel that makes ``value`` in memory laid out as the recorded result was."""
    name, shape, strides, dtype = f"k{len(plan.kernels)}", tuple(like.shape), like.stride(), like.dtype
    plan.kernels.append(emit(name, Buf("out", shape, strides, dtype), value))

    def run(values: list[Any]) -> list[T]:
        library, *given = values
        out = torch.empty_strided(shape, strides, dtype=dtype)
        getattr(library, name)(*(ctypes.c_void_p(t.data_ptr()) for t in (out, *given)))
        return [out]
    return Step(run, [b.key for b in value.reads], [place(like)])


# ------------------------------------------------------------------ 0.4 cached under guards
@exercise("0.4")
def compile(fn: Callable[..., Any]) -> Callable[..., list[T]]:
    """``fn``, compiled at its first call and again whenever the old code would not be valid. Returns the list of its outputs.

    Code is made for tensors of certain sizes, strides and dtypes: those are its guards.
    """
    # >>> 0.4
    cache: dict[tuple, Callable[..., list[T]]] = {}

    def compiled(*args: T) -> list[T]:
        key = tuple((tuple(a.shape), a.stride(), a.dtype) for a in args)
        if key not in cache:
            cache[key] = build(record(fn, args))
        return cache[key](*args)
    return compiled
    # <<< 0.4


# ------------------------------------------------------------------ 0.5 a backward
@exercise("0.5")
def joint(fn: Callable[..., T], args: Sequence[T]) -> Program:
    """Record ``fn`` and its gradients as one program: inputs ``(*args, tangent)``, outputs ``(result, *gradients)`` in the order of ``args``.

    The tangent, the gradient that comes from above, is an input; autograd itself runs under the recorder.
    """
    # >>> 0.5
    leaves = [a.detach().requires_grad_() for a in args]
    recorder = Recorder()
    with recorder:
        out = fn(*leaves)
    tangent = torch.ones_like(out)
    with recorder:
        grads = torch.autograd.grad(out, leaves, tangent)
    return Program(recorder.calls, [*leaves, tangent], [out.detach(), *grads])
    # <<< 0.5


def train_step(fn: Callable[..., T], args: Sequence[T]) -> Callable[..., list[T]]:
    """``run(*args, tangent) -> [result, *gradients]``, compiled for tensors like ``args``."""
    return build(joint(fn, args))


def main() -> None:
    """Show each stage for one small function."""
    def fn(x: T, w: T) -> T:
        return torch.sigmoid(x @ w * 2 + 1) * x
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    program = record(fn, [x, w])
    print("recorded: ", ", ".join(str(call.func) for call in program.calls))
    run = build(program)
    print("kernels:  ", len(run.plan.kernels), "instead of", len(build(program, fuse=False).plan.kernels))  # type: ignore[attr-defined]
    print(run.plan.kernels[0])  # type: ignore[attr-defined]
    print("largest error:", (run(x, w)[0] - fn(x, w)).abs().max().item())
    out, *grads = train_step(fn, [x, w])(x, w, torch.ones(64, 64))
    print("gradients:    ", [tuple(g.shape) for g in grads])


if __name__ == "__main__":
    main()
