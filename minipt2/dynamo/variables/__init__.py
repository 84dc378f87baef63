"""What the interpreter knows about a value: one file per kind, all with the protocol of ``base.Variable``.

In: real values with their sources (``builder.wrap``), results of graph nodes (``tensor.wrap_output``), constants. Out: variables that
the opcode handlers call, index and combine, and that push themselves again after a graph (``reconstruct``).
Called by the translator and ``opcodes/``. Upstream: ``torch/_dynamo/variables``.
"""
