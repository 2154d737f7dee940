"""The page of `opalite lens` in headless Chromium: what clicks, keys and themes do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ...helpers.lens_browser import Open, click_box, details, marked, show, until
from ...helpers.lens_documents import made_document, made_drift

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
    times = page.locator("tbody tr td:nth-child(3)")
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


def test_work_and_rates_are_those_of_a_run(open_page: Open) -> None:
    document = made_document(4)
    step = document["program"]["steps"][1]
    step |= {"times": 8, "flops": 1e6, "bytes": 5e5, "ms": 2.0}
    page = open_page(document)
    click_box(page, 1, 1)
    assert "1.00 MFLOP, 500 kB each time" in details(page)
    assert "4.00 GFLOP/s, 2.00 GB/s" in details(page)
    show(page, "Roofline")
    row = page.locator("#views tbody tr").first.inner_text()
    assert "8.00 MFLOP" in row
    assert "4.00 GFLOP/s" in row
    page.locator(".chart canvas").first.wait_for()
    page.keyboard.press("Escape")
    page.mouse.click(*page.evaluate(PIXEL, [2.0, 4.0]))
    until(page, "document.querySelector('#details h2 .swatch')")


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


def test_what_overflows_is_infinitely_far_off(open_page: Open) -> None:
    document = made_document(8)
    document["drift"] = made_drift(document)
    nothing = dict.fromkeys(("error", "relative", "own", "snr_db", "largest"))
    document["drift"]["points"][2] |= nothing
    document["drift"]["points"][0] |= {"error": 0, "relative": 0, "own": 0, "snr_db": None}
    page = open_page(document)
    show(page, "Drift")
    assert "further off, first Conv+Relu /block0/conv_2." in page.locator(".tolerance").inner_text()
    rows = page.locator("#views tbody tr").all_inner_texts()
    assert rows[0].split("\t")[3:6] == ["infinite", "infinite", "no signal"], "the largest first"
    assert rows[0].split("\t")[7] == "not finite"
    assert sum("exact" in row for row in rows) == 1
    page.locator("#views tbody tr").first.click()
    assert "infinite of the largest value so far" in details(page)


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


@pytest.mark.parametrize("documents", [1, 2])
def test_a_narrow_window_holds_every_view(open_page: Open, documents: int) -> None:
    page = open_page(*[made_document(12)] * documents, width=390)
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
