"""However torch's precision of float32 is set, and whatever is asked about it afterwards."""
import subprocess
import sys

import pytest

PROGRAM = """
import warnings
import torch
import minipt2
from minipt2.inductor.precision import convolutions_in_tf32, precisions, products_in_tf32
warnings.simplefilter("error")
before = precisions()
{set}
assert (products_in_tf32(), convolutions_in_tf32()) == {told}
assert (precisions() != before) == {other}
x = torch.randn(8, 8)
torch.testing.assert_close(minipt2.compile(lambda x: torch.sin(x @ x), fullgraph=True)(x), torch.sin(x @ x))
"""
WAYS = {
    "": (False, True),
    "torch.set_float32_matmul_precision('high'); torch.backends.cudnn.allow_tf32 = False": (True, False),
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": (True, True),
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'": (False, False),
    "torch.backends.fp32_precision = 'ieee'": (False, False),
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'": (False, True),
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.removeprefix("torch.") or "as it is")
def test_every_way_to_set_it_is_seen_and_nothing_breaks(way):
    """Once it was set by ``fp32_precision``, the older questions raise."""
    program = PROGRAM.format(set=way, told=WAYS[way], other=bool(way))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
