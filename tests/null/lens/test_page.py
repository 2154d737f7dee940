"""The text of the page of `opalite lens`."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from typing import Any

import pytest

from opalite.errors import ExtraError
from opalite.lens.document import lens_file
from opalite.lens.page import render

from ...helpers.lens_documents import made_document

MOST_BYTES = 3_000_000


def document_of(html: str) -> Any:
    (text,) = re.findall(r'<script type="text/plain" id="lens">(.*?)</script>', html)
    return json.loads(gzip.decompress(base64.b64decode(text)))


@pytest.mark.parametrize("package", ["bokeh", "fast_sugiyama"])
def test_a_sentence_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraError, match=r"pip install 'opalite-cl\[lens\]'"):
        render(lens_file([made_document(3)]))


class TestOfAWholePage:
    @pytest.fixture(autouse=True)
    def _packages(self) -> None:
        for package in ("bokeh", "fast_sugiyama"):
            pytest.importorskip(package, reason="the extra opalite-cl[lens] is not installed")

    def test_the_document_comes_back_whole_whatever_its_names_are(self) -> None:
        names = [
            "</script><script>alert(1)</script>",
            "<!--<script>",
            "{{script}} {{style}}",
            "a & b \"c\" 'd' \\ \u2028 漢字 🙂",
        ]
        lens = lens_file([made_document(4, names)])
        html = render(lens)
        read = document_of(html)
        assert [n["name"] for n in read["documents"][0]["graph"]["nodes"][::2]] == names
        assert len(re.findall(r"<script", html, re.IGNORECASE)) == 3, "data, library and code, and nothing of the names"

    def test_nothing_is_fetched(self) -> None:
        html = render(lens_file([made_document(2)]))
        assert "default-src 'none'" in html
        assert re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=""", html) == []

    def test_300_launches_fit_into_3_mb(self) -> None:
        assert len(render(lens_file([made_document(300)])).encode()) < MOST_BYTES

    def test_weights_are_not_drawn(self) -> None:
        document = made_document(2)
        document["graph"]["nodes"].append(
            {"name": "w", "op": "Constant", "inputs": [], "outputs": ["w0"], "launches": [], "nodes": []}
        )
        layout = document_of(render(lens_file([document])))["documents"][0]["layout"]["graph"]
        assert layout["ids"] == [0, 1, 2, 3]
