"""Training on several ranks: which gradients travel together, and when the link is done.

In: parameters in the order in which their gradients are ready. Out: buckets of one dtype and device each, and the times at which a serial
link has sent them. Upstream: ``torch.nn.parallel.DistributedDataParallel`` (``_compute_bucket_assignment_by_size``) and ``DDPOptimizer``.
"""
from .buckets import FIRST, assign
from .timeline import Sent, finish

__all__ = ["FIRST", "Sent", "assign", "finish"]
