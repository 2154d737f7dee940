"""render: the page of a lens document, one HTML file that asks no network for anything."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..extras import need
from .layout import layered_layout

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("dom", "lens", "graph", "source", "details", "charts", "tables", "main")  # one module, in this order
_CHARTS = ("bokeh.min.js", "bokeh-api.min.js")


def check_packages() -> None:
    """Raise ExtraError if a package that draws the page is missing: before anything is measured for it."""
    for package in ("bokeh", "fast_sugiyama"):
        need(package, "the page of opalite lens (not --json)", "lens")


def render(lens: Mapping[str, Any]) -> str:
    """The HTML of documents and comparisons. Raises ExtraError without the packages of opalite-cl[lens]."""
    check_packages()
    documents = [{**document, "layout": _layouts(document)} for document in lens["documents"]]
    parts = {
        "title": escape(f"{documents[0]['header']['model']} - opalite lens"),
        "style": (_ASSETS / "style.css").read_text("utf-8"),
        "lens": _json_in_html({**lens, "documents": documents}),
        "charts": _script_in_html(_charts_library()),
        "script": _script_in_html("\n".join((_ASSETS / f"{name}.js").read_text("utf-8") for name in _SCRIPTS)),
    }
    # All parts in one pass, because a document may contain the name of another part.
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], (_ASSETS / "page.html").read_text("utf-8"))


def _layouts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Places of the nodes of both graphs. Constants without inputs are not drawn: they are weights."""
    graph, program = document["graph"], document["program"]
    drawn = [i for i, node in enumerate(graph["nodes"]) if node["op"] != "Constant" or node.get("inputs")]
    return {
        "graph": layered_layout(drawn, [(e[0], e[1]) for e in graph["edges"]]),
        "program": layered_layout(range(len(program["steps"])), [(e[0], e[1]) for e in program["edges"]]),
    }


def _charts_library() -> str:
    folder = files("bokeh") / "server" / "static" / "js"
    return "\n".join((folder / name).read_text("utf-8") for name in _CHARTS)


def _json_in_html(value: object) -> str:
    """JSON that no name inside can end as a script: its < is written as an escape."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _script_in_html(text: str) -> str:
    """JavaScript whose literals neither end the element nor begin a comment in it."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", text, flags=re.IGNORECASE)
