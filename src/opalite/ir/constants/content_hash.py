"""Content hashes of arrays, by which equal weights are found, and cached facts about arrays not in memory."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any

import numpy as np

PIECE = 8 << 20
"""Bytes of an array that are hashed as one piece."""


def content_key(
    array: np.ndarray[Any, Any],
    each: Callable[[Callable[[Any], bytes], Iterable[Any]], Iterable[bytes]] = map,
) -> str:
    """SHA-256 of dtype, shape and bytes, hexadecimal. each: maps the hash over pieces, perhaps in parallel."""
    sha = hashlib.sha256(f"{array.dtype.name} {array.shape}".encode())
    if array.size:
        whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        pieces = [whole[first : first + PIECE] for first in range(0, len(whole), PIECE)]
        if len(pieces) == 1:
            sha.update(whole)
        else:
            for digest in each(_digest, pieces):
                sha.update(digest)
    return sha.hexdigest()


def _digest(piece: memoryview) -> bytes:
    return hashlib.sha256(piece).digest()


class ContentInfo:
    """Cached facts about the contents of arrays with equal keys, so that they need not be computed again.

    digest: the array's `content_key`. checksum: its `plan.weights.checksum.byte_sum`. kind: its dtype and shape. '' and
    None mean unknown.
    """

    __slots__ = ("__weakref__", "checksum", "digest", "kind")

    def __init__(self) -> None:
        self.digest = self.checksum = ""
        self.kind: tuple[np.dtype[Any], tuple[int, ...]] | None = None


_lock = Lock()
_known: weakref.WeakValueDictionary[Hashable, ContentInfo] = weakref.WeakValueDictionary()


def content_info(key: Hashable) -> ContentInfo:
    """The cached facts for `key`, shared by equal keys as long as one holder exists."""
    with _lock:
        found = _known.get(key)
        if found is None:
            found = _known[key] = ContentInfo()
        return found
