"""The sample models on NumPy, every prim against its eager reference, and what is said when a rule is missing."""
import operator
from pathlib import Path

import numpy as np
import pytest
import torch

import minipt2
from minipt2 import models, prims
from minipt2.backends import numpy_backend, numpy_conv, numpy_rules
from minipt2.errors import Unsupported
from minipt2.prims.core import Prim

from ..compare import check, check_module
from ..prims.calls import calls
from ..prims.tracing import trace


CASES = [(name, "train") for name in models.NAMES if name != "resnet50"] + [(name, "infer") for name in ("resnet50", "gpt2", "vit")]


@pytest.mark.parametrize("name,phase", CASES)
def test_sample_models(name, phase, fresh):
    module = models.build(name, "small").train(phase == "train")
    check_module(module, *models.inputs(name, "small"), grad=phase == "train", calls=1, tolerance=1e-4, backend="numpy")
    counted = minipt2.counters()
    assert counted["graphs"] == 1 and counted["breaks"] == 0 and "aot_fallbacks" not in counted
    assert counted.get("numpy_random", 0) == (1 if (name, phase) == ("mobilenetv2", "train") else 0)


def test_small():
    files = (numpy_backend, numpy_rules, numpy_conv)
    assert sum(bool(line.strip()) for f in files for line in Path(f.__file__).read_text().splitlines()) < 400


def graph_of(prim: Prim, args: tuple) -> tuple:
    """A graph of one call, the tensors it takes, and what eager makes of them."""
    tensors = [a for a in torch.utils._pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
    graph = torch.fx.Graph()
    places = {}
    for i, t in enumerate(tensors):
        places[id(t)] = graph.placeholder(f"x{i}")
        places[id(t)].meta["val"] = prims.TensorMeta.of(t)
    node = graph.call_function(prim, torch.utils._pytree.tree_map(lambda a: places.get(id(a), a), args))
    eager = prim(*args)
    several = isinstance(eager, tuple)
    outs = [e if e is None else prims.TensorMeta.of(e) for e in eager] if several else prims.TensorMeta.of(eager)
    node.meta["val"] = outs
    results = [node]
    if several:
        results = [graph.call_function(operator.getitem, (node, i)) for i, e in enumerate(eager) if e is not None]
        for r in results:
            r.meta["val"] = outs[r.args[1]]
    graph.output(tuple(results))
    return torch.fx.GraphModule({}, graph), tensors, [e for e in eager if e is not None] if several else [eager]


@pytest.mark.parametrize("name", sorted(numpy_rules.rules))
def test_rules_against_references(name):
    tried = 0
    for args in calls(name):
        gm, tensors, eager = graph_of(prims.TABLE[name], args)
        before = [t.clone() for t in tensors]
        for mine, theirs in zip(numpy_backend.lower(gm, tensors)(list(tensors)), eager, strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True, check_stride=True)
            assert mine.data_ptr() not in [t.data_ptr() for t in tensors] or not mine.numel()
        assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(before, tensors))
        tried += 1
    assert tried


def test_no_rules_for_what_is_no_prim():
    assert set(numpy_rules.rules) <= set(prims.TABLE)


def test_a_view_of_an_input_is_returned_as_a_copy():
    gm, tensors, _ = graph_of(prims.permute, (torch.ones(2, 3), (1, 0)))
    out, = numpy_backend.lower(gm, tensors)(list(tensors))
    out.zero_()
    assert tensors[0].sum() == 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_rounds_every_result(dtype):
    check(lambda x, w: (torch.softmax(x @ w, -1) * 3 + x.sum()).to(torch.float32), torch.randn(6, 5).to(dtype).requires_grad_(),
          torch.randn(5, 5).to(dtype).requires_grad_(), grad=True, tolerance=4e-2, backend="numpy")


def test_bfloat16_rounding_is_eagers():
    x = torch.cat([torch.randn(4000) * 100, torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 3.39e38])])
    ours = numpy_backend._rounded(x.numpy())
    torch.testing.assert_close(torch.from_numpy(ours), x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


def test_random_numbers_are_eagers(fresh):
    check(lambda x: torch.nn.functional.dropout(x, 0.3) * torch.rand(5), torch.randn(4, 5, requires_grad=True), grad=True, backend="numpy")
    assert minipt2.counters()["numpy_random"] > 0


def test_everything_unsupported_is_listed():
    gm, _ = trace(lambda x: torch.linalg.eigvals(x).real + torch.nonzero(x).sum(), torch.randn(3, 3))
    with pytest.raises(Unsupported, match="(?s)linalg_eig.*nonzero.*What to do"):
        numpy_backend.lower(prims.expand(gm, prims.complete), [])


def test_integer_powers_and_division():
    a, b = np.array([-3, -1, 0, 1, 2]), np.array([-2, -3, 4, -1, 3])
    assert numpy_rules.pow_(a, b).tolist() == [0, -1, 0, 1, 8]
    assert numpy_rules.truncdiv(np.array([-7, 7, -6]), 2).tolist() == [-3, 3, -3]
