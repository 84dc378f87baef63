"""Programs on symbolic sizes for tests: a function of prims recorded once, run by the interpreter and as C at other sizes."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import torch
from torch import fx

from minipt2.inductor import compile_graph
from minipt2.inductor.ir.interpret import run
from minipt2.inductor.ir.verify import verify
from minipt2.inductor.lowering import lower
from minipt2.prims.core import Recorder, TensorMeta
from minipt2.prims.meta import contiguous_strides
from minipt2.shapes import ShapeEnv

from .programs import TOLERANCE


class Named:
    """A source of a size."""

    def __init__(self, text: str):
        self.text = text

    def name(self) -> str:
        return self.text


def graph_of(fn: Callable, shapes: Sequence[tuple], hints: Mapping[str, Any], dtypes: Sequence[torch.dtype] | None = None) -> fx.GraphModule:
    """The graph that ``fn`` records on inputs of ``shapes`` (names are symbols; a bare name instead of a shape is a number of the call)."""
    env, recorder = ShapeEnv(), Recorder()
    symbols: dict[str, Any] = {}
    for name, value in hints.items():
        symbols[name] = env.symbol(value, Named(name), marked=True) if name[0] == "s" else env.number(value, Named(name))
    values = []
    with recorder:
        for symbol in symbols.values():
            recorder.graph.placeholder(str(symbol.node.expr)).meta["val"] = symbol
        for k, shape in enumerate(shapes):
            if isinstance(shape, str):
                values.append(symbols[shape])
                continue
            sizes = tuple(symbols.get(n, n) for n in shape)
            dtype = torch.float32 if dtypes is None else dtypes[k]
            meta = TensorMeta(sizes, dtype, torch.device("cpu"), contiguous_strides(sizes))
            values.append(recorder.bind(recorder.graph.placeholder(f"x{k}"), meta))
        made = fn(*values)
        recorder.graph.output(tuple(getattr(v, "node", v) if isinstance(v, TensorMeta) else v for v in (made if isinstance(made, tuple) else (made,))))
    assert not env.recorded, env.recorded
    return fx.GraphModule({}, recorder.graph)


def inputs(shapes: Sequence[tuple], values: Mapping[str, Any], dtypes: Sequence[torch.dtype] | None = None) -> list[Any]:
    torch.manual_seed(0)
    out = []
    for k, shape in enumerate(shapes):
        if isinstance(shape, str):
            out.append(values[shape])
            continue
        dtype = torch.float32 if dtypes is None else dtypes[k]
        sizes = [values.get(n, n) for n in shape]
        out.append(torch.randn(sizes).to(dtype) if dtype.is_floating_point else torch.randint(0, 3, sizes, dtype=dtype))
    return out


def check(fn: Callable, shapes: Sequence[tuple], hints: Mapping[str, Any], *others: Mapping[str, Any],
          dtypes: Sequence[torch.dtype] | None = None, interpreted: bool = True) -> Any:
    """Record ``fn`` at ``hints``, then compare the interpreter and compiled code with eager there and at ``others``."""
    gm = graph_of(fn, shapes, hints, dtypes)
    program = lower(gm)
    verify(program)
    compiled = compile_graph(gm, None, inference=False)
    for values in (hints, *others):
        args = inputs(shapes, values, dtypes)
        expected = fn(*args)
        expected = expected if isinstance(expected, tuple) else (expected,)
        given = [*values.values(), *[a for a in args if isinstance(a, torch.Tensor)]]
        for found in ([run(program, given)] if interpreted else []) + [compiled(list(given))]:
            assert len(found) == len(expected)
            for e, f in zip(expected, found):
                if not isinstance(e, torch.Tensor):
                    assert e == f and type(e) is type(f)
                    continue
                tolerance = TOLERANCE.get(e.dtype, 1e-5)
                assert f.dtype == e.dtype
                torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{dict(values)}: {m}")
    return program
