"""Parameters: tensors one after another in a `.pdiparams` file, or each in a file of its own name."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....errors import ModelFileError, ModelFormatError
from ....ir import Array, DType
from ....ir.constants.lazy_array import LARGE, LazyArray
from ....ir.constants.model_file import FilePart, ModelFile
from .dtypes import by_number
from .messages import message

_LARGEST_DESC = 1 << 16  # bytes of a TensorDesc
_DAMAGED = "the file is cut off, or belongs to another program"


def read_combined(source: bytes | ModelFile, names: Sequence[str], what: str) -> dict[str, Array | LazyArray]:
    """Return the tensors of one file, which holds them in the order of sorted names."""
    found: dict[str, Array | LazyArray] = {}
    offset = 0
    for name in sorted(names):
        found[name], offset = _tensor(source, offset, name, what)
    size = _size(source)
    if offset != size:
        raise ModelFormatError(
            f"{what} has {size} bytes, but the {len(names)} parameters of the program take {offset}: it belongs to "
            "another program"
        )
    return found


def read_separate(folder: Path, names: Sequence[str]) -> tuple[dict[str, Array | LazyArray], dict[str, ModelFile]]:
    """Return the tensors of files named as the parameters, and the files."""
    found: dict[str, Array | LazyArray] = {}
    files: dict[str, ModelFile] = {}
    for name in names:
        path = folder / name
        try:
            if path.resolve().parent != folder.resolve():
                raise ModelFormatError(f"parameter '{name}' names a file outside the program's folder")
            files[name] = ModelFile(path)
        except FileNotFoundError:
            raise ModelFileError(
                f"there is no file '{path}' with the parameter '{name}': give the folder with all parameters, or the "
                ".pdiparams file"
            ) from None
        except (OSError, ValueError) as e:
            raise ModelFormatError(f"parameter '{name}' is not in a file of its name: {e}") from e
        found[name], _ = _tensor(files[name], 0, name, f"'{path}'")
    return found, files


def _size(source: bytes | ModelFile) -> int:
    return source.size if isinstance(source, ModelFile) else len(source)


def _tensor(source: bytes | ModelFile, offset: int, name: str, what: str) -> tuple[Array | LazyArray, int]:
    """Return the tensor at `offset` and the offset behind it."""

    def part(nbytes: int) -> bytes:
        nonlocal offset
        if offset + nbytes > _size(source):
            raise ModelFormatError(f"{what} ends within the parameter '{name}': {_DAMAGED}")
        offset += nbytes
        at = offset - nbytes
        return source.read(at, nbytes).tobytes() if isinstance(source, ModelFile) else source[at:offset]

    version, levels = struct.unpack("<IQ", part(12))
    if version or levels > 64:
        raise ModelFormatError(f"parameter '{name}' at byte {offset - 12} of {what} is no tensor: {_DAMAGED}")
    for _ in range(levels):  # offsets of sequences, which parameters do not have
        (nbytes,) = struct.unpack("<Q", part(8))
        part(min(nbytes, _size(source)))
    version, length = struct.unpack("<Ii", part(8))
    if version or not 0 < length <= _LARGEST_DESC:
        raise ModelFormatError(f"parameter '{name}' in {what} has no description: {_DAMAGED}")
    try:
        desc = message("TensorDesc").FromString(part(length))
    except ModelFormatError:
        raise
    except Exception as e:  # protobuf's DecodeError
        raise ModelFormatError(f"parameter '{name}' in {what} has no description: {_DAMAGED}") from e
    dtype, shape = by_number(desc.data_type), tuple(desc.dims)
    nbytes = math.prod(shape) * dtype.size
    if any(d < 0 for d in shape) or offset + nbytes > _size(source):
        raise ModelFormatError(f"parameter '{name}' of {what} is {dtype}{list(shape)}, which exceeds it: {_DAMAGED}")
    return _held(source, offset, nbytes, dtype, shape), offset + nbytes


def _held(
    source: bytes | ModelFile, offset: int, nbytes: int, dtype: DType, shape: tuple[int, ...]
) -> Array | LazyArray:
    if isinstance(source, ModelFile):
        kept = FilePart(source, offset, nbytes)
        return kept.held(dtype.np, shape) if nbytes >= LARGE else kept.read().view(dtype.np).reshape(shape)
    array: Array = np.frombuffer(source, dtype.np, math.prod(shape), offset).reshape(shape)
    return array if nbytes < LARGE else LazyArray(dtype.np, shape, lambda: array, array)
