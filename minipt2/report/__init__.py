"""What the compiler did, for people: ``explain``, logs, and pages of the site.

In: artifacts announced through ``minipt2.trace``. Out: an object to print, log records. Called by users; upstream: ``torch._dynamo.explain``
and ``torch._logging``.
"""
from .explain import Explanation, explain
from .logs import LOGS, set_logs

__all__ = ["LOGS", "Explanation", "explain", "set_logs"]
