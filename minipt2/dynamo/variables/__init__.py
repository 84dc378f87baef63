"""What the symbolic interpreter knows about a value, a file per kind.

In: real values with their sources (``builder.wrap``), constants, results of graph nodes. Out: ``Variable``s that answer the
interpreter's questions (attributes, items, calls, operators, truth), adding graph nodes and guards as they do, and that can be
rebuilt by emitted code. Called by the translator and its opcode handlers. ``base`` is the protocol. A value by kind: ``constant``,
``tensor``, ``functions``, ``lists``, ``dicts``, ``sets``, ``iterators``, ``classes`` and ``construct``, ``user_objects``, ``nn_module``,
``torch_functions``, ``context``, ``exceptions``, ``misc``; behaviour of builtins and libraries in ``operators``, ``builtin``,
``builtin_functions``, ``itertools_functions``, ``library_functions``. Upstream: ``torch/_dynamo/variables``.
"""
from . import builder

__all__ = ["builder"]
