"""ModelFolder: the files of a language model as optimum and onnxruntime-genai write them, and what they tell."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelFileError

Json = Mapping[str, Any]

_DECODERS = ("decoder_model_merged.onnx", "model.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx")
"""What a decoder's file is called, the one that serves best first."""
_FIRST = "decoder_model.onnx"
_WITH_PAST = "decoder_with_past_model.onnx"
_ENCODERS = ("encoder_model.onnx", "encoder.onnx")
_PLACES = ("", "onnx")
"""Folders below the model's own in which its .onnx files lie."""


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder.

    decoder: the file that is run for each token. first: another, without a cache, that is run on the prompt where the
    decoder cannot begin by itself. encoder: of an encoder-decoder.
    config, generation, genai, tokenizer, preprocessor: contents of config.json, generation_config.json,
    genai_config.json, tokenizer_config.json and preprocessor_config.json, empty where there is no such file.
    """

    path: Path
    decoder: Path
    first: Path | None = None
    encoder: Path | None = None
    config: Json = field(default_factory=dict)
    generation: Json = field(default_factory=dict)
    genai: Json = field(default_factory=dict)
    tokenizer: Json = field(default_factory=dict)
    preprocessor: Json = field(default_factory=dict)

    @property
    def told(self) -> Json:
        """What genai_config.json tells of the model."""
        found: Json = self.genai.get("model", {})
        return found

    @property
    def ends(self) -> frozenset[int]:
        """Numbers of the tokens that end a text, of all files that name some."""
        return frozenset(n for told in self._tellers for n in _numbers(told.get("eos_token_id")))

    @property
    def begin(self) -> int | None:
        """The token that the decoder of an encoder-decoder begins with."""
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
            for told in self._tellers:
                if numbers := _numbers(told.get(name)):
                    return numbers[0]
        return None

    @property
    def positions(self) -> int | None:
        """How many tokens the model can see, where it says so."""
        text = self.config.get("text_config", {})
        names = ("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions", "max_seq_len")
        found = [self.told.get("context_length"), *(told.get(n) for told in (self.config, text) for n in names)]
        return next((int(n) for n in found if isinstance(n, int) and n > 0), None)

    def setting(self, name: str) -> Any:
        """A setting of generation as generation_config.json or else genai_config.json's "search" has it, or None."""
        found = self.generation.get(name)
        return self.genai.get("search", {}).get(name) if found is None else found

    @property
    def _tellers(self) -> tuple[Json, ...]:
        return self.generation, self.told, self.config


def _numbers(told: Any) -> tuple[int, ...]:
    if isinstance(told, bool) or told is None:
        return ()
    return (told,) if isinstance(told, int) else tuple(int(n) for n in told)


def open_folder(path: str | os.PathLike[str], file: str | None = None) -> ModelFolder:
    """The folder at `path`, or around the .onnx file at `path`.

    file: the decoder's file, where the folder holds several (model_q4.onnx). ModelFileError says what is not there.
    """
    given = Path(path)
    if given.suffix == ".onnx":
        given, file = given.parent, given.name if file is None else file
    if not given.is_dir():
        raise ModelFileError(f"{given} is no folder of a model: there is {'a file' if given.exists() else 'nothing'}")
    genai = _read(given / "genai_config.json")
    decoder = _decoder(given, file or genai.get("model", {}).get("decoder", {}).get("filename"))
    with_past = decoder.name == _WITH_PAST
    first = decoder.with_name(_FIRST)
    return ModelFolder(
        given,
        decoder,
        first if with_past and first.exists() else None,
        _encoder(decoder, genai.get("model", {}).get("encoder", {}).get("filename")),
        _read(given / "config.json"),
        _read(given / "generation_config.json"),
        genai,
        _read(given / "tokenizer_config.json"),
        _read(given / "preprocessor_config.json"),
    )


def _read(path: Path) -> Json:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}") from e
    if not isinstance(told, dict):
        raise InputError(f"{path} holds no JSON object, but a {type(told).__name__}")
    return told


def _decoder(folder: Path, file: str | None) -> Path:
    if file is not None:
        found = next((p for place in _PLACES if (p := folder / place / file).exists()), None)
        if found is None:
            raise ModelFileError(f"{folder} has no {file}; its models are {_listed(folder)}")
        return found
    known = next((p for place in _PLACES for name in _DECODERS if (p := folder / place / name).exists()), None)
    if known is not None:
        return known
    others = [p for p in _models(folder) if "encoder" not in p.name.replace("decoder", "")]
    if len(others) != 1:
        raise ModelFileError(
            f"{folder} has none of {', '.join(_DECODERS)}; its models are {_listed(folder)}: name one by file="
        )
    return others[0]


def _encoder(decoder: Path, file: str | None) -> Path | None:
    names = _ENCODERS if file is None else (file,)
    return next((p for name in names if (p := decoder.with_name(name)).exists() and p != decoder), None)


def _models(folder: Path) -> Iterator[Path]:
    for place in _PLACES:
        yield from sorted((folder / place).glob("*.onnx"))


def _listed(folder: Path) -> str:
    return ", ".join(str(p.relative_to(folder)) for p in _models(folder)) or "none"
