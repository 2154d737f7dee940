"""TensorInfo: name, type and quantisation of a tensor of the file; and constants, which stay in the file until used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ....errors import ModelFormatError
from ....ir import Array, DType
from ....ir.constants.lazy_array import LARGE, LazyArray
from ....ir.constants.model_file import FilePart, ModelFile
from .sparsity import Sparsity, read_sparsity
from .tables import Tables, text

TYPES: dict[int, DType] = {
    0: DType.FLOAT32,
    1: DType.FLOAT16,
    2: DType.INT32,
    3: DType.UINT8,
    4: DType.INT64,
    5: DType.STRING,
    6: DType.BOOL,
    7: DType.INT16,
    8: DType.COMPLEX64,
    9: DType.INT8,
    10: DType.FLOAT64,
    11: DType.COMPLEX128,
    12: DType.UINT64,
    15: DType.UINT32,
    16: DType.UINT16,
    17: DType.INT4,
    18: DType.BFLOAT16,
}
"""Element types by their numbers in the schema."""

_LEVELS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT4)

RESOURCE, VARIANT = 13, 14
"""Types without elements: handles of variables and tables."""


@dataclass(frozen=True, eq=False)
class Quantization:
    """Scales and zero points of an integer tensor: one each, or one for each index of `axis`."""

    scale: Array
    zero_point: Array
    axis: int


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """A tensor as the file declares it.

    index: its number in the subgraph; value: its name in the graph, unique there; name: its name in the file. type: its
    number in the schema; dtype: None for handles. shape: the sizes that the file was made for; signature: the same with
    None for open sizes. quantization: None unless the tensor holds quantised numbers.
    """

    index: int
    value: str
    name: str
    type: int
    dtype: DType | None
    shape: tuple[int, ...]
    signature: tuple[int | None, ...]
    quantization: Quantization | None
    sparsity: Sparsity | None
    is_variable: bool
    buffer: int

    @property
    def holds_quantized(self) -> bool:
        """Whether the elements are quantised numbers: integers with a scale."""
        return self.quantization is not None and self.dtype in _LEVELS


def read_tensor(tables: Tables, table: Any, index: int, value: str) -> TensorInfo:
    """Return the TensorInfo of a Tensor table."""
    shape = tables.ints(table, "Shape")
    signature = tables.ints(table, "ShapeSignature")
    if len(signature) != len(shape):
        signature = shape
    number = int(table.Type())
    name = text(table.Name())
    if number not in TYPES and number not in (RESOURCE, VARIANT):
        raise ModelFormatError(f"tensor '{name}' has the element type number {number}, which none here knows")
    return TensorInfo(
        index,
        value,
        name,
        number,
        TYPES.get(number),
        tuple(max(0, d) if d != -1 else 1 for d in shape),
        tuple(None if d < 0 else d for d in signature),
        _quantization(tables, table.Quantization()),
        read_sparsity(tables, table.Sparsity()),
        bool(table.IsVariable()),
        int(table.Buffer()),
    )


def _quantization(tables: Tables, table: Any) -> Quantization | None:
    if table is None:
        return None
    scale = tables.numbers(table, "Scale").astype(np.float32)
    if not scale.size:
        return None
    zero = tables.numbers(table, "ZeroPoint").astype(np.int64)
    if zero.size != scale.size:
        zero = np.resize(zero, scale.size) if zero.size == 1 else np.zeros(scale.size, np.int64)
    return Quantization(scale, zero, int(table.QuantizedDimension()))


class Buffers:
    """Contents of the file's buffers, as arrays of the tensors that refer to them."""

    def __init__(self, tables: Tables, model: Any, contents: bytes | ModelFile) -> None:
        self._buffers = tables.tables(model, "Buffers")
        self._contents = contents
        self._size = tables.size
        self._held: dict[Any, Array | LazyArray] = {}

    def span(self, index: int) -> tuple[int, int]:
        """Return (position in the file, bytes) of a buffer; (0, 0) if it is empty."""
        if not 0 <= index < len(self._buffers):
            raise ModelFormatError(f"buffer {index} is none of the file's {len(self._buffers)}")
        buffer = self._buffers[index]
        start, nbytes = int(buffer.Offset()), int(buffer.Size())
        if start <= 1 or not nbytes:  # else a large buffer behind the FlatBuffer
            nbytes = int(buffer.DataLength())
            if not nbytes:
                return 0, 0
            start = int(buffer._tab.Vector(buffer._tab.Offset(4)))
        if start + nbytes > self._size:
            raise ModelFormatError(f"buffer {index} ends at byte {start + nbytes} of {self._size}")
        return start, nbytes

    def raw(self, index: int) -> bytes:
        """Return the bytes of a buffer."""
        return self._read(*self.span(index)).tobytes()

    def _read(self, start: int, nbytes: int) -> Array:
        if isinstance(self._contents, ModelFile):
            return self._contents.read(start, nbytes)
        return np.frombuffer(self._contents, np.uint8, nbytes, start)

    def constant(self, info: TensorInfo) -> Array | LazyArray | None:
        """Return the contents of a tensor; None if the file gives it none."""
        start, nbytes = self.span(info.buffer)
        if info.dtype is None or info.is_variable or (not nbytes and (0 not in info.shape or not info.shape)):
            return None
        key = (info.buffer, info.dtype, info.shape, info.sparsity)
        if key not in self._held:
            self._held[key] = self._make(info, start, nbytes)
        return self._held[key]

    def _make(self, info: TensorInfo, start: int, nbytes: int) -> Array | LazyArray:
        dtype, shape = info.dtype, info.shape
        assert dtype is not None
        if dtype is DType.STRING:
            return _strings(info, self._read(start, nbytes))
        if info.sparsity is not None:
            dense, kind = info.sparsity.indices(info.name, shape), np.dtype(dtype.np)
            if nbytes != dense.size * kind.itemsize:
                raise _wrong_size(info, nbytes, dense.size * kind.itemsize)
            return _sparse(self._read(start, nbytes).view(kind), dense, shape)
        count = math.prod(shape)
        wanted = (count + 1) // 2 if dtype is DType.INT4 else count * dtype.size
        if nbytes != wanted:
            raise _wrong_size(info, nbytes, wanted)
        if dtype is DType.INT4:
            return _nibbles(self._read(start, nbytes), count).astype(dtype.np).reshape(shape)
        if isinstance(self._contents, ModelFile) and nbytes >= LARGE:
            return FilePart(self._contents, start, nbytes).held(dtype.np, shape)
        array: Array = self._read(start, nbytes).view(dtype.np).reshape(shape)
        if not array.flags.aligned:
            array = array.copy()
        return array if nbytes < LARGE else LazyArray(np.dtype(dtype.np), shape, lambda: array, array)


