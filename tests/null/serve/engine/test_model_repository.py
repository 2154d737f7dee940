"""Models in a folder and on the command line: versions, configurations, and names that are no paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from opalite.errors import InputError
from opalite.serve.engine.model_config import ModelConfig, ServerSettings, VersionPolicy
from opalite.serve.engine.model_repository import Repository, RepositoryModel, name_of
from opalite.serve.wire.serve_errors import Invalid, NotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place in (
        "many/1/model.onnx",
        "many/12/model.onnx",
        "many/2/model.opal",
        "flat/model.onnx",
        "empty/1/other.onnx",
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("x")
    for place in ("many/0/model.onnx", "many/-3/model.onnx", ".git/1/model.onnx"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("x")
    (tmp_path / "writer" / "3").mkdir(parents=True)
    (tmp_path / "writer" / "3" / "tokenizer.json").write_text("{}")
    (tmp_path / "writer" / "3" / "model.onnx").write_text("x")
    return tmp_path


def test_versions_are_numbers(folder: Path) -> None:
    repository = Repository(ServerSettings(repository=folder))
    assert repository.names() == ["empty", "flat", "many", "writer"]
    found = repository.find("many")
    assert [(s.version, s.kind) for s in found.sources] == [(1, "onnx"), (2, "opal"), (12, "onnx")]
    assert [s.version for s in found.chosen] == [12]
    assert [(s.version, s.path) for s in repository.find("flat").sources] == [(1, folder / "flat" / "model.onnx")]
    text = repository.find("writer").chosen[0]
    assert (text.kind, text.path, text.version) == ("text", folder / "writer" / "3", 3)
    with pytest.raises(Invalid, match="'empty' has no version"):
        repository.find("empty")


@pytest.mark.parametrize(
    "policy, chosen",
    [
        (VersionPolicy("latest", 2), [2, 12]),
        (VersionPolicy("all"), [1, 2, 12]),
        (VersionPolicy("specific", specific=(1,)), [1]),
    ],
)
def test_policies_choose_versions(folder: Path, policy: VersionPolicy, chosen: list[int]) -> None:
    sources = Repository(ServerSettings(repository=folder)).find("many").sources
    assert [s.version for s in RepositoryModel(sources, ModelConfig(version_policy=policy)).chosen] == chosen
    with pytest.raises(Invalid, match="no version 7"):
        _ = RepositoryModel(sources, ModelConfig(version_policy=VersionPolicy("specific", specific=(7,)))).chosen


@pytest.mark.parametrize("name", ["..", "many/1", "../many", ".git", "/etc", "many\x00", "", "no" * 4000])
def test_no_name_leads_out_of_the_folder(folder: Path, name: str) -> None:
    with pytest.raises(NotFound):
        Repository(ServerSettings(repository=folder / "many" / ".." / "../" / folder.name)).find(name)


def test_changes_of_files_are_seen(folder: Path) -> None:
    repository = Repository(ServerSettings(repository=folder))
    before = repository.find("flat")
    assert repository.find("flat") == before
    (folder / "flat" / "model.onnx").write_text("another")
    assert repository.find("flat") != before


def test_files_of_the_command_line(folder: Path) -> None:
    path = folder / "flat" / "model.onnx"
    repository = Repository(ServerSettings(models={"one": path}))
    assert repository.find("one").chosen[0].path == path
    assert name_of(path) == "model"
    assert name_of(folder / "writer" / "3") == "3"
    assert name_of(Path("a b é.onnx")) == "a_b__"
    with pytest.raises(InputError, match="there is no"):
        Repository(ServerSettings(models={"one": folder / "nothing.onnx"}))
    with pytest.raises(InputError, match="a model's name"):
        Repository(ServerSettings(models={"../one": path}))
    with pytest.raises(InputError, match="is no folder"):
        Repository(ServerSettings(repository=path))
    (folder / "notes.txt").write_text("x")
    with pytest.raises(Invalid, match=r"is no model file \(\.onnx"):
        Repository(ServerSettings(models={"one": folder / "notes.txt"})).find("one")


def test_programs_of_paddle_are_models_with_their_parameters(tmp_path: Path) -> None:
    place = tmp_path / "ocr" / "1"
    place.mkdir(parents=True)
    (place / "inference.json").write_text("{}")
    (place / "inference.pdiparams").write_bytes(b"1")
    repository = Repository(ServerSettings(repository=tmp_path))
    (source,) = repository.find("ocr").chosen
    assert (source.path, source.kind) == (place / "inference.json", "onnx")
    (place / "inference.pdiparams").write_bytes(b"12")  # seen as another version of the model
    assert repository.find("ocr").chosen[0].signature != source.signature
    assert Repository(ServerSettings(models={"ocr": place})).find("ocr").chosen[0].path == source.path
    assert name_of(tmp_path / "ocr" / "inference.json") == "ocr"
