"""The line between what is borrowed and what is ours: no upstream compiler module is imported, none of its entry points runs."""
import ast
import pathlib

import pytest

import minipt2
from minipt2 import models

from .compare import check_module
from .private_torch_names import ALLOWED

PACKAGE = pathlib.Path(minipt2.__file__).parent
FORBIDDEN = ("torch._dynamo", "torch._functorch", "torch._inductor", "torch._prims", "torch._refs", "torch._decomp",
             "torch.fx.experimental.proxy_tensor", "torch.fx.experimental.symbolic_shapes")


def dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return base and f"{base}.{node.attr}"
    return None


def torch_names(tree: ast.AST) -> set[str]:
    """Dotted torch names a file imports or spells out, the longest form of each."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            if name:
                names.add(name)
    return {n for n in names if n.split(".")[0] == "torch"}


def private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def used_names() -> dict[str, set[str]]:
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in torch_names(ast.parse(path.read_text())):
            files.setdefault(name, set()).add(str(path.relative_to(PACKAGE)))
    return files


def allowed(name: str) -> bool:
    return any(name == entry or name.startswith(entry + ".") or entry.startswith(name + ".") for entry in ALLOWED)


def test_upstream_compiler_is_never_imported():
    found = {name: files for name, files in used_names().items()
             if name.startswith(FORBIDDEN) and not allowed(name)}
    assert not found


def test_private_torch_names_are_listed_with_reasons():
    unlisted = {name: files for name, files in used_names().items() if private(name) and not allowed(name)}
    assert not unlisted, f"private torch names without a reason in private_torch_names.py: {unlisted}"


def test_no_listed_name_is_unused():
    used = used_names()
    stale = [entry for entry in ALLOWED if not any(n == entry or n.startswith(entry + ".") for n in used)]
    assert not stale


@pytest.mark.parametrize("name", ["resnet18", "bert"])
def test_no_upstream_entry_point_runs(name, monkeypatch, fresh):
    import torch._dynamo.convert_frame
    import torch._functorch.aot_autograd
    import torch._inductor.compile_fx
    import torch.fx.experimental.proxy_tensor
    import torch.fx.experimental.symbolic_shapes

    def tripped(*args, **kwargs):
        raise AssertionError("an entry point of upstream's compiler ran")
    monkeypatch.setattr(torch._dynamo.convert_frame.ConvertFrameAssert, "__call__", tripped)
    monkeypatch.setattr(torch._functorch.aot_autograd, "aot_module_simplified", tripped)
    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", tripped)
    monkeypatch.setattr(torch.fx.experimental.proxy_tensor, "make_fx", tripped)
    monkeypatch.setattr(torch.fx.experimental.symbolic_shapes.ShapeEnv, "__init__", tripped)
    check_module(models.build(name, "small"), *models.inputs(name, "small"), tolerance=2e-4)
