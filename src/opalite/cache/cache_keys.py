"""Hash keys of cache entries."""

from __future__ import annotations

import hashlib
import struct


def digest(*parts: str) -> str:
    """Hexadecimal sha256 of `parts`; ("ab", "c") and ("a", "bc") differ."""
    sha = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        sha.update(struct.pack("<Q", len(raw)))
        sha.update(raw)
    return sha.hexdigest()
