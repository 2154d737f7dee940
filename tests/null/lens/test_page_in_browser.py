"""The page of `opalite lens` in headless Chromium: what clicks, keys and themes do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from opalite.lens.document import lens_file
from opalite.lens.page import render

from ...helpers.lens_documents import made_document, made_drift

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)
api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
for package in ("bokeh", "fast_sugiyama"):
    pytest.importorskip(package, reason="the extra opalite-cl[lens] is not installed")

HOSTILE = [
    "<img src=x onerror='window.ran = 1'>",
    "</script><script>window.ran = 1</script>",
    "@{time} $index {{x}}",
    "\"'&amp; 漢字 🙂",
]
# Where a point of the shown chart is in the window.
PIXEL = """([x, y]) => {
  const view = [...Bokeh.index].findLast((v) => v.frame && v.el.isConnected);
  const { left, top } = view.el.getBoundingClientRect();
  return [left + view.frame.x_scale.compute(x), top + view.frame.y_scale.compute(y)];
}"""
PLOTS = "(window.Bokeh ? [...Bokeh.index] : []).flatMap((v) => v.child_views || []).filter((v) => v.frame).length"
TABS = ("Graph", "Timeline", "Roofline", "Memory", "Nodes")

TOO_FAINT = (Path(__file__).parent / "too_faint.js").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        # In a container, Chromium has no namespace of its own to confine itself in.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


Open = Callable[..., Any]


def until(page: Any, condition: str) -> None:
    """Wait for a condition. Playwright's own way of waiting evaluates text inside the page, which forbids that."""
    for _ in range(600):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")


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


def test_a_click_marks_the_counterpart_and_tells_everything(open_page: Open) -> None:
    page = open_page(made_document(12))
    click_box(page, 0, 3)  # the Relu of the second launch
    assert (marked(page, 0), marked(page, 1)) == ([3], [2])
    assert "becomes launch 1" in details(page)
    click_box(page, 1, 2)
    assert (marked(page, 0), marked(page, 1)) == ([2, 3], [2])
    text = details(page)
    for part in (
        "ConvWinograd",
        "of the roofline",
        "work-group",
        "8 × 4 × 1",
        "arena, from 100352",
        "ConvGeneric",
        "fuse_epilogue",
    ):
        assert part in text, part
    page.locator("#details .refusals summary").click()
    assert "the device has no images" in details(page)
    page.locator("#details .source summary").click()
    page.locator("#details pre", has_text="kernel void ConvWinograd").wait_for()
    assert page.locator("#details pre .k").count() > 3, "words of the language are highlighted"
    page.locator("#details .link").first.click()
    assert marked(page, 0) == [2], "a link chooses the model's node"


def test_hovering_marks_both_graphs(open_page: Open) -> None:
    page = open_page(made_document(6))
    canvas = page.locator(".pane canvas").first.bounding_box()
    at = page.evaluate("document.querySelector('.view.graphs').panes[0].middleOf(0)")
    page.mouse.move(canvas["x"] + at["x"], canvas["y"] + at["y"])
    assert page.evaluate("[...document.querySelector('.view.graphs').panes[1].hovered]") == [1]


def test_the_wheel_pans_and_zooms_and_only_what_is_seen_is_drawn(open_page: Open) -> None:
    page = open_page(made_document(500))
    pane = "document.querySelector('.view.graphs').panes[0]"
    assert page.evaluate(f"{pane}.boxes.length") == 1000
    assert 0 < page.evaluate(f"{pane}.painted") < 40
    page.locator(".pane canvas").first.hover()
    before = page.evaluate(f"{pane}.view")
    page.mouse.wheel(0, 300)
    until(page, f"{pane}.view.y < {before['y']}")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    until(page, f"{pane}.view.scale > {before['scale']}")
    page.locator(".pane .zoom button").nth(2).click()
    until(page, f"{pane}.painted === 1000")


def test_keys(open_page: Open) -> None:
    page = open_page(made_document(12))
    page.keyboard.press("/")
    page.keyboard.type("relu 0")
    assert page.locator("#found li").count() >= 2
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    first = marked(page, 0)
    assert first
    page.keyboard.press("ArrowDown")
    until(page, f"![...document.querySelector('.view.graphs').panes[0].marked].includes({first[0]})")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("i")
    assert "opalite lens made.onnx" in page.locator("#about").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#about").is_visible()
    page.keyboard.press("Escape")
    assert marked(page, 0) == []
    page.keyboard.press("3")
    assert page.locator("#tabs button[aria-selected=true]").inner_text() == "Roofline"
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_search_without_result_says_so(open_page: Open) -> None:
    page = open_page(made_document(3))
    page.fill("#search", "no such node")
    assert "Nothing" in page.locator("#found").inner_text()


def test_tables_sort_and_choose(open_page: Open) -> None:
    page = open_page(made_document(12))
    show(page, "Timeline")
    times = page.locator("tbody tr td:nth-child(4)")
    assert times.first.inner_text() == "0.140 ms", "the longest first"
    page.get_by_role("button", name="time ↓").click()
    assert times.first.inner_text() == "50.0 µs"
    page.locator("tbody tr", has_text="softmax_5").click()
    assert "SoftmaxRows" in details(page)
    assert page.locator("tr.marked").count() == 1
    show(page, "Nodes")
    assert page.locator("tr.marked").count() == 2, "both nodes of that launch"


