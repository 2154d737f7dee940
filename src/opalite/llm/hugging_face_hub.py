"""Models of the Hugging Face Hub: fetched where a model is asked for by `hf:OWNER/NAME`, and never else."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelFileError
from ..extras import need

MARK = "hf:"
_CONFIGS = ["*.json", "*.jinja"]
_ENCODERS = ["*encoder_model.onnx*", "*encoder.onnx*"]
_MODELS = ["*.onnx", "*.onnx_data*", "*.onnx.data*"]


def local_path(model: str | os.PathLike[str], file: str | None = None) -> Path:
    """Where a model lies: a path as it is, or the folder that `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION` comes to.

    file: of its decoders the one that is wanted, with its data; None for all. ModelFileError says why there is
    nothing; what was fetched before is not fetched again.
    """
    name = os.fspath(model)
    if not name.startswith(MARK):
        return Path(model)
    hub = need("huggingface_hub", f"a model of the Hugging Face Hub ({name})", "llm")
    repository, _, revision = name.removeprefix(MARK).partition("@")
    files = _MODELS if file is None else [f"*{file}*", *_ENCODERS]
    try:
        found = hub.snapshot_download(repository, revision=revision or None, allow_patterns=[*_CONFIGS, *files])
    except Exception as e:  # of the network, the hub and the name: the package has many
        raise ModelFileError(f"{name} cannot be fetched: {e}") from e
    return Path(found)
