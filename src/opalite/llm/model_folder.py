"""ModelFolder: files and configuration of a language model, as written by optimum and onnxruntime-genai.

`hf:OWNER/NAME` is downloaded from the Hugging Face Hub.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelFileError
from ..extras import need

Json = Mapping[str, Any]

_DECODERS = ("decoder_model_merged.onnx", "model.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx")
"""File names of decoders in order of preference."""
_FIRST = "decoder_model.onnx"
_WITH_PAST = "decoder_with_past_model.onnx"
_ENCODERS = ("encoder_model.onnx", "encoder.onnx")
_EMBEDDINGS = ("embed_tokens", "embedding")
_VISION = ("vision_encoder", "vision")
_SUBFOLDERS = ("", "onnx")
"""Subfolders of the model's folder with .onnx files."""
_HUB = "hf:"
_HUB_CONFIGS = ["*.json", "*.jinja"]
_HUB_ENCODERS = ["*encoder_model.onnx*", "*encoder.onnx*", "*embed_tokens.onnx*"]
_HUB_MODELS = ["*.onnx", "*.onnx_data*", "*.onnx.data*"]


@dataclass(frozen=True)
class ModelFolder:
    """Folder of a language model.

    decoder: file run for each token. prompt_decoder: file without caches that reads the prompt if the decoder needs
    caches. encoder: file of an encoder-decoder model. embedding, vision: files that turn tokens and pictures into
    vectors, for decoders that read these. config, generation, genai, tokenizer, preprocessor: contents of
    config.json, generation_config.json, genai_config.json, tokenizer_config.json and preprocessor_config.json; empty if
    the file is missing.
    """

    path: Path
    decoder: Path
    prompt_decoder: Path | None = None
    encoder: Path | None = None
    embedding: Path | None = None
    vision: Path | None = None
    config: Json = field(default_factory=dict)
    generation: Json = field(default_factory=dict)
    genai: Json = field(default_factory=dict)
    tokenizer: Json = field(default_factory=dict)
    preprocessor: Json = field(default_factory=dict)

    @property
    def genai_model(self) -> Json:
        found: Json = self.genai.get("model", {})
        return found

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids of tokens that end a text, from all configuration files."""
        return frozenset(n for config in self._configs for n in _numbers(config.get("eos_token_id")))

    @property
    def start_token(self) -> int | None:
        """Token that a text begins with: the decoder's own, else that of texts, else padding."""
        return self._first("decoder_start_token_id", "bos_token_id", "pad_token_id")

    @property
    def decoder_start_token(self) -> int | None:
        """Start token of the decoder of an encoder-decoder model, if a configuration names it."""
        return self._first("decoder_start_token_id")

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens, if declared."""
        text = self.config.get("text_config", {})
        found = (c.get("vocab_size") for c in (self.genai_model, self.config, text))
        return next((n for n in found if isinstance(n, int) and n > 0), None)

    @property
    def image_token(self) -> int | None:
        """Token in whose place a picture is."""
        return self._first("image_token_id", "image_token_index")

    @property
    def width(self) -> int | None:
        """Size of a token's vector, if declared."""
        text = self.config.get("text_config", {})
        found = (c.get("hidden_size") for c in (self.genai_model.get("decoder", {}), self.config, text))
        return next((n for n in found if isinstance(n, int) and n > 0), None)

    def _first(self, *names: str) -> int | None:
        numbers = (_numbers(config.get(name)) for name in names for config in self._configs)
        return next((found[0] for found in numbers if found), None)

    @property
    def context_length(self) -> int | None:
        """Context length of the model in tokens, if declared."""
        text = self.config.get("text_config", {})
        names = ("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions", "max_seq_len")
        found = [self.genai_model.get("context_length"), *(c.get(n) for c in (self.config, text) for n in names)]
        return next((int(n) for n in found if isinstance(n, int) and n > 0), None)

    def setting(self, name: str) -> Any:
        """Return a generation setting from generation_config.json or "search" of genai_config.json, else None."""
        found = self.generation.get(name)
        return self.genai.get("search", {}).get(name) if found is None else found

    @property
    def _configs(self) -> tuple[Json, ...]:
        return self.generation, self.genai_model, self.config


