"""What tests of the lens page do in a browser: choose tabs and boxes, wait, read what is marked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Open = Callable[..., Any]


def until(page: Any, condition: str) -> None:
    """Wait for a condition. Playwright's own way of waiting evaluates text inside the page, which forbids that."""
    for _ in range(600):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")


def show(page: Any, tab: str) -> None:
    page.get_by_role("tab", name=tab, exact=True).click()


def click_box(page: Any, pane: int, box: int) -> None:
    canvas = page.locator(".pane canvas").nth(pane).bounding_box()
    at = page.evaluate(f"document.querySelector('.view.graphs').panes[{pane}].middleOf({box})")
    page.mouse.click(canvas["x"] + at["x"], canvas["y"] + at["y"])


def marked(page: Any, pane: int) -> list[int]:
    return page.evaluate(f"[...document.querySelector('.view.graphs').panes[{pane}].marked]")


def details(page: Any) -> str:
    return page.locator("#details").inner_text()
