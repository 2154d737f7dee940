"""Keys of what is cached."""

from __future__ import annotations

import hashlib
import struct


def digest(*parts: str) -> str:
    """Key of `parts` (hexadecimal sha256); their borders count, so ("ab", "c") is not ("a", "bc")."""
    sha = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        sha.update(struct.pack("<Q", len(raw)))
        sha.update(raw)
    return sha.hexdigest()
