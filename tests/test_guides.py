"""The code in the guides runs as printed."""
import re
import tomllib
from pathlib import Path

from minipt2.backends import registry

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)


def install(project: dict, folder: Path) -> None:
    """What an installer makes of pyproject.toml: the folder that ``importlib.metadata`` reads."""
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    sections = [(group, points.items()) for group, points in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("".join(f"[{g}]\n" + "".join(f"{k} = {v}\n" for k, v in items) for g, items in sections))


def test_a_backend_in_another_package(tmp_path, monkeypatch, fresh):
    blocks = BLOCK.findall((ROOT / "site/guides/backend.md").read_text())
    files = {title: code for _, title, code in blocks if title}
    install(tomllib.loads(files["pyproject.toml"])["project"], tmp_path)
    (tmp_path / "minipt2_tally.py").write_text(files["minipt2_tally.py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry._installed.cache_clear()
    try:
        for code in [*(code for _, title, code in blocks if not title), files["use.py"]]:
            exec(compile(code, str(ROOT / "site/guides/backend.md"), "exec"), {"__name__": "guide"})
    finally:
        registry._installed.cache_clear()
