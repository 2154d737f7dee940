"""The documents: every page is in the index, and what they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """What links may end in: the headings, as GitHub names them."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [p.name for p in PAGES if p.name != "index.md" and f"]({p.name})" not in index]
    assert not missing, f"docs/index.md does not list {missing}"


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name} links to {link}, which is not there"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{path.name}: no heading for {link}"


def test_the_glossary_names_paths_that_exist() -> None:
    package = ROOT / "src" / "opalite"
    paths = re.findall(r"`([\w/]+(?:/|\.py))`", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    missing = [p for p in paths if not (package / p).exists() and p != "src/opalite/"]
    assert len(paths) > 40
    assert not missing, f"docs/glossary.md names {missing}"
