"""The meaning of a ``Program``, executed slowly on torch tensors: the oracle for lowering, scheduling and code generation.

Every loop body runs once over its whole index grid: a loop variable is an ``arange`` along its own axis, a value a tensor that
broadcasts over the grid. Loads and stores outside a mask are checked to lie inside their buffer.
"""
from __future__ import annotations

import operator
from dataclasses import fields, replace
from math import prod
from typing import Any, Callable, Mapping, Sequence

import sympy
import torch

from ...prims.elementwise import WRONG_VALUE
from ...prims.random import philox
from ...shapes import FloorDiv, Mod, value
from .body import Block, Instr, LoopBody, Ref
from .buffers import Buffer, Computed, Extern, Layout, Output, Program, TensorRef

LOW = (torch.bfloat16, torch.float16)
Memory = dict[str, torch.Tensor]


def run(program: Program, args: Sequence[Any]) -> list[Any]:
    """Outputs of ``program`` on ``args`` (in input order; inputs it mutates are written in place)."""
    if program.symbols:
        program = at(program, {s: args[position] for s, position in program.symbols.items()})
    memory: Memory = {i.name: flat(args[i.position]) for i in program.inputs}
    memory.update({c.name: flat(c.value) for c in program.constants})
    layouts = {name: b.layout for name, b in program.by_name().items()}
    for buffer in program.buffers:
        if isinstance(buffer, Computed):
            for name in buffer.writes() - memory.keys():
                memory[name] = allocate(layouts[name])
            run_body(buffer.body, memory)
        else:
            run_extern(buffer, memory, layouts)
    return [_resolve(o.value, memory, layouts) if o.ref is None else view(memory, o.ref, layouts) for o in program.outputs]


def at(program: Program, values: Mapping[sympy.Symbol, Any]) -> Program:
    """``program`` with numbers for the symbols that are its arguments, and so for all others."""
    known = dict(values)
    for symbol, e in program.derived.items():
        known[symbol] = value(e, known)
    numbers = {s: sympy.sympify(v) for s, v in known.items()}

    def put(x: Any) -> Any:
        """Numbers for symbols in whatever a program is made of."""
        if isinstance(x, sympy.Basic):
            return x.xreplace(numbers)
        if isinstance(x, LoopBody):
            body = x.map_exprs(put)
            return replace(body, sizes=put(body.sizes), rsizes=put(body.rsizes))
        if isinstance(x, (Layout, Buffer, TensorRef, Output)):
            return replace(x, **{f.name: put(getattr(x, f.name)) for f in fields(x)})
        if isinstance(x, (tuple, list)) and not hasattr(x, "_fields"):
            return type(x)(map(put, x))
        return {k: put(v) for k, v in x.items()} if isinstance(x, dict) else x

    return replace(program, inputs=put(program.inputs), buffers=put(program.buffers), outputs=put(program.outputs), symbols={}, derived={})


def flat(t: torch.Tensor) -> torch.Tensor:
    """The memory of ``t``, from its first element on, as one dimension."""
    return t.as_strided((span(t.shape, t.stride()),), (1,), t.storage_offset())


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of memory that a tensor of these sizes and strides reaches over."""
    return 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides))


def allocate(layout: Layout) -> torch.Tensor:
    """Memory for ``layout``, filled with a pattern that shows when it is read before it is written."""
    memory = torch.empty(span(*_numbers(layout)) + int(layout.offset), dtype=layout.dtype, device=layout.device)
    return memory.fill_(float("nan") if layout.dtype.is_floating_point else True if layout.dtype is torch.bool else 113)


def view(memory: Memory, ref: TensorRef, layouts: Mapping[str, Layout]) -> torch.Tensor:
    """The tensor that ``ref`` means."""
    layout = ref.layout or layouts[ref.buffer]
    flat_memory = memory[ref.buffer]
    return flat_memory.as_strided(*_numbers(layout), flat_memory.storage_offset() + int(layout.offset))


def _numbers(layout: Layout) -> tuple[list[int], list[int]]:
    return [int(n) for n in layout.sizes], [int(s) for s in layout.strides]


def run_extern(extern: Extern, memory: Memory, layouts: Mapping[str, Layout]) -> None:
    """Call the kernel; its results must lie in memory as their buffers' layouts say."""
    if extern.target == "alloc":
        memory[extern.name] = allocate(extern.layout)
        return
    args, kwargs = _resolve(extern.args, memory, layouts), _resolve(extern.kwargs, memory, layouts)
    if extern.out_variant is not None:
        memory[extern.name] = allocate(extern.layout)
        extern.out_variant(*args, **kwargs, out=view(memory, TensorRef(extern.name), layouts))
        return
    result = extern.target(*args, **kwargs)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    for buffer, tensor in zip(extern.outputs or [extern], results):
        if buffer is not None and isinstance(tensor, torch.Tensor):
            sizes, strides = _numbers(buffer.layout)
            assert [*tensor.shape] == sizes and tensor.dtype == buffer.layout.dtype, (buffer, tensor.shape, tensor.dtype)
            assert all(n < 2 or a == b for n, a, b in zip(sizes, tensor.stride(), strides)), (buffer, tensor.stride())
            memory[buffer.name] = flat(tensor)


