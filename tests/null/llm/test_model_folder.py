"""Model folders: choice of files, and settings of their configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opalite.errors import InputError, ModelFileError
from opalite.llm.model_folder import open_folder


def make(folder: Path, *models: str, **configs: Any) -> Path:
    for name in models:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    for name, told in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(told))
    return folder


@pytest.mark.parametrize(
    "models, decoder, first, encoder",
    [
        (["model.onnx"], "model.onnx", None, None),
        (["onnx/model.onnx", "onnx/model_q4.onnx"], "model.onnx", None, None),
        (["model_quantized.onnx"], "model_quantized.onnx", None, None),
        (
            ["decoder_model.onnx", "decoder_with_past_model.onnx"],
            "decoder_with_past_model.onnx",
            "decoder_model.onnx",
            None,
        ),
        (
            ["encoder_model.onnx", "decoder_model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx"],
            "decoder_model_merged.onnx",
            None,
            "encoder_model.onnx",
        ),
    ],
)
def test_files(tmp_path: Path, models: list[str], decoder: str, first: str | None, encoder: str | None) -> None:
    found = open_folder(make(tmp_path, *models))
    assert found.decoder.name == decoder
    assert (found.prompt_decoder and found.prompt_decoder.name) == first
    assert (found.encoder and found.encoder.name) == encoder


def test_genai_names_its_files(tmp_path: Path) -> None:
    told = {"decoder": {"filename": "text.onnx"}, "encoder": {"filename": "sound.onnx"}, "context_length": 77}
    found = open_folder(make(tmp_path, "text.onnx", "sound.onnx", genai_config={"model": told}))
    assert found.decoder.name == "text.onnx"
    assert found.encoder is not None
    assert found.encoder.name == "sound.onnx"
    assert found.context_length == 77


def test_a_file_may_be_named(tmp_path: Path) -> None:
    make(tmp_path, "onnx/model.onnx", "onnx/model_q4.onnx")
    assert open_folder(tmp_path, "model_q4.onnx").decoder.name == "model_q4.onnx"
    assert open_folder(tmp_path / "onnx" / "model_q4.onnx").decoder.name == "model_q4.onnx"
    with pytest.raises(ModelFileError, match=r"no model_q8.onnx; its models are onnx/model.onnx, onnx/model_q4.onnx"):
        open_folder(tmp_path, "model_q8.onnx")


def test_what_the_configurations_tell(tmp_path: Path) -> None:
    make(
        tmp_path,
        "model.onnx",
        config={"eos_token_id": 2, "max_position_embeddings": 640, "bos_token_id": 1},
        generation_config={"eos_token_id": [2, 7], "temperature": 0.6, "do_sample": True},
        genai_config={"model": {"eos_token_id": 9}, "search": {"temperature": 0.1, "top_k": 3}},
    )
    found = open_folder(tmp_path)
    assert found.end_tokens == {2, 7, 9}
    assert (found.start_token, found.context_length) == (1, 640)
    assert (found.setting("temperature"), found.setting("top_k"), found.setting("top_p")) == (0.6, 3, None)


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no folder of a model"):
        open_folder(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="its models are none"):
        open_folder(tmp_path)
    make(tmp_path, "a.onnx", "b.onnx")
    with pytest.raises(ModelFileError, match=r"a\.onnx, b\.onnx: name one"):
        open_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        open_folder(tmp_path, "a.onnx")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InputError, match="no JSON object"):
        open_folder(tmp_path, "a.onnx")