def _numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, bool) or value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(int(n) for n in value)


def open_folder(path: str | os.PathLike[str], file: str | None = None) -> ModelFolder:
    """Open the folder at `path`, or the folder of the .onnx file at `path`.

    file: the decoder's file if the folder has several (model_q4.onnx). ModelFileError names a missing file.
    """
    given = Path(path)
    if given.suffix == ".onnx":
        given, file = given.parent, given.name if file is None else file
    if not given.is_dir():
        raise ModelFileError(f"{given} is no folder of a model: there is {'a file' if given.exists() else 'nothing'}")
    genai = read_config(given / "genai_config.json")
    decoder = _decoder(given, file or genai.get("model", {}).get("decoder", {}).get("filename"))
    with_past = decoder.name == _WITH_PAST
    prompt_decoder = decoder.with_name(_FIRST)
    return ModelFolder(
        given,
        decoder,
        prompt_decoder if with_past and prompt_decoder.exists() else None,
        _encoder(decoder, genai.get("model", {}).get("encoder", {}).get("filename")),
        _beside(decoder, _EMBEDDINGS, genai.get("model", {}).get("embedding", {}).get("filename")),
        _beside(decoder, _VISION, genai.get("model", {}).get("vision", {}).get("filename")),
        read_config(given / "config.json"),
        read_config(given / "generation_config.json"),
        genai,
        read_config(given / "tokenizer_config.json"),
        read_config(given / "preprocessor_config.json"),
    )


def read_config(path: Path) -> Json:
    """The object in a JSON file, {} without the file. InputError for other contents."""
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}") from e
    if not isinstance(contents, dict):
        raise InputError(f"{path} holds no JSON object, but a {type(contents).__name__}")
    return contents


def _decoder(folder: Path, file: str | None) -> Path:
    if file is not None:
        found = next((p for subfolder in _SUBFOLDERS if (p := folder / subfolder / file).exists()), None)
        if found is None:
            raise ModelFileError(f"{folder} has no {file}; its models are {_listed(folder)}")
        return found
    known = next(
        (p for subfolder in _SUBFOLDERS for name in _DECODERS if (p := folder / subfolder / name).exists()), None
    )
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


def _beside(decoder: Path, stems: Sequence[str], file: str | None) -> Path | None:
    """Find the file that belongs to a decoder: of the same kind (embed_tokens_q4.onnx), else the plain one."""
    kind = decoder.stem.removeprefix("decoder").removeprefix("_model").removeprefix("_merged").removeprefix("model")
    names = [f"{stem}{k}.onnx" for stem in stems for k in dict.fromkeys((kind, ""))] if file is None else [file]
    return next((p for name in names if (p := decoder.with_name(name)).exists()), None)


def _models(folder: Path) -> Iterator[Path]:
    for subfolder in _SUBFOLDERS:
        yield from sorted((folder / subfolder).glob("*.onnx"))


def _listed(folder: Path) -> str:
    return ", ".join(str(p.relative_to(folder)) for p in _models(folder)) or "none"


def local_path(model: str | os.PathLike[str], file: str | None = None) -> Path:
    """Return the path of a model: the given path, or the downloaded `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`.

    file: download only this decoder with its data; None: all. ModelFileError if the download fails; files downloaded
    before are reused.
    """
    name = os.fspath(model)
    if not name.startswith(_HUB):
        return Path(model)
    hub = need("huggingface_hub", f"a model of the Hugging Face Hub ({name})", "llm")
    repository, _, revision = name.removeprefix(_HUB).partition("@")
    files = _HUB_MODELS if file is None else [f"*{file}*", *_HUB_ENCODERS]
    try:
        found = hub.snapshot_download(repository, revision=revision or None, allow_patterns=[*_HUB_CONFIGS, *files])
    except Exception as e:  # of the network, the hub or the name: the package raises many types
        raise ModelFileError(f"{name} cannot be fetched: {e}") from e
    return Path(found)
