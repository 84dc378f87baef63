"""What ``torch.optim`` asks while a step is captured. Upstream: ``torch/_dynamo/variables/optimizer.py``."""
from __future__ import annotations

from torch.optim.optimizer import _get_value

from .base import Variable
from .tensor import TensorVariable
from .torch_functions import handles


@handles(_get_value)
def count_of_steps(tx, x) -> Variable:
    """Eager reads the count, a float32 tensor, as a Python number: what comes of it (bias corrections) is computed in double."""
    return tx.output.call(tx, "double", [x], {}, op="call_method") if isinstance(x, TensorVariable) else x
