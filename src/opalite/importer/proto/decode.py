"""Decoding of ONNX messages: types, attributes, and tensors to NumPy arrays (weights without a copy)."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import onnx
from onnx import numpy_helper

from ...errors import ModelFormatError
from ...ir import Array, DType
from ...ir.constants.lazy_array import LARGE, LazyArray
from ...ir.constants.model_file import FilePart, ModelFile

SymbolicInt = int | str | None

_PACKED = {"UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2", "FLOAT6E2M3", "FLOAT6E3M2", "STRING"}
_LARGEST_DENSE = 1 << 31  # bytes; the size limit of a protobuf message
_MOST_READ = 4  # limit of bytes read from a data file, as a multiple of its size
_NAMES = {"FLOAT": DType.FLOAT32, "DOUBLE": DType.FLOAT64}


@cache
def elem_dtype(code: int) -> DType:
    """Return the DType of a TensorProto.DataType number; ModelFormatError if there is none."""
    try:
        name = onnx.TensorProto.DataType.Name(code)
        return _NAMES.get(name) or DType[name]
    except (ValueError, KeyError):
        raise ModelFormatError(f"element type number {code} is none that tensors can have") from None


@cache
def elem_code(dtype: DType) -> int:
    """Return the TensorProto.DataType number of a DType."""
    return int(onnx.TensorProto.DataType.Value({v: k for k, v in _NAMES.items()}.get(dtype, dtype.name)))


@cache
def onnx_name(dtype: DType) -> str:
    """Return the element type as in ONNX's type strings: 'float', 'int64'..."""
    return str(onnx.TensorProto.DataType.Name(elem_code(dtype))).lower()


# Types


@dataclass(frozen=True)
class ValueInfo:
    """Name and declared type of a graph input or output.

    kind: 'tensor', 'sparse', 'sequence', 'optional', 'map' or 'unknown'. shape: an int, a name or None for each
    dimension; None if the rank is unknown. elem: element type of a sequence, an optional or a map (its name is '').
    dtype: of the elements, or of a map's keys.
    """

    name: str
    kind: str = "unknown"
    dtype: DType | None = None
    shape: tuple[SymbolicInt, ...] | None = None
    elem: ValueInfo | None = None

    @property
    def onnx_type(self) -> str:
        """The type as an ONNX type string: 'tensor(float)', 'seq(tensor(int64))'..."""
        if self.kind in ("tensor", "sparse") and self.dtype is not None:
            name = onnx_name(self.dtype)
            return f"tensor({name})" if self.kind == "tensor" else f"sparse_tensor({name})"
        if self.kind == "map" and self.dtype is not None and self.elem is not None:
            return f"map({onnx_name(self.dtype)},{self.elem.onnx_type})"
        if self.elem is not None:
            return f"{'seq' if self.kind == 'sequence' else self.kind}({self.elem.onnx_type})"
        return self.kind