def _resolve(tree: Any, memory: Memory, layouts: Mapping[str, Layout]) -> Any:
    if isinstance(tree, TensorRef):
        return view(memory, tree, layouts)
    if isinstance(tree, dict):
        return {k: _resolve(v, memory, layouts) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_resolve(v, memory, layouts) for v in tree)
    return value(tree, {}) if isinstance(tree, sympy.Expr) else tree


def run_body(body: LoopBody, memory: Memory) -> None:
    """Run one loop nest on flat memories (``flat``); fused bodies with several stores and reductions work too."""
    _Grid(body, memory).run(body.instrs, None)


class _Grid:
    def __init__(self, body: LoopBody, memory: Memory):
        self.memory, self.rank, self.outer = memory, len(body.vars) + len(body.rvars), len(body.vars)
        self.shape = [int(n) for n in body.sizes + body.rsizes]
        self.symbols: dict[sympy.Symbol, torch.Tensor] = {}
        for axis, (v, n) in enumerate(zip(body.vars + body.rvars, self.shape)):
            self.symbols[v] = torch.arange(n).reshape([-1 if k == axis else 1 for k in range(self.rank)])
        self.values: dict[int, Any] = {}
        self.dtypes = {i.id: i.dtype for i in body.walk()}

    def run(self, instrs: Sequence[Instr], mask: torch.Tensor | None) -> None:
        for instr in instrs:
            self.values[instr.id] = self.step(instr, mask)

    def get(self, ref: Ref) -> torch.Tensor:
        value = self.values[ref.id]
        return value[ref.part] if isinstance(value, tuple) else value

    def step(self, i: Instr, mask: torch.Tensor | None) -> Any:
        special = getattr(self, f"_{i.op}", None)
        if special is not None:
            return special(i, mask)
        if i.op == "where":
            cond, a, b = (self.get(r) for r in i.args)
            return torch.where(cond, a, b)
        return _compute(i.op, *(self.get(r) for r in i.args))

    def position(self, name: str, index: sympy.Expr, mask: torch.Tensor | None) -> torch.Tensor:
        where, size = self.index(index), len(self.memory[name])
        inside = (where >= 0) & (where < size)
        if not bool((inside if mask is None else inside | ~mask).all()):
            raise IndexError(f"{name}[{index}] leaves its {size} elements")
        return where.clamp(0, max(size - 1, 0))

    def index(self, e: sympy.Expr) -> torch.Tensor:
        value = torch.as_tensor(evaluate(e, self.symbols))
        return value.reshape([1] * self.rank) if value.ndim < self.rank else value

    def _load(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        where = self.position(i.args[0], i.args[1], mask)
        if not len(self.memory[i.args[0]]):  # only reachable under a mask that never holds
            return torch.zeros(where.shape, dtype=held(i.dtype))
        return self.memory[i.args[0]][where].to(held(i.dtype))

    def _store(self, i: Instr, mask: torch.Tensor | None) -> None:
        name, index, ref, mode = i.args
        value, target = self.get(ref), self.memory[name]
        if 0 in self.shape[: self.outer]:
            return
        where = self.position(name, index, mask)
        shape = torch.broadcast_shapes(where.shape, value.shape, self.shape[: self.outer] + [1] * (self.rank - self.outer))
        where, value = where.broadcast_to(shape).reshape(-1), value.broadcast_to(shape).reshape(-1).to(target.dtype)
        if mode == "atomic_add":
            target.index_put_((where,), value, accumulate=True)
        else:
            target[where] = value

    def _reduce(self, i: Instr, mask: torch.Tensor | None) -> Any:
        kind, ref = i.args
        x = self.get(ref).broadcast_to(self.shape)
        flat_x = x.reshape(*self.shape[: self.outer], prod(self.shape[self.outer:]))
        shape = self.shape[: self.outer] + [1] * (self.rank - self.outer)
        if kind == "welford":
            mean = flat_x.mean(-1, keepdim=True)
            return mean.reshape(shape), ((flat_x - mean) ** 2).sum(-1).reshape(shape)
        return _REDUCE[kind](flat_x, held(i.dtype)).reshape(shape)

    def _constant(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        return torch.tensor(i.args[0], dtype=held(i.dtype)).reshape([1] * self.rank)

    def _scalar(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        return torch.tensor(value(i.args[0], {}), dtype=i.dtype).reshape([1] * self.rank)

    def _index_expr(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        return self.index(i.args[0]).to(i.dtype).to(held(i.dtype))

    def _indirect(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        ref, symbol, size, wraps = i.args
        value, n = self.get(ref).to(torch.int64), int(size)
        inside = (value >= (-n if wraps else 0)) & (value < n)
        if not bool((inside if mask is None else inside | ~mask).all()):
            raise IndexError(f"index out of range for a dimension of size {n}")
        self.symbols[symbol] = torch.where(value < 0, value + n, value)
        return self.symbols[symbol]

    def _valid(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        x, ok = map(self.get, i.args)
        if not bool((ok if mask is None else ok | ~mask).all()):
            raise RuntimeError(WRONG_VALUE)
        return x

    def _random_bits(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        seed, position, draw = i.args
        return (philox(self.get(seed), self.get(position).to(torch.int64), draw) >> 1).to(torch.int32)

    def _masked(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        ref, block, other = i.args
        assert isinstance(block, Block)
        inner = self.get(ref) if mask is None else self.get(ref) & mask
        self.run(block.instrs, inner)
        result = self.get(block.result)
        return torch.where(self.get(ref), result, torch.tensor(other, dtype=i.dtype).to(result.dtype))

    def _to_dtype(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        return self.get(i.args[0]).to(i.dtype).to(held(i.dtype))

    def _bitcast(self, i: Instr, mask: torch.Tensor | None) -> torch.Tensor:
        return self.get(i.args[0]).to(self.dtypes[i.args[0].id]).view(i.dtype).to(held(i.dtype))


def held(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a value of logical ``dtype`` is computed."""
    return torch.float32 if dtype in LOW else dtype


def evaluate(e: sympy.Expr, symbols: Mapping[sympy.Symbol, Any]) -> Any:
    """The value of an index expression where symbols are integers or integer tensors."""
    if e.is_Integer:
        return int(e)
    if e.is_Symbol:
        return symbols[e]
    args = [evaluate(a, symbols) for a in e.args]
    if e.is_Add or e.is_Mul:
        total = args[0]
        for a in args[1:]:
            total = total + a if e.is_Add else total * a
        return total
    if isinstance(e, (FloorDiv, Mod)):
        return args[0] // args[1] if isinstance(e, FloorDiv) else args[0] % args[1]
    if e.is_Pow:
        return args[0] ** args[1]
    raise NotImplementedError(f"index expression {e}")


def _first(x: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """Position of the first element equal to ``best``, or of the first NaN."""
    hit = (x == best) | x.isnan() if x.is_floating_point() else x == best
    if x.is_floating_point() and bool(x.isnan().any()):
        hit = torch.where(x.isnan().any(-1, keepdim=True), x.isnan(), hit)
    return hit.to(torch.uint8).argmax(-1)


def _extreme(pick: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: pick(x.to(torch.uint8), -1, keepdim=True).to(x.dtype) if x.dtype is torch.bool else pick(x, -1, keepdim=True)


_max, _min = _extreme(torch.amax), _extreme(torch.amin)
_REDUCE: dict[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "sum": lambda x, dtype: x.sum(-1, dtype=dtype),
    "prod": lambda x, dtype: x.prod(-1, dtype=dtype),
    "max": lambda x, dtype: _max(x),
    "min": lambda x, dtype: _min(x),
    "any": lambda x, dtype: x.any(-1),
    "all": lambda x, dtype: x.all(-1),
    "argmax": lambda x, dtype: _first(x, _max(x)),
    "argmin": lambda x, dtype: _first(x, _min(x)),
}
_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": torch.floor_divide, "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "shift_left": operator.lshift, "shift_right": operator.rshift,
}


def _compute(op: str, *args: torch.Tensor) -> torch.Tensor:
    fn = _BINARY.get(op) or getattr(torch, op)
    return fn(*args)
