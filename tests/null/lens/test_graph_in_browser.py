"""The two graphs of the lens page in headless Chromium: clicks, kernels, frames, the wheel, the overview."""

from __future__ import annotations

from ...helpers.lens_browser import Open, click_box, details, marked, show, until
from ...helpers.lens_documents import made_document


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
    page.locator("#details .link", has_text="Conv /block0/conv_1").first.click()
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


def test_a_kernel_chooses_all_its_launches(open_page: Open) -> None:
    page = open_page(made_document(15))
    page.locator("#details .link", has_text="ConvWinograd").click()
    assert (marked(page, 0), marked(page, 1)) == ([2, 3, 16, 17], [2, 9])
    assert "2 times" in details(page)
    page.locator("#details .link").first.click()
    assert len(marked(page, 1)) == 1, "a link of the panel chooses one of them"
    page.keyboard.press("Escape")
    page.locator(".run-bar button").first.click()
    assert len(marked(page, 1)) > 1, "a piece of the bar is a kernel, too"
    page.fill("#search", "convwinograd")
    page.keyboard.press("Enter")
    assert marked(page, 1) == [2, 9]
    show(page, "Roofline")
    assert page.locator("tr.marked").count() == 1


def test_bodies_have_frames_and_their_loop_stands_for_them(open_page: Open) -> None:
    document = made_document(6)
    nodes = document["graph"]["nodes"]
    for node in nodes[4:6]:
        node |= {"within": 2, "scope": "Loop node 'steps'"}
    nodes[2] |= {"op": "Loop", "launches": [2, 3]}
    nodes[8] |= {"op": "DequantizeLinear", "fate": "planned", "launches": [], "nodes": []}
    page = open_page(document)
    pane = "document.querySelector('.view.graphs').panes[0]"
    frame = page.evaluate(f"{pane}.frames[0]")
    assert frame["name"] == "Loop node 'steps'"
    inside = page.evaluate(f"[...{pane}.boxes].filter(b => b.x > {frame['x']} && b.x < {frame['x'] + frame['width']})")
    assert sorted(box["id"] for box in inside) == [4, 5]
    assert page.locator(".pane.model .caption").inner_text() == "Model: 12 nodes, 1 of constants not drawn"
    assert page.evaluate(f"{pane}.boxes.length") == 11
    click_box(page, 0, 2)
    assert marked(page, 1) == [2, 3]
    assert "2 nodes" in details(page)


def test_the_overview_beside_a_long_graph_jumps(open_page: Open) -> None:
    page = open_page(made_document(200))
    pane = "document.querySelector('.view.graphs').panes[1]"
    until(page, f"{pane}.strip")
    canvas = page.locator(".pane canvas").nth(1).bounding_box()
    page.mouse.move(canvas["x"] + canvas["width"] - 4, canvas["y"] + 10)
    page.mouse.down()
    page.mouse.move(canvas["x"] + canvas["width"] - 4, canvas["y"] + canvas["height"] / 2)
    page.mouse.up()
    middle = page.evaluate(f"({pane}.size.height / 2 - {pane}.view.y) / {pane}.view.scale / {pane}.height")
    assert abs(middle - 0.5) < 0.02
    assert marked(page, 1) == [], "nothing is chosen by it"