def decode_type(proto: Any, name: str = "") -> ValueInfo:
    """Return the ValueInfo of a TypeProto."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        t = getattr(proto, kind)
        dtype = elem_dtype(t.elem_type) if t.elem_type else None
        shape = tuple(map(_decode_dim, t.shape.dim)) if t.HasField("shape") else None
        return ValueInfo(name, "tensor" if kind == "tensor_type" else "sparse", dtype, shape)
    if kind in ("sequence_type", "optional_type"):
        return ValueInfo(name, kind.removesuffix("_type"), elem=decode_type(getattr(proto, kind).elem_type))
    if kind == "map_type":
        key = elem_dtype(proto.map_type.key_type) if proto.map_type.key_type else None
        return ValueInfo(name, "map", key, elem=decode_type(proto.map_type.value_type))
    return ValueInfo(name)


def _decode_dim(dim: Any) -> SymbolicInt:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return str(dim.dim_param) or None if kind == "dim_param" else None


# Tensors

_DAMAGED = "The file is damaged or was cut off; export or download it again"


class TensorReader:
    """Decodes TensorProtos; external data is read from `folder` (None: there is no folder).

    Files are not memory-mapped. Small tensors are read at once, large tensors on use. A change of the file in
    between is detected.

    files: contents of data files by location, used instead of the file system.
    """

    def __init__(
        self, folder: Path | None, files: Mapping[str, bytes] | None = None, model_folder: Path | None = None
    ) -> None:
        """Initialise; `model_folder`: folder of the model file itself, which links in `folder` may also point to."""
        self.folder = folder
        self._model_folder = model_folder
        self._given = files or {}
        self._files: dict[Path, _DataFile] = {}
        self._opened: dict[str, ModelFile] = {}

    @property
    def opened(self) -> Mapping[str, ModelFile]:
        """Opened data files, by location as the model names it."""
        return self._opened

    def dense(self, proto: Any) -> Array:
        """Return the tensor in memory."""
        found = self.held(proto)
        return found.read() if isinstance(found, LazyArray) else found

    def held(self, proto: Any, raw: memoryview | FilePart | None = None) -> Array | LazyArray:
        """Return the tensor: a view of `raw` (data outside the message), or a LazyArray that reads a file on use.

        ModelFormatError names the tensor if bytes or file are missing.
        """
        try:
            kind = onnx_name(elem_dtype(proto.data_type))
        except ModelFormatError as e:
            raise ModelFormatError(f"tensor '{proto.name}' cannot be read: {e}. {_DAMAGED}") from e
        try:
            if any(d < 0 for d in proto.dims):
                raise ValueError("sizes must not be negative")
            if proto.data_location == onnx.TensorProto.EXTERNAL:
                return self._external(proto)
            return numpy_helper.to_array(proto) if raw is None else self._from_raw(proto, raw)
        except (ValueError, TypeError, KeyError, UnicodeDecodeError) as e:
            raise ModelFormatError(
                f"tensor '{proto.name}' of type {kind} and shape {list(proto.dims)} cannot be read: {e}. {_DAMAGED}"
            ) from e

    def sparse(self, proto: Any) -> Array:
        """Return a SparseTensorProto as a dense array."""
        values, indices = self.dense(proto.values), self.dense(proto.indices)
        nbytes = math.prod(proto.dims) * values.dtype.itemsize
        if any(d < 0 for d in proto.dims) or nbytes > _LARGEST_DENSE:
            raise ModelFormatError(
                f"sparse tensor '{proto.values.name}' of shape {list(proto.dims)} has {nbytes} bytes in all, more than "
                f"the {_LARGEST_DENSE} that a tensor of a model can have. {_DAMAGED}"
            )
        dense = np.zeros(tuple(proto.dims), values.dtype)
        try:
            if indices.ndim == 1:
                dense.reshape(-1)[indices] = values
            else:
                dense[tuple(indices.T)] = values
        except (IndexError, ValueError) as e:
            raise ModelFormatError(
                f"sparse tensor '{proto.values.name}' has indices outside its shape {list(proto.dims)}: {e}"
            ) from e
        return dense

    def _from_raw(self, proto: Any, raw: memoryview | FilePart) -> Array | LazyArray:
        dtype, shape = elem_dtype(proto.data_type), tuple(proto.dims)
        if isinstance(raw, FilePart):
            part = raw
            if part.nbytes >= LARGE and dtype.name not in _PACKED and part.nbytes == math.prod(shape) * dtype.size:
                return part.held(dtype.np, shape)
            raw = part.read().data
        if dtype.name in _PACKED:
            return _with_raw(proto, bytes(raw))
        array: Array = np.frombuffer(raw, dtype.np).reshape(shape)
        # Without a location, the cache key is the contents: equal weights are packed once.
        return array if array.nbytes < LARGE else LazyArray(dtype.np, shape, lambda: array, array)

    def _external(self, proto: Any) -> Array | LazyArray:
        entries = {e.key: e.value for e in proto.external_data}
        location = entries.get("location", "")
        path = Path(location) if location in self._given else self._path(proto.name, location)
        dtype = elem_dtype(proto.data_type)
        if path not in self._files:
            self._files[path] = _DataFile(path, self._given.get(location))
        file = self._files[path]
        if file.file is not None:
            self._opened[location] = file.file
        offset = read_number(proto.name, "offset", entries.get("offset", ""))
        length = read_number(proto.name, "length", entries.get("length", "")) or -1
        if dtype.name in _PACKED:
            return _with_raw(
                proto, file.read(proto.name, offset, length if length >= 0 else file.size - offset).tobytes()
            )
        nbytes = math.prod(proto.dims) * dtype.size
        if length not in (-1, nbytes):
            raise ModelFormatError(
                f"tensor '{proto.name}' needs {nbytes} bytes, and {length} of '{path.name}' are said to be its own: "
                "the model is damaged"
            )
        return file.held(proto.name, offset, dtype.np, tuple(proto.dims))

    def _path(self, name: str, location: str) -> Path:
        if self.folder is None:
            raise ModelFormatError(
                f"the data of tensor '{name}' is in the file '{location}', but the model was not loaded from a file: "
                "load it by its path"
            )
        return find_data_file(self.folder, self._model_folder, name, location)


def _with_raw(proto: Any, raw: bytes) -> Array:
    """Return the tensor that `proto` describes with the data `raw`; elements smaller than a byte are unpacked."""
    inline = onnx.TensorProto(data_type=proto.data_type, name=proto.name, dims=proto.dims, raw_data=raw)
    array: Array = numpy_helper.to_array(inline)
    return array


class _DataFile:
    """File of external tensor data. Large tensors with the same bytes share one array.

    file: None if the contents are given.
    """

    def __init__(self, path: Path, contents: bytes | None = None) -> None:
        """Initialise; `contents` replaces the file at `path`. ModelFormatError if the file cannot be opened."""
        self._path = path
        self._contents = contents
        self.file: ModelFile | None = None
        if contents is None:
            try:
                self.file = ModelFile(path)
            except OSError as e:
                raise ModelFormatError(f"the data file '{path}' cannot be read: {e.strerror or e}") from e
        self._held: dict[tuple[int, int], Array | LazyArray] = {}
        self._read = 0
        self.size = len(contents) if contents is not None else self.file.size if self.file is not None else 0

    def held(self, tensor: str, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array | LazyArray:
        """Return the tensor at `offset`; ModelFormatError, with the name `tensor`, if the file is too short."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LARGE or self._contents is not None:
            return self.read(tensor, offset, nbytes).view(dtype).reshape(shape)
        found = self._held.get((offset, nbytes))
        if isinstance(found, LazyArray) and (found.dtype, found.shape) == (dtype, shape):
            return found
        self._check(tensor, offset, nbytes)
        self._count(tensor, nbytes)
        load = lambda: self._load(offset, nbytes).view(dtype).reshape(shape)  # noqa: E731
        mapped = None if self.file is None else partial(FilePart(self.file, offset, nbytes).mapped, dtype, shape)
        load_bytes = lambda first, count: self._load(offset + first, count)  # noqa: E731
        made = LazyArray(dtype, shape, load, load_bytes=load_bytes, mapped=mapped)
        self._held[offset, nbytes] = made
        return made

    def read(self, tensor: str, offset: int, nbytes: int) -> Array:
        """Return `nbytes` bytes from `offset` on, as uint8; ModelFormatError, naming `tensor`, if they are missing."""
        self._check(tensor, offset, nbytes)
        if self._contents is not None:
            return np.frombuffer(self._contents, np.uint8, nbytes, offset) if nbytes else np.empty(0, np.uint8)
        found = self._held.get((offset, nbytes))
        if isinstance(found, np.ndarray):
            return found
        self._count(tensor, nbytes)
        try:
            found = self._load(offset, nbytes)
        except OSError as e:
            raise ModelFormatError(f"the data of tensor '{tensor}' in '{self._path}' cannot be read: {e}") from e
        found.flags.writeable = False
        self._held[offset, nbytes] = found
        return found

    def _load(self, offset: int, nbytes: int) -> Array:
        assert self.file is not None
        return self.file.read(offset, nbytes)

    def _check(self, tensor: str, offset: int, nbytes: int) -> None:
        if nbytes < 0 or offset < 0 or offset + nbytes > self.size:
            raise ModelFormatError(
                f"tensor '{tensor}' needs {nbytes} bytes at offset {offset} of '{self._path.name}', which has "
                f"{self.size} bytes: the data file is cut off or belongs to another model"
            )

    def _count(self, tensor: str, nbytes: int) -> None:
        self._read += nbytes
        if self._read > _MOST_READ * self.size:
            raise ModelFormatError(
                f"tensor '{tensor}' and others before it are said to share most of '{self._path.name}', each in part: "
                "the model is damaged"
            )


