"""Reference pages of the site, made from the registries while it is built: ``python -m minipt2.report.reference DIR`` writes them too.

``PAGES`` maps a path to the function that makes its text. Nothing here is kept in the repository, so that nothing can be out of date;
the pages that links from messages point at (break reasons, opcodes, prims) are, and tests compare them.
"""
from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, Callable, Iterable

from .. import backends
from ..api import MODES, OPTIONS
from ..config import Config
from ..inductor import ops as loop_ops
from ..inductor.lowering import lowerings
from ..prims import TABLE

PACKAGE = Path(__file__).parent.parent
ROOMS = ("dynamo", "dynamo/bytecode", "dynamo/variables", "aot_autograd", "prims", "shapes", "fake", "inductor", "inductor/ir",
         "inductor/lowering", "inductor/scheduler", "backends", "report", "models", "bench")


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Lines of a Markdown table."""
    header = list(header)
    return [_row(header), _row("---" for _ in header), *map(_row, rows)]


def _row(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |"


def page(title: str, intro: str, *parts: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", intro, "", *(line for part in parts for line in part)]) + "\n"


def code(text: Any) -> str:
    """Inline code; double backticks where the text has one."""
    text = str(text)
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def plain(doc: str | None) -> str:
    """A docstring's marks as Markdown's."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join((doc or "").split()))


def first_sentence(doc: str | None) -> str:
    return plain(re.split(r"(?<=[.;:])\s", " ".join((doc or "").split()) + " ")[0]).rstrip(":;")


def settings() -> str:
    """Every field of ``Config`` with its default, what it says, and how it is set."""
    said = _said_of_fields(Config)
    rows = [(code(f.name), code(repr(f.default)), said[f.name], code(f"MINIPT2_{f.name.upper()}"), "yes" if f.name in OPTIONS else "") for f in fields(Config)]
    return page("Settings", "`minipt2.config.NAME = value` sets one, `with minipt2.config.patch(NAME=value):` for a block, the environment variable from "
                "the start of a process (bools: `0`, `false`, `no`, `off` or nothing mean no). Those marked `options=` can be set for one compiled "
                "function: `minipt2.compile(f, options={\"fusion\": False})`.",
                table(["setting", "default", "what it does", "environment variable", "`options=`"], rows), [""],
                ["## Modes", "", "`mode=` takes " + ", ".join(map(code, MODES)) + "."], ["", "## Other environment variables", ""],
                table(["variable", "what it does"], [("`CC`", "C compiler, where the setting `cc` is empty"), ("`XDG_CACHE_HOME`", "where the cache folder lies"),
                                                     ("`OMP_NUM_THREADS`", "threads of the generated loops and of PyTorch's kernels")]))


def _said_of_fields(kind: type) -> dict[str, str]:
    """The string under each field of a class."""
    body = ast.parse(inspect.getsource(kind)).body[0].body
    said = {}
    for before, after in zip(body, body[1:]):
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            said[before.target.id] = plain(after.value.value)
    return said


def backend_page() -> str:
    rows = [(code(name), _where(fn := backends.lookup(name)), plain(inspect.getdoc(fn))) for name in backends.list_backends()]
    return page("Backends", "`minipt2.compile(model, backend=NAME)` takes one of these, or any function `(gm, example_inputs) -> callable`. "
                "[A backend of your own](../guides/backend.md) shows how one is written and installed.", table(["name", "in", "what it does"], rows))


def _where(obj: Any) -> str:
    obj = getattr(obj, "func", obj)
    try:
        return code(Path(inspect.getsourcefile(obj)).relative_to(PACKAGE.parent))
    except (TypeError, ValueError):
        return code(getattr(obj, "__module__", ""))


def lowering_page() -> str:
    rows = [(code(name), code(getattr(fn, "func", fn).__name__), _where(fn), first_sentence(TABLE[name].doc) if name in TABLE else "")
            for name, fn in sorted(lowerings.items())]
    missing = sorted(set(TABLE) - set(lowerings))
    return page("Lowerings", f"How inductor turns a prim into loops: {len(lowerings)} entries of one dict, `minipt2.inductor.lowering.lowerings`.",
                table(["prim", "function", "in", "the prim"], rows), ["", "## Library calls", "", "Prims without a lowering run as the library's kernel, or "
                "as their eager reference: " + ", ".join(map(code, missing)) + "."])