def test_a_bar_a_dot_and_a_box_choose_their_step(open_page: Open) -> None:
    document = made_document(8)
    page = open_page(document)
    event = document["timeline"]["events"][4]
    step = document["program"]["steps"][event["step"]]
    box = document["program"]["boxes"][5]
    places = {
        "Timeline": (event["start_ms"] + event["ms"] / 2, 1.5),
        "Roofline": (step["flops"] / step["bytes"], step["flops"] / step["ms"] / 1e6),
        "Memory": (box["first"], (box["offset"] + box["bytes"] / 2) / 1e3),
    }
    for tab, (x, y) in places.items():
        show(page, tab)
        page.locator(".chart canvas").first.wait_for()
        at = page.evaluate(PIXEL, [x, y])
        page.keyboard.press("Escape")
        page.mouse.click(*at)
        until(page, "document.querySelector('#details h2 .swatch')")
        chosen = box["first"] if tab == "Memory" else event["step"]
        assert document["program"]["steps"][chosen]["kernel"] in details(page), tab


def test_two_documents_are_compared(open_page: Open) -> None:
    page = open_page(made_document(10, scale=0.5, device="Other GPU"), made_document(10))
    show(page, "Comparison")
    text = page.locator("#views").inner_text()
    assert "device Test GPU → Other GPU" in text
    assert "0.500 ×" in text
    differences = page.locator("#views table:not(.totals) tbody tr td:nth-child(5)").all_inner_texts()
    assert differences[0] == "−70.0 µs"
    assert differences == sorted(differences, key=lambda t: -float(t[1:].split()[0]) if t[0] == "−" else 0)
    until(page, f"{PLOTS} === 2")
    page.locator("#documents").select_option("1")
    assert "Test GPU" in page.locator("#summary").inner_text()


def test_a_tolerance_tells_where_the_drift_begins_and_what_to_keep(open_page: Open) -> None:
    document = made_document(8)
    document["drift"] = made_drift(document)
    page = open_page(document)
    show(page, "Drift")
    words = page.locator(".tolerance")
    assert "outputs beyond 0.001: y" in page.locator("#views").inner_text()
    assert "5 of 8 values are further off, first MatMul+Relu /block0/matmul_3." in words.inner_text()
    assert "Policy: fp16; outputs differ by 5.0e-4; 1.00 ms expected, 2.00 MB." in words.inner_text()
    page.get_by_label("Tolerance").fill("-5")
    assert "2 nodes stay in fp32" in words.inner_text()
    page.get_by_label("Tolerance").fill("-7")
    assert "Policy: fp32; outputs differ by 0; 2.00 ms expected" in words.inner_text()
    words.locator(".link").first.click()
    assert "becomes launch" in details(page)
    assert page.locator("#views tr.marked").count() == 1
    for measure in ("Range", "Signal to noise", "Error"):
        page.get_by_role("button", name=measure, exact=True).click()
        page.locator(".chart canvas").first.wait_for()
        assert page.locator(".chart").count() == 1
    page.get_by_label("Tolerance").fill("0")
    assert "All 8 values are within it." in words.inner_text()


def test_names_of_a_model_are_never_markup(open_page: Open) -> None:
    document = made_document(6, HOSTILE)
    document["header"] |= {"model": HOSTILE[1], "device": HOSTILE[0], "notes": HOSTILE}
    document["pieces"][0] = "// </script><script>window.ran = 1</script>\n" + document["pieces"][0]
    page = open_page(document)
    for box in (1, 2):
        click_box(page, 1, box)
        for fold in page.locator("#details details summary").all():
            fold.click()
    page.keyboard.press("i")
    page.fill("#search", "script")
    for tab in TABS:
        show(page, tab)
    show(page, "Timeline")
    page.locator(".chart canvas").first.wait_for()
    chart = page.locator(".chart").bounding_box()
    page.mouse.move(chart["x"] + chart["width"] / 4, chart["y"] + 70)
    page.mouse.move(chart["x"] + chart["width"] / 4 + 3, chart["y"] + 72)
    assert HOSTILE[0] in page.locator("#views").inner_text()
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_can_be_read(open_page: Open, theme: str) -> None:
    document = made_document(8)
    document["drift"] = made_drift(document)
    page = open_page(document, made_document(8, scale=2.0), theme=theme)
    click_box(page, 1, 2)
    for fold in page.locator("#details details summary").all():
        fold.click()
    page.keyboard.press("i")
    for tab in (*TABS, "Drift", "Comparison"):
        show(page, tab)
        result = page.evaluate(TOO_FAINT)
        assert result["found"] == [], tab
        assert result["seen"] > 40


def test_a_narrow_window_holds_every_view(open_page: Open) -> None:
    page = open_page(made_document(12), width=390)
    for tab in TABS:
        show(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        inside = page.locator("#views > *").bounding_box()
        assert inside["height"] > 250, tab
    show(page, "Graph")
    assert not page.locator("#details").is_visible(), "nothing is chosen"
    click_box(page, 0, 0)
    assert "becomes launch 0" in details(page)
    page.get_by_role("button", name="Close", exact=True).click()
    assert marked(page, 0) == []
    assert not page.locator("#details").is_visible()
    page.get_by_role("button", name="Program", exact=True).click()
    assert page.locator(".pane.program canvas").is_visible()
    assert not page.locator(".pane.model canvas").is_visible()


def test_opening_300_launches(open_page: Open, record_property: Callable[[str, object], None]) -> None:
    page = open_page(made_document(300))
    drawn = page.evaluate("performance.getEntriesByType('paint').at(-1).startTime")
    record_property("milliseconds", drawn)
    print(f"300 launches: drawn {drawn:.0f} ms after the page was asked for")
    assert page.evaluate("document.querySelector('.view.graphs').panes[1].boxes.length") == 302
