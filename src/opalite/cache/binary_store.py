"""BinaryStore: on-disk store of program binaries, safe for concurrent processes and for kills at any time.

An entry is one file: a header with its key and the digest of its contents, then the binary. Writers rename a temporary
file, so a reader sees a whole entry or none. An invalid entry (truncated, damaged, another version or key) is removed
with one log line and counts as a miss. Needs no OpenCL.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path

from .cache_folder import trim

_log = logging.getLogger(__name__)

# Part of every key. Raise it if the header or the meaning of a key changes, or if earlier binaries are wrong.
FORMAT = 2
_MAGIC = b"OPALBIN\0"
_HEADER = struct.Struct("<8sII32s32sQ")  # magic, format, reserved, key, digest of the contents, their length


class BinaryStore:
    """Binaries by key in `folder`/programs. cap_bytes: size limit of the whole cache folder."""

    def __init__(self, folder: Path, cap_bytes: int, writable: bool = True) -> None:
        self.folder = folder
        self.cap_bytes = cap_bytes
        self.healed = 0  # damaged entries removed
        self._writable = writable
        self._untrimmed = cap_bytes  # bytes written since the last trim; the first write trims

    def path(self, key: str) -> Path:
        """Path of entry `key`."""
        return self.folder / "programs" / key[:2] / f"{key}.bin"

    def is_empty(self) -> bool:
        """Return whether the store has no entry."""
        return next((self.folder / "programs").glob("*/*.bin"), None) is None

    def get(self, key: str) -> bytes | None:
        """The binary stored under `key`, or None."""
        path = self.path(key)
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        fault = _fault(raw, key)
        if fault is not None:
            self.discard(key, fault)
            return None
        with suppress(OSError):  # a read-only cache is usable
            os.utime(path)  # last use, for eviction
        return raw[_HEADER.size :]

    def put(self, key: str, binary: bytes, replace: bool = False) -> bool:
        """Store `binary`; returns False, with one log line the first time, if the folder cannot be written.

        An existing entry stays unless `replace`: two builds of a program differ (PoCL writes random names), and all
        processes should get the same bytes.
        """
        if not self._writable:
            return False
        path = self.path(key)
        temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}")
        header = _HEADER.pack(_MAGIC, FORMAT, 0, bytes.fromhex(key), hashlib.sha256(binary).digest(), len(binary))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(header + binary)
            (os.replace if replace else _put_first)(temporary, path)
        except OSError as e:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if path.exists():
                return True  # Windows: another process has the entry open
            self._writable = False
            _log.warning(
                "the program cache %s cannot be written (%s): the next process builds its programs again; "
                "set OPALITE_CACHE_DIR to a writable folder or OPALITE_CACHE=0",
                self.folder,
                e,
            )
            return False
        self._untrimmed += len(header) + len(binary)
        if self._untrimmed > self.cap_bytes // 8:
            self._untrimmed = 0
            trim(self.folder, self.cap_bytes)
        return True

    def discard(self, key: str, fault: str) -> None:
        """Remove an invalid entry, with the reason in one log line."""
        self.healed += 1
        _log.warning("removed entry %s… of the program cache: %s; it will be built again", key[:12], fault)
        with suppress(OSError):  # the next put replaces it
            self.path(key).unlink(missing_ok=True)


def _put_first(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path` unless that exists."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # no hard links
        os.replace(temporary, path)
        return
    temporary.unlink(missing_ok=True)


def _fault(raw: bytes, key: str) -> str | None:
    """Reason why an entry's bytes are invalid; None if they are valid."""
    if len(raw) < _HEADER.size:
        return f"it is truncated ({len(raw)} bytes)"
    magic, version, _, stored_key, contents, length = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        return "it is not a program binary of Opalite"
    if version != FORMAT:
        return f"it has format {version}, this is format {FORMAT}"
    if stored_key.hex() != key:
        return "it belongs to another key"
    if length != len(raw) - _HEADER.size:
        return f"it holds {len(raw) - _HEADER.size} of {length} bytes"
    if hashlib.sha256(memoryview(raw)[_HEADER.size :]).digest() != contents:
        return "its contents are damaged"
    return None
