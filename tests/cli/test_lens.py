"""`opalite lens`: the page and the document as files, of a device that is not here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import onnx
from opalite.cli import main

from ..helpers.small_models import classifier


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.onnx"
    onnx.save(classifier((1, 3, 16, 16)), path)
    return path


def run(model: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["lens", str(model), "--device", "adreno_640", *args])


def finite(text: str) -> Any:
    """JSON as other languages read it: without NaN and infinity."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


def test_the_page_is_the_default(model: Path) -> None:
    for package in ("bokeh", "fast_sugiyama"):
        pytest.importorskip(package, reason="the extra opalite-cl[lens] is not installed")
    result = run(model)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == "wrote small.lens.html"
    html = Path("small.lens.html").read_text("utf-8")
    assert html.startswith("<!doctype html>")
    assert "<title>small.onnx - opalite lens</title>" in html


def test_a_document_needs_no_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    result = run(model, "-o", "small.json", "--json")
    assert result.exit_code == 0, result.output
    written = finite(Path("small.json").read_text())
    assert finite(result.stdout) == written
    assert [n["name"] for n in written["documents"][0]["graph"]["nodes"]][:2] == ["conv1", "relu1"]
    assert not Path("small.lens.html").exists()
    against = run(model, "--against", "small.json", "--json")
    assert len(finite(against.stdout)["comparisons"]) == 1


def test_a_run_without_timers_stands_in_the_heading(model: Path) -> None:
    result = CliRunner().invoke(main, ["lens", str(model), "--runs", "2", "--json"])
    assert result.exit_code == 0, result.output
    header = finite(result.stdout)["documents"][0]["header"]
    assert header["steady_ms"] > 0
    assert header["run_ms"] > 0


def test_a_missing_extra_is_told_before_the_work(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    monkeypatch.setattr("opalite.cli.lens._document", lambda *args: pytest.fail("the model was taken up"))
    result = run(model)
    assert result.exit_code == 1
    assert "pip install 'opalite-cl[lens]'" in result.output
