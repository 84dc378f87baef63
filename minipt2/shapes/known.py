"""Questions about sizes that never become guards: what shape rules ask where either answer is right, or where they must not decide.

Sizes are ints, or ``torch.SymInt`` over our nodes. Plain ``==`` on a SymInt decides, and what it decided is guarded; ``same`` and
``known`` only say what follows from what is known already. Upstream: ``statically_known_true`` and ``guard_or_false``.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Sequence

import torch

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_WRAP: dict[type, Callable] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}


def plain(node: Any) -> Any:
    """A node as Python code sees it: a plain number where it is known to be one, else a SymInt, SymFloat or SymBool."""
    if not hasattr(node, "env"):  # of C++, for a constant
        return node.maybe_as_int()
    if node.is_constant():
        return node.hint
    return _WRAP[node.pytype](node)


def symbols_in(numbers: Iterable[Any]) -> list[Any]:
    """The symbols that occur in symbolic numbers, each once, as SymInts and SymFloats."""
    found = {s: n.node.env for n in numbers for s in sorted(n.node.env.replace(n.node.expr).free_symbols, key=lambda s: s.name)}
    return [plain(env.node(s, int if s.is_integer else float)) for s, env in found.items()]


def shown_by(result: Any) -> list[tuple[int, int | None, Any]]:
    """What a result tells of symbols: (which of its leaves, dimension or None for the number itself, the expression)."""
    out = []
    for k, leaf in enumerate(torch.utils._pytree.tree_leaves(result)):
        numbers = enumerate(leaf.shape) if isinstance(leaf, torch.Tensor) else [(None, leaf)]
        out += [(k, d, n.node.expr) for d, n in numbers if isinstance(n, SYMBOLIC)]
    return out


def known(fact: Any) -> bool:
    """Whether ``fact``, a bool or SymBool, is known to hold."""
    return fact.node.statically_known_true() if isinstance(fact, torch.SymBool) else bool(fact)


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be equal."""
    return a is b or known(a == b)


def same_all(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are known to be equal."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    for n, m in zip(a, b):
        if n is not m and not same(n, m):
            return False
    return True


def equal_all(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal. Decides: what follows from nothing becomes a guard."""
    return same_all(a, b) or len(a) == len(b) and all([same(n, m) or bool(n == m) for n, m in zip(a, b)])


def must_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are equal, where the program is wrong if not: of those that depend on data it is believed, and checked when it runs."""
    if same(a, b):
        return True
    fact = a == b
    return fact.node.expect_true() if isinstance(fact, torch.SymBool) else fact


def at_least(a: Any, b: Any) -> bool:
    """Whether ``a >= b``, for putting things in order: decides only where neither order is known."""
    return known(a >= b) or not known(a <= b) and bool(a >= b)


def symbolic(*shapes: Sequence[Any]) -> bool:
    """Whether some size in ``shapes`` is not a known number."""
    for shape in shapes:
        for n in shape:
            if n.__class__ is not int and isinstance(n, SYMBOLIC):
                return True
    return False


def key(value: Any) -> Any:
    """A hashable stand-in for a size or number, one per value: SymInts have no hash."""
    return value.node.expr if isinstance(value, SYMBOLIC) else value


def settled(sizes: Sequence[Any]) -> list[Any]:
    """``sizes`` with those that have become known as plain numbers."""
    return [n.node.hint if isinstance(n, SYMBOLIC) and n.node.is_constant() else n for n in sizes]


def positive(n: Any) -> Any:
    """``n``, or 1 where that is 0: what a size counts for in strides."""
    if isinstance(n, torch.SymInt):
        return n if known(n >= 1) else torch.sym_max(n, 1)
    return max(n, 1)


def likely(shape: Sequence[Any]) -> list[Any]:
    """The sizes at hand, for prices and other heuristics that decide nothing of what is computed; of those nobody knows a small one."""
    return [(n.node.hint if n.node.hint is not None else _UNKNOWN) if isinstance(n, SYMBOLIC) else n for n in shape]


_UNKNOWN = 64


def memo(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``lru_cache`` for functions of tuples of sizes (nested ones too); what is found for symbols is kept as long as their environment."""
    cached = functools.lru_cache(8192)(fn)

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        try:
            return cached(*args)
        except TypeError:  # a SymInt among the arguments
            env = _env(args)
            if env is None:
                raise
        table, at = env.memo.setdefault(fn, {}), _keys(args)
        if at not in table:
            table[at] = fn(*args)
        return table[at]

    return call


def _env(value: Any) -> Any:
    if isinstance(value, SYMBOLIC):
        return value.node.env
    return next((env for v in value if (env := _env(v)) is not None), None) if isinstance(value, (tuple, list)) else None


def _keys(value: Any) -> Any:
    return tuple([_keys(v) for v in value]) if isinstance(value, (tuple, list)) else key(value)