def _wrong_size(info: TensorInfo, found: int, wanted: int) -> ModelFormatError:
    return ModelFormatError(f"tensor '{info.name}' of shape {list(info.shape)} needs {wanted} bytes, and has {found}")


def _nibbles(raw: Array, count: int) -> Array:
    """Return signed 4-bit integers, the lower half of each byte first, as int8."""
    both = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count].astype(np.int8)
    return np.where(both > 7, both - 16, both).astype(np.int8)


def _strings(info: TensorInfo, raw: Array) -> Array:
    """Return the strings of a buffer: a count, the offset of each and of the end, and the characters."""
    count = int(raw[:4].view(np.int32)[0]) if raw.size >= 4 else 0
    if count != math.prod(info.shape) or raw.size < 4 * (count + 2):
        raise ModelFormatError(f"tensor '{info.name}' of shape {list(info.shape)} holds {count} strings")
    ends = raw[4 : 4 * (count + 2)].view(np.int32).tolist()
    found = np.empty(count, object)
    found[:] = [text(raw[a:b].tobytes()) for a, b in pairwise(ends)]
    return found.reshape(info.shape)


def _sparse(values: Array, places: Array, shape: tuple[int, ...]) -> Array:
    dense = np.zeros(shape, values.dtype)
    dense.reshape(-1)[places] = values
    return dense
