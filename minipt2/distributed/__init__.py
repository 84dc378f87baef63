"""Training on several ranks: what is sent together, where a graph is cut for it, and how early a link starts.

In: captured graphs (``in_buckets``, around a backend), graphs of one pass (``gather_ahead``), models (``shard``). Out: the same computation,
with communication that overlaps with it. Called by ``api`` and ``backends``. ``finish`` says when a serial link has sent buckets.
Upstream: ``torch.nn.parallel.DistributedDataParallel`` (``_compute_bucket_assignment_by_size``), ``DDPOptimizer``, ``torch.distributed.fsdp``.
"""
from .buckets import FIRST, assign
from .ddp import bucket_cuts, in_buckets
from .fsdp import gather_ahead, shard
from .timeline import Sent, finish

__all__ = ["FIRST", "Sent", "assign", "bucket_cuts", "finish", "gather_ahead", "in_buckets", "shard"]

