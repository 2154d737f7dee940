"""Hugging Face Hub: downloads models that are named as `hf:OWNER/NAME`."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelFileError
from ..extras import need

PREFIX = "hf:"
_CONFIGS = ["*.json", "*.jinja"]
_ENCODERS = ["*encoder_model.onnx*", "*encoder.onnx*"]
_MODELS = ["*.onnx", "*.onnx_data*", "*.onnx.data*"]


def local_path(model: str | os.PathLike[str], file: str | None = None) -> Path:
    """Return the path of a model: the given path, or the downloaded `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`.

    file: download only this decoder with its data; None: all. ModelFileError if the download fails; files downloaded
    before are reused.
    """
    name = os.fspath(model)
    if not name.startswith(PREFIX):
        return Path(model)
    hub = need("huggingface_hub", f"a model of the Hugging Face Hub ({name})", "llm")
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    files = _MODELS if file is None else [f"*{file}*", *_ENCODERS]
    try:
        found = hub.snapshot_download(repository, revision=revision or None, allow_patterns=[*_CONFIGS, *files])
    except Exception as e:  # of the network, the hub or the name: the package raises many types
        raise ModelFileError(f"{name} cannot be fetched: {e}") from e
    return Path(found)
