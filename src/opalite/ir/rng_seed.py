"""Seeds of random operators that have none of their own: new ones, or repeatable ones by a base that the caller set."""

from __future__ import annotations

import hashlib
import secrets
from itertools import count

_base: int | None = None
_drawn = count()


def set_base(seed: int) -> None:
    """From now on every seed follows from this one."""
    global _base, _drawn
    _base, _drawn = seed, count()


def next_seed() -> int:
    """A seed of 31 bits."""
    if _base is None:
        return secrets.randbits(31)
    drawn = hashlib.blake2b(f"{_base} {next(_drawn)}".encode(), digest_size=4).digest()
    return int.from_bytes(drawn) & 0x7FFFFFFF
