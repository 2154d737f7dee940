"""inflate: decompresses gzip and zlib's format within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from .serve_errors import Invalid, TooLarge

_READ, _WRITTEN = 64 * 1024, 256 * 1024
"""Bytes taken and made in one step."""


def inflate(data: memoryview, most: int, hold: Callable[[int], None], what: str) -> memoryview:
    """Decompress `data` to at most `most` bytes. Invalid, TooLarge.

    hold: called with the number of further bytes, before they are kept; may raise. what: names `data` in messages.
    """
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    place = np.empty(most, np.uint8)  # the system gives pages as they are written
    size = 0
    try:
        for start in range(0, len(data), _READ):
            rest: bytes | memoryview = data[start : start + _READ]
            while not stream.eof:
                piece = stream.decompress(rest, _WRITTEN)
                if size + len(piece) > most:
                    raise TooLarge(f"the {what} has more than the {most} bytes that are allowed, decompressed")
                hold(len(piece))
                place[size : size + len(piece)] = np.frombuffer(piece, np.uint8)
                size += len(piece)
                rest = stream.unconsumed_tail
                if not rest and len(piece) < _WRITTEN:
                    break
            if stream.eof:
                break
    except zlib.error as e:
        raise Invalid(f"the {what} cannot be decompressed: {e}") from None
    if not stream.eof or stream.unused_data or len(data) - start > _READ:
        raise Invalid(f"the compressed {what} is cut short, or has bytes after its end")
    return place[:size].data
