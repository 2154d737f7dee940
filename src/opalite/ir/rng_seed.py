"""Seeds for random operators without a seed: random, or derived from a base seed that the caller set."""

from __future__ import annotations

import hashlib
import secrets
from itertools import count

_base: int | None = None
_drawn = count()


def set_base(seed: int) -> None:
    """Derive all further seeds from this one."""
    global _base, _drawn
    _base, _drawn = seed, count()


def next_seed() -> int:
    """A seed of 31 bits."""
    if _base is None:
        return secrets.randbits(31)
    drawn = hashlib.blake2b(f"{_base} {next(_drawn)}".encode(), digest_size=4).digest()
    return int.from_bytes(drawn) & 0x7FFFFFFF