def loop_op_page() -> str:
    def signature(name: str) -> str:
        return re.sub(r"self, |sympy\.|torch\.|'", "", f"{name}{inspect.signature(getattr(loop_ops.Ops, name))}").split(" ->")[0]
    named = ["load", "store", "reduce", "constant", "index_expr", "indirect", "masked", "to_dtype", "bitcast", "random_bits", "valid", "where"]
    rows = [(code(signature(n)), plain(getattr(loop_ops.Ops, n).__doc__)) for n in named]
    count = len(named) + len(loop_ops.UNARY) + len(loop_ops.BINARY)
    return page("Loop ops", f"What the body of a loop may say about one element: {count} operations. `inner_fn(index)` calls them on whatever the "
                "handler in force returns; `minipt2/inductor/ops.py` holds them all.", table(["op", "meaning"], rows),
                ["", "**Of one value**: " + ", ".join(map(code, loop_ops.UNARY)) + ".", "", "**Of two**: " + ", ".join(map(code, loop_ops.BINARY)) + ".",
                 "", "**Reductions**: " + ", ".join(map(code, loop_ops.REDUCTIONS)) + "."])


def guard_page() -> str:
    from ..dynamo.guard_kinds import KINDS
    rows = [(code(name), kind.says, kind.rank) for name, kind in sorted(KINDS.items(), key=lambda pair: (pair[1].rank, pair[0]))]
    return page("Guards", "Every kind of check that compiled code may rest on. Those of one source run in this order: what others rely on, and what is "
                "cheap and changes often, first. `minipt2.explain(fn)(*args).reports[0].guards` lists those of a graph.",
                table(["kind", "what is compared", "rank"], rows))


def variable_page() -> str:
    from ..dynamo.variables.base import Variable
    from ..dynamo import variables
    names = [f.stem for f in sorted(Path(inspect.getsourcefile(variables)).parent.glob("*.py")) if f.stem != "__init__"]
    parts: list[str] = []
    for name in names:
        module = __import__(f"{variables.__name__}.{name}", fromlist=["_"])
        kinds = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Variable) and c.__module__ == module.__name__]
        if kinds:
            rows = [(code(c.__name__), first_sentence(c.__doc__), code(c.__mro__[1].__name__)) for c in kinds]
            parts += [f"## {name}.py", "", plain((module.__doc__ or "").strip().partition("\n\n")[0]), "", *table(["variable", "what it stands for", "is a"], rows), ""]
    return page("Variables", "What the symbolic interpreter can know about a Python value: a file a kind, in `minipt2/dynamo/variables`. "
                "Whatever has no kind of its own breaks the graph.", parts)


def room_page() -> str:
    parts: list[str] = []
    for room in ROOMS:
        text = inspect.cleandoc(ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or "")
        parts += [f"## minipt2/{room}", "", re.sub(r"``(.+?)``", r"`\1`", re.sub(r":class:`(\w+)`", r"`\1`", text)), ""]
    return page("Rooms", "The package is a house whose rooms know only those below them. Each says what comes in, what goes out and who calls it.", parts)


def pytorch_map() -> str:
    """Files of the package and the upstream modules their docstrings name."""
    rows = []
    for file in sorted(PACKAGE.rglob("*.py")):
        doc = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split())
        found = re.search(r"Upstream(?: counterparts?)?:? (.+?)(?:\. |\.?$)", doc)
        if found and not found[1].startswith("has no"):
            rows.append((code(file.relative_to(PACKAGE.parent)), first_sentence(doc), plain(found[1])))
    return page("PyTorch map", "Our files beside the ones of PyTorch that do the same work. Open both: ours first, for the idea, then theirs, for everything "
                "that production adds. Borrowed, not rebuilt: tensors and eager kernels, the autograd engine, `__torch_dispatch__`, meta kernels, "
                "`torch.fx`'s graph, the C half of the frame hook.", table(["ours", "what it does", "PyTorch"], rows))


PAGES: dict[str, Callable[[], str]] = {
    "reference/settings.md": settings, "reference/backends.md": backend_page, "reference/lowerings.md": lowering_page,
    "reference/ops.md": loop_op_page, "reference/guards.md": guard_page, "reference/variables.md": variable_page,
    "reference/rooms.md": room_page, "pytorch_map.md": pytorch_map,
}


if __name__ == "__main__":
    for name, make in PAGES.items():
        target = Path(sys.argv[1]) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(make())
