"""What can be said of a student's file without running it: syntax, forbidden imports, missing or changed heads, an empty body."""
from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from .tasks import Task

FORBIDDEN = {
    "torch._dynamo": "minipt2.dynamo", "torch._functorch": "minipt2.aot_autograd", "torch._inductor": "minipt2.inductor",
    "torch._prims": "minipt2.prims", "torch._refs": "minipt2.prims", "torch._decomp": "minipt2.prims",
    "torch.fx.experimental": "torch.fx and minipt2.shapes", "functorch": "minipt2.aot_autograd", "torch.compile": "minipt2.compile",
}
"""What an answer may not lean on, and what to use instead: the course would end where PyTorch's own compiler begins."""


@dataclass(frozen=True)
class Problem:
    """Why the file cannot be checked; ``kind`` is one of ``verdict.EXIT_CODES``."""

    kind: str
    message: str


def read(path: Path) -> ast.Module | Problem:
    """The file's syntax tree, or what is wrong with it, with the line and a caret."""
    try:
        tree = ast.parse(path.read_text(), str(path))
        compile(tree, str(path), "exec")  # finds more: a return outside a function, a __future__ import too late
        return tree
    except SyntaxError as error:
        line = (error.text or "").rstrip("\n")
        caret = " " * max((error.offset or 1) - 1, 0) + "^"
        return Problem("syntax error", f"{path}:{error.lineno}: {error.msg}\n    {line}\n    {caret}")
    except OSError as error:
        return Problem("import error", f"{path} cannot be read: {error}")
    except ValueError as error:  # a null byte, or no UTF-8
        return Problem("syntax error", f"{path}: {error}")


def forbidden(tree: ast.Module, path: Path) -> Problem | None:
    """The first import or spelt-out use of a forbidden module."""
    for node in ast.walk(tree):
        for name in _names(node):
            for module, instead in FORBIDDEN.items():
                if name == module or name.startswith(module + "."):
                    return Problem("forbidden import", f"{path}:{node.lineno}: {name} may not be used in an answer; use {instead}")
    return None


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute):
        return [ast.unparse(node)]
    return []


def find(tree: ast.Module, target: str) -> ast.FunctionDef | None:
    """The function ``target`` ("f" or "Class.f") of ``tree``; of several of that name, the last."""
    nodes: list[ast.stmt] = tree.body
    *classes, name = target.split(".")
    for owner in classes:
        owners = [n for n in nodes if isinstance(n, ast.ClassDef) and n.name == owner]
        if not owners:
            return None
        nodes = owners[-1].body
    found = [n for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == name]
    return found[-1] if found else None  # type: ignore[return-value]


def parameters(node: ast.FunctionDef) -> str:
    """Names and defaults, without annotations."""
    args = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args  # type: ignore[attr-defined]
    for arg in ast.walk(args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    return ast.unparse(args)


def signature(tree: ast.Module, task: Task, path: Path) -> Problem | None:
    """A function of the exercise that is missing, or whose parameters are not the reference's."""
    reference = ast.parse(task.source)
    for target in task.target:
        wanted, given = find(reference, target), find(tree, target)
        if wanted is None:
            return Problem("import error", f"{task.folder / 'task.toml'}: no function {target} in {task.file}")
        if given is None:
            return Problem("import error", f"{path} defines no {target}; it must be ({parameters(wanted)})")
        if parameters(given) != parameters(wanted):
            return Problem("bad signature", f"{path}:{given.lineno}: {target} takes\n    ({parameters(given)})\nbut is called as\n    ({parameters(wanted)})")
    return None


def is_hollow(tree: ast.Module, task: Task) -> bool:
    """Whether nothing has been written yet: every function is its docstring alone (or ``pass``, or ``...``)."""
    return all((node := find(tree, target)) is not None and is_empty(node) for target in task.target)


def is_empty(node: ast.FunctionDef) -> bool:
    return all(isinstance(s, ast.Pass) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in node.body)


def examine(task: Task, path: Path) -> Problem | None:
    """The first problem of the student's file, if there is one; ``not started`` is one."""
    tree = read(path)
    if isinstance(tree, Problem):
        return tree
    problem = forbidden(tree, path) or signature(tree, task, path)
    if problem is None and is_hollow(tree, task):
        return Problem("not started", f"write the body of {', '.join(task.target)} in {path}")
    return problem
