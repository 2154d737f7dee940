"""Models of the Hub: downloaded only if named so; a fake package replaces the network."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opalite.errors import ExtraError, ModelFileError
from opalite.llm import model_folder


def test_paths_stay_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "need", None)
    assert model_folder.local_path("a/hf:b") == Path("a/hf:b")
    assert model_folder.local_path(Path("folder")) == Path("folder")


def test_what_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def download(name: str, **options: Any) -> str:
        asked.append((name, options["revision"], options["allow_patterns"]))
        return "/fetched"

    monkeypatch.setattr(model_folder, "need", lambda *_: SimpleNamespace(snapshot_download=download))
    assert model_folder.local_path("hf:some/model") == Path("/fetched")
    model_folder.local_path("hf:some/model@v2", "model_q4.onnx")
    assert asked[0][:2] == ("some/model", None)
    assert {"*.json", "*.onnx", "*.onnx_data*"} <= set(asked[0][2])
    assert asked[1][:2] == ("some/model", "v2")
    assert "*model_q4.onnx*" in asked[1][2]
    assert "*.onnx" not in asked[1][2]


def test_why_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, **options: Any) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr(model_folder, "need", lambda *_: SimpleNamespace(snapshot_download=download))
    with pytest.raises(ModelFileError, match="hf:some/model cannot be fetched: no route to host"):
        model_folder.local_path("hf:some/model")
    monkeypatch.undo()
    monkeypatch.setattr("opalite.extras.import_module", lambda name: exec("raise ImportError"))
    with pytest.raises(ExtraError, match=r"hf:some/model\) needs the package 'huggingface_hub': pip install"):
        model_folder.local_path("hf:some/model")
