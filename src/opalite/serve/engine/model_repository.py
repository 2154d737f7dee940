"""Repository: finds models and their versions, in named files or a folder.

    FOLDER/NAME/VERSION/model.onnx      or model.opal, model.tflite, inference.json, inference.pdmodel, or a folder that
                                        a language model was exported to
    FOLDER/NAME/config.pbtxt            optional
    FOLDER/NAME/model.onnx              a model without versions is version 1

Names sent by clients are compared with the folder's listing, and never become part of a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ...errors import InputError
from ...ir.model_paths import PROGRAMS, params_of, program_in
from ...llm.embedding_folder import holds_embeddings
from ..wire.serve_errors import Invalid, NotFound
from .model_config import ModelConfig, ServerSettings

CONFIG = "config.pbtxt"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,254}")
_FILES = ("model.opal", "model.onnx", "model.tflite", *PROGRAMS)
_MODELS = (".onnx", ".tflite", ".pdmodel", ".json")  # endings of files that sessions import
Kind = Literal["onnx", "opal", "text", "embedding"]
_MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class ModelSource:
    """A version of a model. path: a file, or a language model's folder. signature: times and sizes of the files."""

    name: str
    version: int
    path: Path
    kind: Kind
    signature: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class RepositoryModel:
    """A model: its versions, configuration, and configuration fields without effect."""

    sources: tuple[ModelSource, ...]
    config: ModelConfig
    ignored: tuple[str, ...] = ()

    @property
    def chosen(self) -> tuple[ModelSource, ...]:
        """The versions selected by the version policy. Invalid for a missing one."""
        policy = self.config.version_policy
        if policy.kind == "all":
            return self.sources
        if policy.kind == "latest":
            return self.sources[-policy.latest :]
        found = tuple(s for s in self.sources if s.version in policy.specific)
        if missing := set(policy.specific) - {s.version for s in found}:
            raise Invalid(f"model '{self.config.name}' has no version {min(missing)}, which its configuration asks for")
        return found


class Repository:
    """Reads the file system at each call."""

    def __init__(self, settings: ServerSettings) -> None:
        """InputError for missing models and folders."""
        self._files = {name: program_in(path) or Path(path) for name, path in settings.models.items()}
        self._folder = settings.repository
        for name, path in self._files.items():
            if not _NAME.fullmatch(name):
                raise InputError(f"a model's name has letters, digits, '_', '-' and '.', got {name!r}")
            if not path.exists():
                raise InputError(f"model '{name}': there is no {path}")
        if self._folder is not None and not self._folder.is_dir():
            raise InputError(f"the repository {self._folder} is no folder")

    def names(self) -> list[str]:
        """Names of all models, servable or not."""
        return sorted({*self._files, *self._folders()})

    def find(self, name: str, config: Mapping[str, Any] | None = None) -> RepositoryModel:
        """Find a model. config: JSON in place of its config.pbtxt. NotFound, Invalid."""
        if name in self._files:
            path = self._files[name]
            kind = _kind_of(path)
            if kind is None:
                raise Invalid(
                    f"model '{name}': {path} is no model file (.onnx, .tflite, .pdmodel, .json), no .opal bundle and "
                    "no folder with a tokenizer.json or a Paddle program"
                )
            made, ignored = _config_of(name, None, config)
            return RepositoryModel((ModelSource(name, 1, path, kind, _signature(_files_of(path))),), made, ignored)
        folder = self._folders().get(name)
        if folder is None:
            raise NotFound(f"the repository has no model '{name[:255]}'")
        made, ignored = _config_of(name, folder / CONFIG, config)
        sources = tuple(sorted(_sources(name, folder, made), key=lambda s: s.version))
        if not sources:
            wanted = made.default_model_filename or " or ".join(_FILES)
            raise Invalid(f"model '{name}' has no version: {folder} has no folder with a number that holds {wanted}")
        return RepositoryModel(sources, made, ignored)

    def _folders(self) -> dict[str, Path]:
        if self._folder is None:
            return {}
        return {p.name: p for p in sorted(self._folder.iterdir()) if _NAME.fullmatch(p.name) and p.is_dir()}


def name_of(path: Path) -> str:
    """The served name of a file or folder on the command line."""
    path = path.parent if path.name in PROGRAMS else path
    name = path.stem if path.suffix in (".opal", *_MODELS) else path.resolve().name
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name).lstrip(".-") or "model"


def _sources(name: str, folder: Path, config: ModelConfig) -> Iterable[ModelSource]:
    config_file = folder / CONFIG
    versions = [p for p in folder.iterdir() if p.name.isascii() and p.name.isdigit() and p.is_dir()]
    for version, place in [(int(p.name), p) for p in versions if int(p.name) > 0] or [(1, folder)]:
        path = _model_in(place, config)
        if path is not None and (kind := _kind_of(path)) is not None:
            yield ModelSource(name, version, path, kind, _signature([*_files_of(path), config_file]))


def _model_in(folder: Path, config: ModelConfig) -> Path | None:
    names = (config.default_model_filename,) if config.default_model_filename else _FILES
    found = next((folder / n for n in names if (folder / n).is_file()), None)
    if _kind_of(folder) is not None and not config.default_model_filename:
        return folder
    return found


def _kind_of(path: Path) -> Kind | None:
    """The kind of a model. InputError for a folder whose configuration cannot be read."""
    if path.is_dir():
        if not (path / "tokenizer.json").is_file():
            return None
        return "embedding" if holds_embeddings(path) else "text"
    return "opal" if path.suffix == ".opal" else "onnx" if path.suffix in _MODELS or path.name in PROGRAMS else None


def _files_of(path: Path) -> list[Path]:
    """The model's files: a program has its parameters in another."""
    params = params_of(path) if path.is_file() else None
    return [path] if params is None else [path, params]


def _signature(paths: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """Path, time and size of the files at `paths` and below."""
    files = [
        f for p in paths for f in ([p] if p.is_file() else sorted(p.rglob("*")) if p.is_dir() else []) if f.is_file()
    ]
    return tuple((str(f), s.st_mtime_ns, s.st_size) for f in files for s in [f.stat()])


def _config_of(name: str, path: Path | None, given: Mapping[str, Any] | None) -> tuple[ModelConfig, tuple[str, ...]]:
    """The configuration, and names of fields without effect."""
    if given is None and (path is None or not path.is_file()):
        return ModelConfig(name=name), ()
    from .triton_config import config_from_json, config_from_text  # needs protobuf

    if given is not None:
        made, ignored = config_from_json(given, f"the configuration of model '{name}'")
    else:
        assert path is not None
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise Invalid(f"{path} is larger than {_MAX_CONFIG_BYTES} bytes")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise Invalid(f"{path} cannot be read: {e}") from e
        made, ignored = config_from_text(text, str(path))
    if made.name not in ("", name):
        raise Invalid(f"model '{name}' has a configuration for '{made.name}'")
    return replace(made, name=name), ignored
