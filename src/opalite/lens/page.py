"""render: the page of a lens document, one HTML file that asks no network for anything."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..extras import need
from .layout import layered_layout

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = (
    "dom",
    "lens",
    "graph",
    "source",
    "details",
    "charts",
    "tables",
    "drift",
    "main",
)  # one module, in this order
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
        "lens": _packed(json.dumps({**lens, "documents": documents}, separators=(",", ":"), allow_nan=False)),
        "charts": _packed(_charts_library()),
        "script": "\n".join((_ASSETS / f"{name}.js").read_text("utf-8") for name in _SCRIPTS),
    }
    # All parts in one pass: a title may contain the name of another part.
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], (_ASSETS / "page.html").read_text("utf-8"))


def _layouts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Places of the nodes of both graphs.

    Constants, and what is computed from them when the model is planned, are weights: they are not drawn, unless
    nothing else is there.
    """
    graph, program = document["graph"], document["program"]
    nodes = graph["nodes"]
    drawn = [i for i, node in enumerate(nodes) if node["op"] != "Constant" and node["fate"] != "planned"]
    drawn = drawn or list(range(len(nodes)))
    owners = {i: (n["within"], n["scope"]) for i, n in enumerate(nodes) if n.get("within") is not None}
    return {
        "graph": layered_layout(drawn, [(e[0], e[1]) for e in graph["edges"]], owners),
        "program": layered_layout(range(len(program["steps"])), [(e[0], e[1]) for e in program["edges"]]),
    }


def _charts_library() -> str:
    folder = files("bokeh") / "server" / "static" / "js"
    return "\n".join((folder / name).read_text("utf-8") for name in _CHARTS)


def _packed(text: str) -> str:
    """Compressed text, which no name inside can end as a script; 2.5 MB of a page become 0.8."""
    return b64encode(gzip.compress(text.encode("utf-8", "surrogateescape"), mtime=0)).decode()
