"""Raw tensors of messages, read and written in place: protobuf copies them twice.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable

from ..wire.serve_errors import Invalid, TooLarge

_FIXED = {1: 8, 5: 4}  # sizes of wire types
_BYTES, _VARINT = 2, 0


def split_fields(data: memoryview, number: int, most: int) -> tuple[bytes, list[memoryview]]:
    """The message without its fields `number`, which hold bytes, and their contents as views of `data`.

    most: of fields of the message. Invalid for a damaged message, TooLarge.
    """
    rest: list[memoryview] = []
    found: list[memoryview] = []
    at, kept, count = 0, 0, 0
    while at < len(data):
        count += 1
        if count > most:
            raise TooLarge(f"the message has more than {most} fields")
        start = at
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
            continue
        size, at = _varint(data, at) if kind == _BYTES else (_FIXED.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise Invalid("the request is damaged: a field goes on behind its end")
        at += size
        if tag >> 3 == number and kind == _BYTES:
            found.append(data[at - size : at])
            rest.append(data[kept:start])
            kept = at
    rest.append(data[kept:])
    return b"".join(rest), found


def field_of(number: int, content: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """The pieces of a field that holds bytes, or a message."""
    pieces = list(content)
    return [_varint_of(number << 3 | _BYTES) + _varint_of(sum(map(len, pieces))), *pieces]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number and the place after it."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise Invalid("the request is damaged: a number has no end")


def _varint_of(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
