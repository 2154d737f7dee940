"""LazyArray: an array in the model file or computed on demand, in memory only while in use.

Weights are needed while a graph is rewritten and packed, and again when it is planned anew. Between these, only the
device holds them, in a layout of its own.
"""

from __future__ import annotations

import hashlib
import mmap
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar

import numpy as np

PIECE = 8 << 20
"""Bytes of an array that are hashed as one piece."""


def content_key(
    array: np.ndarray[Any, Any], each: Callable[[Callable[[Any], bytes], Iterable[Any]], Iterable[bytes]] = map
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

    digest: the array's `content_key`. checksum: its `byte_sum` (plan/weights/weight_files.py). kind: its dtype and
    shape. '' and None mean unknown.
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


Array = np.ndarray[Any, Any]
_T = TypeVar("_T")

LARGE = 1 << 18
"""Bytes from which an array gets memory pages of its own, which return to the system when it is freed."""


SLICE = 4 << 20
"""Bytes of an array that are in memory at a time when it is read by slices."""

_ALIGN = 512  # bytes; the largest alignment that a driver requires for zero copy (plan/weights/safetensors_file.py)
_HUGE_PAGE = 2 << 20  # bytes, of x86-64 and of most AArch64 kernels; another size costs nothing but alignment


class LazyArray:
    """An array of known dtype and shape that `load` brings into memory. Concurrent readers share one copy."""

    def __init__(
        self,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        load: Callable[[], Array],
        held: Array | None = None,
        load_bytes: Callable[[int, int], Array] | None = None,
        load_rows: Callable[[int, int], Array] | None = None,
        key: Hashable = None,
        mapped: Callable[[], LazyArray] | None = None,
    ) -> None:
        """load() returns the whole array and raises if it cannot.

        held: the loaded array, kept until `unpin`. load_bytes(offset, n) reads n bytes from an offset, as uint8, if
        the array can be read in parts. load_rows(start, stop) computes that range of the first axis, if the array is
        computed on demand. key: equal for arrays with equal contents; by default unique. mapped() returns the same
        array memory-mapped, if a file holds it unchanged.
        """
        self.dtype = dtype
        self.shape = shape
        self._load = load
        self._load_bytes = load_bytes
        self._load_rows = load_rows
        self.mapped = mapped
        self.is_mapped = False  # `load` maps pages of a file
        self.source: tuple[str, int] | None = None  # of a mapped array: file path and offset in bytes
        self.key: Hashable = object() if key is None else key
        self._contents: ContentInfo | None = None
        self._answers: dict[Callable[[Any], Any], Any] = {}
        self._lock = threading.Lock()
        self._found: Callable[[], Array | None] = _nothing if held is None else weakref.ref(held)
        self._held = held

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def contents(self) -> ContentInfo:
        """Cached facts about all arrays with this key."""
        if self._contents is None:
            self._contents = content_info(self.key)
        return self._contents

    def hold(self) -> None:
        """Load the array and keep it in memory until `unpin`."""
        self._held = self.read()

    def unpin(self) -> None:
        """Stop keeping the array in memory; the next read loads it again unless another reader still holds it."""
        self._held = None

    def read_rows(self, first: int, last: int) -> Array:
        """Rows `first` to before `last` of the first axis, read only; a copy of these rows alone if possible."""
        with self._lock:
            found = self._found()
        if found is None and self._load_rows is not None:
            part = self._load_rows(first, last)
            part.flags.writeable = False
            return part
        if found is None and self._load_bytes is not None:
            row = self.nbytes // max(1, self.shape[0])
            part = self._load_bytes(first * row, (last - first) * row).view(self.dtype)
            part.flags.writeable = False
            return part.reshape(last - first, *self.shape[1:])
        return (self.read() if found is None else found)[first:last]

    def cached_query(self, question: Callable[[LazyArray], _T]) -> _T:
        """The result of `question(self)`, cached because every plan asks."""
        if question not in self._answers:
            self._answers[question] = question(self)
        found: _T = self._answers[question]
        return found

    def read(self) -> Array:
        """The whole array, read only."""
        with self._lock:
            found = self._found()
            if found is None:
                found = self._load()
                found.flags.writeable = False
                self._found = weakref.ref(found)
            return found


def _nothing() -> None:
    return None


def pin_all(
    arrays: Iterable[Array | LazyArray],
    each: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = map,
    is_elsewhere: Callable[[LazyArray], bool] = lambda _: False,
) -> None:
    """Load lazy arrays and keep them in memory until `unpin`, except those for which `is_elsewhere` is true.

    each: maps the loading, perhaps in parallel.
    """
    stored = dict.fromkeys(a for a in arrays if isinstance(a, LazyArray))
    for _ in each(LazyArray.hold, [a for a in stored if not is_elsewhere(a)]):
        pass


def unpin_all(arrays: Iterable[Array | LazyArray]) -> None:
    """Stop keeping lazy arrays in memory."""
    for array in arrays:
        if isinstance(array, LazyArray):
            array.unpin()


def read_part(held: Array | LazyArray, first: int, last: int) -> Array:
    """Rows `first` to before `last` of an array."""
    return held.read_rows(first, last) if isinstance(held, LazyArray) else held[first:last]


def reshaped(held: LazyArray, shape: tuple[int, ...]) -> LazyArray:
    """The same elements in another shape; a lazy array that reads from `held`."""
    load_bytes = held._load_bytes
    key = (held.key, shape)
    mapped = None if held.mapped is None else lambda: reshaped(held.mapped(), shape)  # type: ignore[misc]
    made = LazyArray(held.dtype, shape, lambda: held.read().reshape(shape), None, load_bytes, None, key, mapped)
    made.contents.digest = made.contents.digest or (held.contents.digest if held.is_mapped else "")
    made.is_mapped, made.source = held.is_mapped, held.source
    return made


def mapped_part(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    name: str,
    load: Callable[[], Array],
    source: tuple[str, int] | None = None,
) -> LazyArray:
    """A memory-mapped lazy array. `load` returns its bytes; `name` identifies its contents.

    source: the file's path and the offset in bytes, by which other processes find it.
    """
    made = LazyArray(dtype, shape, lambda: load().view(dtype).reshape(shape), key=(name, dtype, shape))
    made.contents.digest, made.is_mapped, made.source = name, True, source
    return made


def converted(held: Array | LazyArray, dtype: Any) -> Array | LazyArray:
    """The same elements in another dtype; lazy arrays are converted by rows on demand."""
    if held.dtype == dtype:
        return held
    if not isinstance(held, LazyArray):
        return held.astype(dtype)

    def rows(first: int, last: int) -> Array:
        return held.read_rows(first, last).astype(dtype)

    kind = np.dtype(dtype)
    return LazyArray(kind, held.shape, lambda: rows(0, held.shape[0]), load_rows=rows, key=(held.key, kind))


def read_slices(held: Array | LazyArray, multiple: int = 1) -> Iterator[tuple[slice, Array]]:
    """Slices of an array along its first axis, in order: (slice, contents).

    About SLICE bytes of a lazy array are in memory at a time. multiple: the rows of each part but the last are a
    multiple of it.
    """
    rows = held.shape[0]
    step = max(1, SLICE * rows // max(1, held.nbytes) // multiple) * multiple
    for first in range(0, rows, step):
        part = slice(first, min(first + step, rows))
        yield part, read_part(held, part.start, part.stop)


def largest(held: Array | LazyArray) -> float:
    """The largest finite absolute value of floats; 0 if there is none."""
    if isinstance(held, LazyArray):
        return max((_largest(part) for _, part in read_slices(held)), default=0.0)
    return _largest(held)


def _largest(part: Array) -> float:
    if not part.size:
        return 0.0
    found = max(float(part.max()), -float(part.min()))
    return found if np.isfinite(found) else float(np.abs(part[np.isfinite(part)]).max(initial=0.0))


def page_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialized array; a large one starts at a page boundary, as zero copy requires."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count * kind.itemsize < LARGE or kind.hasobject:
        return np.empty(shape, kind)
    return np.frombuffer(_pages(count * kind.itemsize), kind, count).reshape(shape)


def _pages(nbytes: int) -> mmap.mmap | memoryview:
    """Zeroed private memory; on Linux in huge pages as far as they fit."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, nbytes)
    huge = nbytes // _HUGE_PAGE * _HUGE_PAGE if hasattr(mmap, "MADV_HUGEPAGE") else 0
    # One huge page more than needed, so that the array can start at a huge page boundary.
    held = mmap.mmap(-1, nbytes + (_HUGE_PAGE if huge else 0), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if not huge:
        return held
    first = -np.frombuffer(held, np.uint8, 1).__array_interface__["data"][0] % _HUGE_PAGE
    with suppress(OSError):  # a kernel without them
        held.madvise(mmap.MADV_HUGEPAGE, first, huge)
    return memoryview(held)[first : first + nbytes]


def page_zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """`page_empty`, filled with zeros."""
    found = page_empty(shape, dtype)
    if found.nbytes < LARGE:  # fresh pages are zero
        found.fill(0)
    return found


def page_aligned(array: Array) -> Array:
    """`array`, copied if it is large and not aligned for zero copy."""
    if array.nbytes < LARGE or array.dtype.hasobject or array.__array_interface__["data"][0] % _ALIGN == 0:
        return array
    found = page_empty(array.shape, array.dtype)
    found[...] = array
    return found


def page_contiguous(array: Array, dtype: Any = None) -> Array:
    """`array` in C order and as `dtype`; a large copy is a `page_empty`."""
    kind = array.dtype if dtype is None else np.dtype(dtype)
    if array.flags.c_contiguous and array.dtype == kind:
        return array
    found = page_empty(array.shape, kind)
    found[...] = array
    return found
