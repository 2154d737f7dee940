"""The page of `opalite lens`, opened in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from opalite.lens.document import lens_file
from opalite.lens.page import render

from ...helpers.lens_browser import Open, until

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    for package in ("bokeh", "fast_sugiyama"):
        pytest.importorskip(package, reason="the extra opalite-cl[lens] is not installed")
    with api.sync_playwright() as playwright:
        # In a container, Chromium has no namespace of its own to confine itself in.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of some documents. At the end nothing was requested but the file, and nothing failed."""
    pages, requests, complaints = [], [], []

    def opened(*documents: dict[str, Any], width: int = 1600, theme: str = "light") -> Any:
        path = tmp_path / f"page{len(pages)}.html"
        path.write_text(render(lens_file(documents)), "utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        pages.append(page)
        page.on("request", lambda r: requests.append(r.url))
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.goto(path.as_uri())
        until(page, "document.querySelector('.view.graphs')?.panes.some(p => p.painted > 0)")
        return page

    yield opened
    inside = [url for url in requests if not url.startswith(("data:", "blob:"))]
    for page in pages:
        page.close()
    assert complaints == []
    assert inside == [(tmp_path / f"page{i}.html").as_uri() for i in range(len(pages))], "no request leaves the page"
