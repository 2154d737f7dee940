"""Extraction of large weights from a serialised model before protobuf parses it, which saves a copy.

A protobuf message is a sequence of fields. Each is a key (field number and wire type as one varint) and a value; bytes,
strings and inner messages have a length prefix. Initializers are in ModelProto.graph.initializer; raw data is in
TensorProto.raw_data. The remaining message is valid and a few kilobytes long.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.constants.model_file import FilePart, ModelFile

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
"""Field numbers in ModelProto, GraphProto and TensorProto (onnx.proto)."""

LARGE = 1024
"""Smallest weight that is extracted, in bytes."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WINDOW = 1 << 14  # bytes read from the file at once


class FileView:
    """Byte access to a ModelFile, with the interface of BytesView."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._window = b""
        self._first = 0

    def __len__(self) -> int:
        return self._file.size

    def byte(self, at: int) -> int:
        """Return the byte at `at`; IndexError past the end."""
        if not self._first <= at < self._first + len(self._window):
            if not 0 <= at < len(self):
                raise IndexError(at)
            self._first = at
            self._window = self._file.read(at, min(_WINDOW, len(self) - at)).tobytes()
        return self._window[at - self._first]

    def part(self, first: int, last: int) -> bytes:
        """Return the bytes from `first` to `last`."""
        return self._file.read(first, last - first).tobytes()

    def span(self, first: int, last: int) -> FilePart:
        """Return the range from `first` to `last` without reading it."""
        return FilePart(self._file, first, last - first)


class BytesView:
    """Byte access to a file in memory."""

    def __init__(self, raw: bytes) -> None:
        self._view = memoryview(raw)

    def __len__(self) -> int:
        return len(self._view)

    def byte(self, at: int) -> int:
        """Return the byte at `at`; IndexError past the end."""
        return self._view[at]

    def part(self, first: int, last: int) -> memoryview:
        """Return the bytes from `first` to `last`, without a copy."""
        return self._view[first:last]

    span = part


View = BytesView | FileView
Weights = dict[int, memoryview | FilePart]
"""Extracted data of weights, by initializer number."""


def load_weights(model: bytes | View) -> tuple[bytes, Weights]:
    """Return (message without raw data of large initializers, this data by initializer number).

    The data refers to `model`, without a copy. A malformed message is returned whole; protobuf then reports the error.
    """
    view = BytesView(model) if isinstance(model, bytes) else model
    try:
        fields = list(_fields(view, 0, len(view)))
        graphs = [f for f in fields if f[0] == GRAPH and f[1] == _BYTES]
        if len(graphs) != 1:
            return _whole(model), {}
        _, _, key, start, end = graphs[0]
        graph, weights = _strip_graph(view, start, end)
    except (IndexError, ValueError):
        return _whole(model), {}
    if not weights:
        return _whole(model), {}
    return b"".join((view.part(0, key), _message(GRAPH, graph), view.part(end, len(view)))), weights


def _whole(model: bytes | View) -> bytes:
    return model if isinstance(model, bytes) else bytes(model.part(0, len(model)))


def _strip_graph(view: View, start: int, end: int) -> tuple[bytes, Weights]:
    pieces: list[bytes | memoryview] = []
    weights: Weights = {}
    count = 0
    for number, wire, key, first, last in _fields(view, start, end):
        if number != INITIALIZER or wire != _BYTES:
            pieces.append(view.part(key, last))
            continue
        if last - first >= LARGE:
            tensor, raw = _strip_tensor(view, first, last)
            pieces.append(_message(INITIALIZER, tensor))
            if raw is not None:
                weights[count] = raw
        else:
            pieces.append(view.part(key, last))
        count += 1
    return b"".join(pieces), weights


def _strip_tensor(view: View, start: int, end: int) -> tuple[bytes, memoryview | FilePart | None]:
    pieces: list[bytes | memoryview] = []
    raw: memoryview | FilePart | None = None
    for number, wire, key, first, last in _fields(view, start, end):
        if number == RAW_DATA and wire == _BYTES and last - first >= LARGE and raw is None:
            raw = view.span(first, last)
        else:
            pieces.append(view.part(key, last))
    return b"".join(pieces), raw


def _fields(view: View, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (field number, wire type, start of key, start of value, end of value); ValueError for a malformed field."""
    at = start
    while at < end:
        key, first = _read_varint(view, at)
        wire = key & 7
        if wire == _BYTES:
            length, first = _read_varint(view, first)
            last = first + length
        elif wire == _VARINT:
            _, last = _read_varint(view, first)
        elif wire in (_FIXED64, _FIXED32):
            last = first + (8 if wire == _FIXED64 else 4)
        else:
            raise ValueError(f"wire type {wire}")
        if last > end:
            raise ValueError("a field ends past its message")
        yield key >> 3, wire, at, first, last
        at = last


def _read_varint(view: View, at: int) -> tuple[int, int]:
    """Return (value, position after it) of the varint at `at`; IndexError past the end."""
    byte = view.byte(at)
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        at += 1
        byte = view.byte(at)
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body
