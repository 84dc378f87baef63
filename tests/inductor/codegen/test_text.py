"""Golden text of generated kernels (canonical names), and that kernels of equal structure are written once.

``MINIPT2_GOLDEN=1 pytest tests/inductor/codegen/test_text.py`` writes the files anew.
"""

import pytest
import torch

from minipt2 import prims as P
from minipt2.inductor.codegen.c_openmp import generate
from minipt2.inductor.codegen.c_openmp_ops import C, cast, literal
from minipt2.inductor.codegen.c_openmp_reduce import identity, reduce
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import schedule
from tests.inductor.codegen.written import check_golden
from tests.inductor.programs import graph_of
from tests.inductor.scheduler.test_fusion import layer_norm, softmax

A, V = torch.zeros(64, 128), torch.zeros(128)
PROGRAMS = {
    "bias_relu": (lambda u, v: P.relu(P.add(u, P.broadcast_in_dim(v, u.shape, [1]))), A, V),
    "softmax": (softmax, A),
    "layer_norm": (layer_norm, A, V),
    "column_sum": (lambda u: P.sum(u, [0]), A),
    "transpose": (lambda u, v: P.add(P.permute(u, [1, 0]), v), A, torch.zeros(128, 64)),
}


def functions(fn, *tensors):
    text = generate(schedule(lower(graph_of(fn, *tensors)))).text
    return text[text.index("// "):]


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name):
    check_golden(name, functions(*PROGRAMS[name]), "c")


def test_equal_kernels_are_written_once():
    def layers(u, w):
        for _ in range(3):
            u = P.mm(P.relu(P.add(u, 1.0)), w)
        return u
    source = generate(schedule(lower(graph_of(layers, torch.zeros(32, 32), torch.zeros(32, 32)))))
    assert len(source.kernels) == 3 and source.text.count("void k") == 2  # the first keeps its operand, the others overwrite theirs
    assert len({tuple(k.args) for k in source.kernels}) == 3


def test_only_what_is_used_is_in_the_file():
    text = generate(schedule(lower(graph_of(lambda u: P.relu(u), A)))).text
    assert "mp_" not in text and "sinf" not in text and "#include <math.h>" not in text


def test_safe_idioms():
    c = C(torch.float32)
    assert "fmax" not in c.op("maximum", "a", "b") and "a != a" in c.op("maximum", "a", "b")
    assert c.op("relu", "x") == "(x < 0 ? 0 : x)"
    assert C(torch.int32).op("add", "a", "b") == "(int32_t)((uint32_t)a + (uint32_t)b)"
    with pytest.raises(KeyError):
        c.op("no_such_op", "a")


def test_literals():
    assert literal(float("nan"), torch.float32) == '__builtin_nanf("")' and literal(float("-inf"), torch.float64) == "-__builtin_inf()"
    assert literal(-2**63, torch.int64) == "(-9223372036854775807LL - 1)" and literal(-0.0, torch.float32) == "-0.0f"
    assert literal(0.1, torch.bfloat16) == literal(0.1, torch.float32) == "0.10000000149011612f"
    assert cast("x", torch.float32, torch.bfloat16) == "bf16_load(bf16_store(x))" and cast("x", torch.float32, torch.bool) == "(x != 0)"


def test_reduce_text():
    assert identity("max", torch.float32) == "-__builtin_inff()" and identity("min", torch.int32) == "2147483647"
    text = reduce("sum", torch.float32, "in0[i]", "n")
    assert "reduction(+:acc_part)" in text and "const float acc = acc_part;" in text
    assert "_nan" in reduce("max", torch.float32, "in0[i]", "n")
