"""``python -m minipt2.bench``: eager, minipt2 and a peer side by side on the sample models.

In: names of models and phases. Out: a table, JSON on request. Called by users and ``make demo``. Upstream: ``benchmarks/dynamo``.
"""