# External data: the entries `location`, `offset` and `length` of a tensor


_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def file_kind(mode: int) -> str:
    """Describe the type of a file that is no regular one, from its mode."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")


def find_data_file(folder: Path, model_folder: Path | None, tensor: str, location: str) -> Path:
    """Return the regular file at `location`, relative to `folder`, with links and ".." resolved.

    ModelFormatError, with the name `tensor`, if there is none, or if it is neither inside `folder` nor, through a link,
    directly in `model_folder`.
    """
    if not location:
        raise ModelFormatError(f"tensor '{tensor}' has external data, but names no file: the model is damaged")
    if Path(location).is_absolute():
        raise ModelFormatError(
            f"tensor '{tensor}' points to the absolute path '{location}', which is outside the model's folder: a data "
            "file is named relative to the model's folder"
        )
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        inside = path.is_relative_to(root) or path.parent == model_folder
        mode = (root / location).stat().st_mode if inside else 0
    except FileNotFoundError:
        raise ModelFormatError(
            f"the data of tensor '{tensor}' should be in '{root / location}', which does not exist: "
            "copy the data file next to the model"
        ) from None
    except (OSError, ValueError, RuntimeError) as e:  # name too long, zero byte, circular links
        shown = f"{location[:80]}…" if len(location) > 80 else location
        raise ModelFormatError(f"tensor '{tensor}' points to {shown!r}, which cannot be the name of a file: {e}") from e
    if not inside:
        raise ModelFormatError(f"tensor '{tensor}' points to '{location}', which is outside the model's folder")
    if not stat.S_ISREG(mode):
        raise ModelFormatError(
            f"the data of tensor '{tensor}' should be in '{path}', which is {file_kind(mode)}: copy the data file there"
        )
    return path


def read_number(tensor: str, key: str, text: str) -> int:
    """Parse an offset or a length in bytes; 0 if absent. ModelFormatError unless it is an integer below 2^63."""
    if not text:
        return 0
    number = int(text) if re.fullmatch("[0-9]{1,19}", text) else -1
    if not 0 <= number < 1 << 63:
        raise ModelFormatError(
            f"tensor '{tensor}' has the {key} {text!r} in its data file; expected a number from 0 to 2^63 - 1: the "
            "model is damaged"
        )
    return number


def load_tensor_file(path: str | os.PathLike[str]) -> Array:
    """Load the array of a file with one serialised TensorProto; external data is read from its folder.

    ModelFormatError if the file is unreadable or no TensorProto.
    """
    where = Path(path)
    try:
        proto = onnx.TensorProto.FromString(where.read_bytes())
    except OSError as e:
        raise ModelFormatError(f"'{where}' cannot be read: {e.strerror or e}") from e
    except Exception as e:  # protobuf's DecodeError; this package does not depend on protobuf
        raise ModelFormatError(f"'{where}' is not a complete TensorProto: it is damaged or truncated") from e
    if not proto.data_type:
        raise ModelFormatError(f"'{where}' holds no tensor: it is empty or of another format than TensorProto")
    return TensorReader(where.parent).dense(proto)
