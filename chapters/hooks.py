"""What mkdocs runs while it builds the site: chapters and generated pages become pages, figures are drawn, code is shown by name."""
from __future__ import annotations

import html
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from chapters import book, results  # noqa: E402
from minipt2.report import reference  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

SOURCES = "minipt2/report/assets"
_drawn: dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
    """Chapters, pages made from the registries, and the figures' script and style."""
    from mkdocs.structure.files import File  # only where a site is built: tests read pages without it

    for chapter in book.chapters():
        files.append(File.generated(config, f"chapters/{chapter.folder.name}.md", content=chapter_page(chapter)))
    for path in results.recorded():
        files.append(File.generated(config, f"results/{path.stem}.md", content=results.page(path)))
    for name, make in reference.PAGES.items():
        files.append(File.generated(config, name, content=make()))
    for name in ("figures.css", "figures.js"):
        files.append(File.generated(config, f"assets/{name}", content=(ROOT / SOURCES / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if re.match(r"breaks/MP", page.file.src_uri):  # where messages lead to, so nobody comes from the list
        markdown += "\n[All reasons](index.md) · [What a break costs](../chapters/01_bytecode.md#what-a-break-costs) · [Debugging](../debugging.md)\n"
    return "\n".join(_no_references(line) if line.startswith("|") else line for line in expand(markdown).split("\n"))


def _no_references(row: str) -> str:
    """``x[i][j]`` in a table's prose is not a link."""
    parts = row.split("`")
    parts[::2] = [part.replace("][", "]\\[") for part in parts[::2]]
    return "`".join(parts)


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    """Names in tables may be broken between their parts. Figures come last, so that Markdown leaves them alone."""
    content = re.sub(r"<td.*?</td>", lambda cell: re.sub(r"<code>.*?</code>", _breakable, cell[0]), content, flags=re.S)
    return re.sub(r'<div data-draw="([\w-]+)"></div>', lambda m: draw(m[1]), content)


def _breakable(code: re.Match) -> str:
    return re.sub(r"(?<=[a-zA-Z0-9])(/|[._](?!py\b)(?=[a-zA-Z0-9]))", r"\1<wbr>", code[0])


def draw(name: str) -> str:
    if name not in _drawn:
        from chapters.figures import FIGURES
        _drawn[name] = FIGURES[name]().html().replace(str(ROOT) + "/", "")
    return _drawn[name]


def chapter_page(chapter: book.Chapter) -> str:
    """A chapter's text as a page of the site; links between files of the project become links between pages."""
    text = re.sub(r"\]\(\.\./(\d\d_\w+)/README\.md", r"](\1.md", chapter.text)
    text = text.replace("](../../site/", "](../")
    own = {"exercises": lambda: exercise_list(chapter.number), "demo": lambda: demo(chapter)}
    return re.sub(r"^<!-- (exercises|demo) -->$", lambda m: own[m[1]](), text, flags=re.M)


def expand(markdown: str) -> str:
    """Directives and executable blocks as plain Markdown and HTML."""
    markdown = book.FENCE.sub(_block, markdown)
    markdown = book.VALUE.sub(r"\g<said>\g<close>", markdown)
    return book.DIRECTIVE.sub(_directive, markdown)


def _block(found: re.Match) -> str:
    info, body = found["info"], found["body"]
    if info == "python run":
        return f"```python\n{body}```"
    if info == "text output":
        return f'```text title="prints"\n{body}```'
    if info == "predict":
        return predict(book.prediction(body))
    return found[0]


def _directive(found: re.Match) -> str:
    kind, what = found["kind"], found["what"]
    if kind == "code":
        return _code(what)
    if kind == "table":
        from chapters.figures import TABLES
        return TABLES[what]()
    return f'<div data-draw="{what}"></div>'


def _code(what: str) -> str:
    """Code by name; what students are to write themselves is behind a fold."""
    code, line = book.code_of(what)
    outline, numbers = book.outline_of(what)
    title = f'title="{what.partition("::")[0]}, line {line}"'
    if not numbers:
        return f"```python {title}\n{code}\n```"
    fold = textwrap.indent(f"```python\n{code}\n```", "    ")
    return f'```python {title}\n{outline}\n```\n\n??? quote "{book.solved(numbers)}"\n\n{fold}\n'


def predict(fields: dict[str, str]) -> str:
    """A question to be answered before the work is shown; without JavaScript the work is behind a fold."""
    question, answer, because = (html.escape(fields[k]) for k in ("question", "is", "because"))
    code = re.compile(r"`([^`]+)`")
    question, because = code.sub(r"<code>\1</code>", question), code.sub(r"<code>\1</code>", because)
    return (f'<div class="mp mp-predict" data-figure="predict" data-answer="{answer}"><strong>Predict.</strong> {question}'
            f'<form hidden><label>Your answer <input name="guess" autocomplete="off"></label><button type="submit">Check</button></form>'
            f'<p class="mp-said" aria-live="polite"></p><details open><summary>The answer, and why</summary><p><strong>{answer}.</strong> {because}</p>'
            "</details></div>")


def exercise_list(chapter: int) -> str:
    tasks = book.exercises(chapter)
    if not tasks:
        return ""
    lines = [f"`minipt2 learn check {tasks[0]['id']}` checks the first; [Start](../start.md#exercises) says how to set up a folder."]
    for t in tasks:
        lines += [f"### {t['id']} {t['title']}", t["statement"].strip(), f"`minipt2/{t['file']}`, about {t['minutes']} minutes."]
    return "\n\n".join(lines)


def demo(chapter: book.Chapter) -> str:
    file = chapter.folder / "demo.py"
    place = file.relative_to(ROOT).as_posix()
    return f"Run `python {place}`:\n\n```python title=\"{place}\"\n{file.read_text()}```"
