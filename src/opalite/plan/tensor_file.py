"""Arrays in one file: the safetensors format, each tensor aligned so that a mapped file serves as device memory.

Layout (https://huggingface.co/docs/safetensors): the header's length, 8 bytes little-endian; a JSON header with dtype,
shape and offsets of each tensor and a table of texts; the data without holes. Here the header is padded with spaces and
tensors named PAD… fill the gaps, so that every tensor starts at a multiple of ALIGN. Any safetensors reader reads it.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ALIGN = 256  # bytes; drivers ask for up to 128 of memory that they are to use in place
_PAD = "~pad"
_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 100 << 20  # bytes, the format's own limit
_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


class TensorFileError(ValueError):
    """The file is not whole, or not of this format."""


def write_tensors(path: Path, tensors: Mapping[str, Array], texts: Mapping[str, str]) -> None:
    """Write `tensors` and `texts` to `path` atomically: a reader sees the old file or the whole new one. OSError."""
    entries: dict[str, Any] = {"__metadata__": dict(texts)}
    blocks: list[Array] = []
    end = 0
    for name, array in tensors.items():
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        code = _CODES.get(array.dtype.name)
        shape = list(array.shape) if code else [flat.nbytes]  # what the format has no name for: bytes
        entries[name] = {"dtype": code or "U8", "shape": shape, "data_offsets": [end, end + flat.nbytes]}
        blocks.append(flat)
        end += flat.nbytes
        if gap := -end % ALIGN:
            entries[f"{_PAD}{len(blocks)}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [end, end + gap]}
            blocks.append(np.zeros(gap, np.uint8))
            end += gap
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + _LENGTH.size) % ALIGN)
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as f:
            f.write(_LENGTH.pack(len(header)) + header)
            for block in blocks:
                f.write(block.data)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


class TensorFile:
    """A file of tensors, memory-mapped: what is read of an array comes from the file, and is shared between processes.

    Arrays are read-only and keep the mapping alive. OSError if there is no such file, TensorFileError if it is not
    whole. Whether contents are what was written, the reader has to check.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size < _LENGTH.size:
                raise TensorFileError(f"it has {size} bytes")
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        (length,) = _LENGTH.unpack_from(self._map)
        self._start = _LENGTH.size + length
        if length > _MOST_HEADER or self._start > size:
            raise TensorFileError(f"its header should have {length} bytes, the whole file has {size}")
        try:
            entries = json.loads(self._map[_LENGTH.size : self._start])
            self.texts: dict[str, str] = dict(entries.pop("__metadata__", {}))
            self._spans = {name: (int(e["data_offsets"][0]), int(e["data_offsets"][1])) for name, e in entries.items()}
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as e:
            raise TensorFileError(f"its header cannot be read: {e}") from e
        end = max((e for _, e in self._spans.values()), default=0)
        if self._start + end != size:
            raise TensorFileError(f"it should have {self._start + end} bytes and has {size}")

    def get(self, name: str) -> Array:
        """The bytes of a tensor as uint8 [nbytes]. KeyError for a name that is not in the file."""
        begin, end = self._spans[name]
        if not 0 <= begin <= end:
            raise TensorFileError(f"tensor {name!r} lies at {begin} to {end}")
        if begin == end:
            return np.empty(0, np.uint8)
        return np.frombuffer(self._map, np.uint8, end - begin, self._start + begin)
