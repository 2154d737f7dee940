"""Decompression in steps, each of which is counted before it is kept."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from opalite.serve.wire.inflate import inflate
from opalite.serve.wire.serve_errors import Invalid, MemoryFull, TooLarge


@pytest.mark.parametrize("size", [0, 1, 65_536, 262_144, 700_001])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_all_bytes_come_and_are_counted(size: int, compress: object) -> None:
    data = random.Random(size).randbytes(size // 2) + b"\0" * (size - size // 2)
    counted: list[int] = []
    made = compress(data)  # type: ignore[operator]
    assert bytes(inflate(memoryview(made), size, counted.append, "body")) == data
    assert sum(counted) == size
    with pytest.raises(Invalid, match="the compressed message is cut short, or has bytes after"):
        inflate(memoryview(made + b"x" * 70_000), size, counted.append, "message")
    with pytest.raises(Invalid, match="cut short"):
        inflate(memoryview(made[:-1]), size, counted.append, "message")


def test_a_bomb_is_left_at_the_limit() -> None:
    counted: list[int] = []
    bomb = memoryview(gzip.compress(b"\0" * 50_000_000))
    with pytest.raises(TooLarge, match="1000000 bytes"):
        inflate(bomb, 1_000_000, counted.append, "body")
    assert sum(counted) <= 1_000_000

    def full(size: int) -> None:
        raise MemoryFull

    with pytest.raises(MemoryFull):
        inflate(bomb, 1 << 30, full, "body")
