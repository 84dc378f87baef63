"""What the compiler did, for people: ``explain``.

In: artifacts announced through ``minipt2.trace``. Out: an object to print. Called by users; upstream: ``torch._dynamo.explain``.
"""
from .explain import Explanation, explain

__all__ = ["Explanation", "explain"]
