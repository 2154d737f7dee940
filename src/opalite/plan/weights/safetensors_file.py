"""Tensor files in the safetensors format, each tensor aligned for zero copy.

Layout (https://huggingface.co/docs/safetensors): the header's length, 8 bytes little-endian; a JSON header with dtype,
shape and offsets of each tensor and a table of texts; the data without holes. The header is padded with spaces, and
tensors named PAD… fill gaps, so that every tensor starts at a multiple of ALIGN. Any safetensors reader can read it.
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
from threading import Lock
from typing import Any

import numpy as np

from ...ir.constants.lazy_array import Array

ALIGN = 512  # bytes; required for zero copy: PoCL and Intel 128, Mesa 512
_PAD = "~pad"
_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 100 << 20  # bytes, the format's own limit
_KINDS = {"float": "F", "int": "I", "uint": "U"}
_CODES = {f"{kind}{bits}": f"{code}{bits}" for kind, code in _KINDS.items() for bits in (8, 16, 32, 64)}
_CODES |= {"bfloat16": "BF16", "bool": "BOOL"}
"""Names of NumPy's types in the format."""


class TensorFileError(ValueError):
    """The file is truncated, or not of this format."""


def write_tensors(path: Path, tensors: Mapping[str, Array], texts: Mapping[str, str]) -> None:
    """Write `tensors` and `texts` to `path` atomically: readers see the old or the new file. Raises OSError."""
    entries: dict[str, Any] = {"__metadata__": dict(texts)}
    blocks: list[Array] = []
    end = 0
    for name, array in tensors.items():
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        code = _CODES.get(array.dtype.name)
        shape = list(array.shape) if code else [flat.nbytes]  # bytes, for a dtype that the format lacks
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
    """A tensor file; each tensor is read on use into memory aligned for zero copy.

    Nothing is memory-mapped except by `map`: later changes of the file do not affect arrays already read, and a
    truncated file is an error instead of a crash. OSError if the file does not exist, TensorFileError if it is
    incomplete. The caller checks contents.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._lock = Lock()
        size = os.fstat(self._file.fileno()).st_size
        if size < _LENGTH.size:
            raise TensorFileError(f"it has {size} bytes")
        (length,) = _LENGTH.unpack(self._read(0, _LENGTH.size).tobytes())
        self._start = _LENGTH.size + length
        if length > _MOST_HEADER or self._start > size:
            raise TensorFileError(f"its header should have {length} bytes, the whole file has {size}")
        try:
            entries = json.loads(self._read(_LENGTH.size, length).tobytes())
            self.texts: dict[str, str] = dict(entries.pop("__metadata__", {}))
            self._spans = {name: (int(e["data_offsets"][0]), int(e["data_offsets"][1])) for name, e in entries.items()}
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as e:
            raise TensorFileError(f"its header cannot be read: {e}") from e
        end = max((e for _, e in self._spans.values()), default=0)
        if self._start + end != size:
            raise TensorFileError(f"it should have {self._start + end} bytes and has {size}")
        self._end = end

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._spans

    def get(self, name: str) -> Array:
        """The bytes of a tensor as uint8 [nbytes], aligned to ALIGN. KeyError for an unknown name."""
        begin, end = self._spans[name]
        if not 0 <= begin <= end <= self._end:
            raise TensorFileError(f"tensor {name!r} is at {begin} to {end}")
        return self._read(self._start + begin, end - begin)

    def nbytes(self, name: str) -> int:
        """Bytes of a tensor; 0 if there is none of that name."""
        begin, end = self._spans.get(name, (0, 0))
        return end - begin

    def map(self, name: str) -> Array:
        """The bytes of a tensor, memory-mapped, for large tables of which few rows are read.

        Later writes to the file show in the array. A truncated file ends the process.
        """
        begin, end = self._spans[name]
        size = os.fstat(self._file.fileno()).st_size
        if not 0 <= begin <= end <= self._end or self._start + end > size:
            raise TensorFileError(f"tensor {name!r} is at {begin} to {end}")
        before = (self._start + begin) % mmap.ALLOCATIONGRANULARITY
        first, nbytes = self._start + begin - before, end - begin
        held = mmap.mmap(self._file.fileno(), before + nbytes, access=mmap.ACCESS_COPY, offset=first)
        return np.frombuffer(held, np.uint8, nbytes, before)

    def _read(self, offset: int, nbytes: int) -> Array:
        raw = np.empty(nbytes + ALIGN, np.uint8)
        first = -raw.__array_interface__["data"][0] % ALIGN
        found = raw[first : first + nbytes]
        done = 0
        with self._lock:
            self._file.seek(offset)
            while done < nbytes:
                count = self._file.readinto(found[done:].data)
                if not count:
                    raise TensorFileError(f"it ends at {offset + done}, {nbytes} bytes from {offset} on were expected")
                done += count
        return found
