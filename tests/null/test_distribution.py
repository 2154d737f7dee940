"""The distribution's name: documents and messages tell users to install what pyproject.toml calls it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("src", "docs", "examples", "deploy", "tests", "benchmarks")
EXTRAS = "|".join(PROJECT["optional-dependencies"])
INSTALLED = re.compile(rf"(?<![\w.])(opalite(?:-\w+)?)\[(?:{EXTRAS}|\{{extra\}})[,\]]")


def test_extras_are_named_by_the_distribution() -> None:
    assert PROJECT["name"] == "opalite-cl", "opalite on PyPI is another project"
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"]
    pages += [p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.suffix in (".py", ".md", ".sh", ".yaml")]
    wrong, right = [], 0
    for page in pages:
        for name in INSTALLED.findall(page.read_text()):
            right += name == PROJECT["name"]
            wrong += [f"{page.relative_to(ROOT)}: {name}["] if name != PROJECT["name"] else []
    assert wrong == []
    assert right > 10


def test_import_and_command_keep_their_name() -> None:
    assert set(PROJECT["scripts"]) == {"opalite"}
