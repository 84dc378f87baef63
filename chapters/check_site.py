"""The built site in a real browser: ``python -m chapters.check_site [--axe axe.min.js] [--shots DIR] [PAGE ...]`` (needs playwright and Chromium).

Every page, at 390 and 1440 pixels, light and dark: no error in the console, no request to another origin, no sideways scroll, every figure
answers a click and a key, and, with axe-core, no serious violation of accessibility rules. A page is loaded light and wide, dark and narrow;
switched to the other scheme, its contrasts are looked at again. Two minutes on two idle cores.
"""
from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import multiprocessing
import os
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any, Iterator

SITE = Path(__file__).parent.parent / "build" / "site"
VIEWS = ((1440, "light"), (390, "dark"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Nothing: faults are reported by the browser."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def pages(folder: Path) -> list[str]:
    return sorted("/" + f.relative_to(folder).as_posix().removesuffix("index.html") for f in folder.rglob("*.html") if f.name != "404.html")


def answers(page: Any) -> list[str]:
    """Figures that do not change when clicked or when a key is pressed."""
    dead = []
    for k in range(page.locator("figure[data-figure]").count()):
        figure = page.locator("figure[data-figure]").nth(k)
        name = figure.get_attribute("data-figure")
        for way in (_click, _key):
            if not way(page, figure):
                dead.append(f"figure {name} does not answer a {way.__name__.strip('_')}")
    for k in range(page.locator(".mp-predict").count()):
        box = page.locator(".mp-predict").nth(k)
        if not (_predicts(box, "-1", "false") and _predicts(box, box.get_attribute("data-answer"), "true")):
            dead.append("a predict box does not tell right from wrong")
    return dead


def _state(figure: Any) -> str:
    return figure.evaluate("f => f.dataset.state + ['.lit', '.picked', '.cursor', '.now'].map(c => '|' + f.querySelectorAll(c).length).join('')")


def _click(page: Any, figure: Any) -> bool:
    before = _state(figure)
    figure.evaluate("""f => { const b = f.querySelector('[data-move="1"]'), s = f.querySelector('select'), l = f.querySelector('[data-links],[data-goto]');
        if (b) b.click(); else if (s) { s.selectedIndex = s.options.length - 1; s.dispatchEvent(new Event('change', {bubbles: true})); } else if (l) l.click(); }""")
    return _state(figure) != before or not figure.evaluate("f => f.querySelector('[data-move],select,[data-links],[data-goto],[data-pick]')")


def _key(page: Any, figure: Any) -> bool:
    before = _state(figure)
    control = figure.locator("input[type=range], select, pre[tabindex], svg[tabindex]").first
    control.focus()
    page.keyboard.press(control.evaluate("e => e.matches('input') ? (e.value === e.max ? 'ArrowLeft' : 'ArrowRight') : e.matches('select') ? 'ArrowUp' : 'ArrowDown'"))
    return _state(figure) != before or not figure.evaluate("f => f.querySelector('[data-move],select,[data-links],[data-goto],[data-pick]')")


def _predicts(box: Any, guess: str, right: str) -> bool:
    box.locator("input").fill(guess)
    box.locator("button").click()
    return box.get_attribute("data-right") == right


def look_at(browser: Any, base: str, path: str, width: int, scheme: str, axe: str, shots: Path | None) -> list[str]:
    """Faults of one page in one view."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    faults: list[str] = []
    page.on("console", lambda m: faults.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda e: faults.append(f"error: {e}"))
    page.on("request", lambda r: faults.append(f"asks {r.url}") if not r.url.startswith((base, "data:", "blob:")) else None)
    page.goto(base + path, wait_until="load")
    page.wait_for_timeout(150)
    before = page.evaluate("document.body.dataset.mdColorScheme")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        faults.append("scrolls sideways")
    if shots is not None:
        page.screenshot(path=str(shots / f"{re.sub(r'[^a-z0-9]+', '_', path.lower()).strip('_') or 'home'}_{width}.png"), full_page=True)
    if axe:
        page.evaluate(axe)
        faults += violations(page, "")
    faults += answers(page)
    page.locator("[data-md-component=palette] label:not([hidden])").first.click()
    page.wait_for_timeout(150)
    if page.evaluate("document.body.dataset.mdColorScheme") == before:
        faults.append("does not switch between light and dark")
    if axe:
        faults += violations(page, ", runOnly: ['color-contrast']")
    page.close()
    return [f"{path} at {width} {scheme}: {fault}" for fault in dict.fromkeys(faults)]


def violations(page: Any, options: str) -> list[str]:
    """Serious ones, of all rules of axe-core or as its ``options`` say."""
    found = page.evaluate(f"axe.run(document, {{resultTypes: ['violations']{options}}})")
    return [f"axe {v['id']} ({v['impact']}): {v['nodes'][0]['html'][:160]} (and {len(v['nodes']) - 1} more)"
            for v in found["violations"] if v["impact"] in ("serious", "critical")]


def look_at_all(views: list[tuple[str, int, str]], site: Path, axe: str, shots: Path | None) -> list[str]:
    """Faults of several views, in a browser of their own."""
    from playwright.sync_api import sync_playwright
    faults = []
    with served(site) as base, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for path, width, scheme in views:
            faults += look_at(browser, base, path, width, scheme, axe, shots)
        browser.close()
    return faults


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="paths like /chapters/00_pipeline/ (default: all)")
    parser.add_argument("--axe", type=Path, help="axe.min.js of the npm package axe-core")
    parser.add_argument("--shots", type=Path, help="folder for screenshots")
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="browsers at a time (default: one for each core)")
    args = parser.parse_args(argv)
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    axe = args.axe.read_text() if args.axe else ""
    views = [(path, *view) for path in args.pages or pages(args.site) for view in VIEWS]
    parts = [views[k::args.jobs] for k in range(min(args.jobs, len(views)))]
    with multiprocessing.get_context("spawn").Pool(len(parts)) as pool:
        faults = sum(pool.starmap(look_at_all, [(part, args.site, axe, args.shots) for part in parts]), [])
    sys.stdout.write("".join(f"{f}\n" for f in faults) + f"{len(views)} pages and widths, {len(faults)} faults\n")
    return min(len(faults), 1)


if __name__ == "__main__":
    sys.exit(main())
