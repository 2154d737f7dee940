"""Formats of model files: found by the bytes, or by the name where these do not decide, and read by their readers."""

from __future__ import annotations

import os
import re
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from ..errors import ModelError, ModelFileError, ModelFormatError
from ..ir.constants.model_file import ModelFile
from ..ir.model_edits import ModelEdits
from ..ir.model_paths import program_in
from .model import Model
from .onnx_file import Weights, make_onnx_model, parse_onnx
from .other_formats import describe_bytes, describe_folder, describe_name
from .proto.decode import file_kind

_PIPE_S = 1.0  # wait in seconds for a writer to open a pipe

Reader = Callable[[bytes | ModelFile, str, Path | None, ModelEdits | None], Model]
"""Reads a file of one format: its contents, their name in messages, their path if there is one, edits."""


def load_model(
    source: str | os.PathLike[str] | bytes | Any,
    folder: str | os.PathLike[str] | None = None,
    edits: ModelEdits | None = None,
    file: ModelFile | None = None,
) -> Model:
    """Load a model from a path, the bytes of a file, or a ModelProto, and apply `edits`.

    External data is read from the folder of the file, or from `folder`. file: the file at the path, if it is open
    already. Raises ModelFormatError if the bytes are no complete model or data files are missing, and
    UnsupportedOpError for operators without an implementation.
    """
    path: Path | None = None
    contents: bytes | ModelFile | None = None
    what = "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        contents, what = bytes(source), "the model given as bytes"
    elif isinstance(source, (str, os.PathLike)):
        path = program_in(source) or Path(source)
        contents, what = _open_file(path) if file is None else file, f"'{path}'"
    elif not isinstance(source, onnx.ModelProto):
        raise ModelFormatError(f"a model is a path, bytes or an onnx.ModelProto, got {type(source).__name__}")
    reader = None if contents is None else _find_reader(contents, what, path)
    proto, weights = (source, {}) if contents is None or reader is not None else _parse(contents, what, path)
    try:
        if contents is not None and reader is not None:
            return reader(contents, what, path, edits)
        base = Path(folder) if folder is not None else path.parent if path is not None else None
        return make_onnx_model(proto, weights, base, path, edits)
    except ModelError as e:
        e.add_context(f"while loading '{path}'" if path else "while loading the model")
        raise


def _parse(contents: bytes | ModelFile, what: str, path: Path | None) -> tuple[Any, Weights]:
    """Parse ONNX; where that fails, the name may show the format."""
    try:
        return parse_onnx(contents, what)
    except ModelFormatError as e:
        if (other := describe_name(path)) is None:
            raise
        raise ModelFormatError(f"{what} is not an ONNX model but {other}") from e


# Formats


def _find_reader(contents: bytes | ModelFile, what: str, path: Path | None) -> Reader | None:
    """Find the reader of a format other than ONNX; None for ONNX. ModelFormatError names formats that nothing reads."""
    size = contents.size if isinstance(contents, ModelFile) else len(contents)
    if not size:
        raise ModelFormatError(f"{what} is empty: a model was expected")
    head = contents.read(0, min(size, 64)).tobytes() if isinstance(contents, ModelFile) else contents[:64]
    if _is_paddle(head, path):
        from .paddle.read.file import read_paddle

        return read_paddle
    if head.startswith(b"TFL3", 4):
        from .tflite.read.file import read_tflite  # needs an extra

        return read_tflite
    if (other := describe_bytes(head, contents)) is not None:
        raise ModelFormatError(f"{what} is not an ONNX model but {other}")
    return None


_PROGRAM = re.compile(rb"\n[\x80-\xff]{0,4}[\x00-\x7f]\x08\x00\x10\xff{9}\x01", re.DOTALL)
"""How a ProgramDesc begins: a block of some length, number 0, whose parent is -1."""


def _is_paddle(head: bytes, path: Path | None) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        or _PROGRAM.match(head) is not None
        or (path is not None and path.suffix == ".pdmodel")
    )


# Files


def _open_file(path: Path) -> bytes | ModelFile:
    """Open the file at `path`; a pipe is read at once."""
    if path.is_dir():
        other = describe_folder(path)
        raise ModelFormatError(f"'{path}' is {other or 'a folder: give the model file in it'}")
    try:
        # Windows locks open files: the model could not be replaced.
        if path.is_fifo():
            return _read_pipe(path)
        if not path.is_file():
            raise ModelFormatError(f"'{path}' is {file_kind(path.stat().st_mode)}: give the model file itself")
        return ModelFile(path) if os.name == "posix" else path.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(f"there is no file '{path}'") from None
    except OSError as e:
        raise ModelFormatError(f"'{path}' cannot be read: {e.strerror or e}") from e
    except ValueError as e:  # for example a zero byte in the name
        raise ModelFormatError(f"{str(path)!r} cannot be the name of a file: {e}") from e


def _read_pipe(path: Path) -> bytes:
    """Read a pipe to its end; ModelFileError if no process opens it for writing within a second."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(number, "rb", buffering=0) as file:
        select.select([number], [], [], _PIPE_S)
        head = file.read(1 << 16)
        if head == b"":
            raise ModelFileError(f"'{path}' is a pipe that nobody writes to: give the model file itself")
        os.set_blocking(number, True)
        return (head or b"") + file.read()  # None: a writer has opened the pipe and not yet written
