"""Random operators: seeds for those without one, random or derived from a base seed, and their key argument."""

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


KEY_ARGUMENTS = {"random_bernoulli": 5, "random_real": 4}
"""Number of the argument with the upper key word, by kernel entry point."""
