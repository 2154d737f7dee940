"""Names for the contents of arrays, by which equal weights are found; what is known of arrays that are not there."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any

import numpy as np

PIECE = 8 << 20
"""Bytes of an array that are digested together."""


def content_key(
    array: np.ndarray[Any, Any],
    each: Callable[[Callable[[Any], bytes], Iterable[Any]], Iterable[bytes]] = map,
) -> str:
    """Digest of dtype, shape and bytes, hexadecimal. each: computes the digests of pieces, perhaps side by side."""
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


class Contents:
    """What is known of an array that is made in one certain way, so that it need not be made to be told.

    digest: its `content_key`. checksum: its `plan.sums.byte_sum`. kind: its type and shape. '' and None: nobody has
    looked yet.
    """

    __slots__ = ("__weakref__", "checksum", "digest", "kind")

    def __init__(self) -> None:
        self.digest = self.checksum = ""
        self.kind: tuple[np.dtype[Any], tuple[int, ...]] | None = None


_lock = Lock()
_known: weakref.WeakValueDictionary[Hashable, Contents] = weakref.WeakValueDictionary()


def contents_of(key: Hashable) -> Contents:
    """What is known of arrays that are made as `key` says, as long as somebody holds it; equal keys give the same."""
    with _lock:
        found = _known.get(key)
        if found is None:
            found = _known[key] = Contents()
        return found
