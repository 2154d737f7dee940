"""PoclFolder: the locked folder with the files of PoCL's programs of one process, verified before use.

PoCL unpacks a program binary into a folder whose name the binary contains, trusts existing files there, and maps them
as machine code. A damaged or incomplete file crashes the process or yields wrong results. So each process has its own
folder, with a lock that the system releases when the process ends. Before PoCL loads a verified binary, differing files
are rewritten; PoCL then writes no files and so does not wait for the disk. Unverified files of earlier processes are
removed before PoCL compiles. Needs no OpenCL.

    pocl/0/  pocl/0.lock     of the first process; a later process takes over the folder of an ended one
    pocl/1/  pocl/1.lock     of a concurrent process
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock

from ..cache.file_locks import try_lock
from ..cache.temporary_folders import driver_fault, make_temporary
from ..errors import DeviceError
from .program_binary import unpack

_log = logging.getLogger(__name__)

BUILDS = "build-"
"""Prefix of build workers' folders, which are removed with their process."""

_MAX_PROCESSES = 4096
_MAX_PROGRAMS = 512  # of earlier processes in one folder
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_ACCESS_MARK = "last_accessed"  # an empty file that PoCL touches at each use of a program


class PoclFolder:
    """The PoCL folder of one process. Thread-safe."""

    def __init__(self, path: Path, lock: int | None = None) -> None:
        """lock: descriptor of the lock file, open until the process ends. None: a new folder, removed at exit."""
        self.path = path
        self.lock = lock
        self._verified: set[str] = set()
        self._is_clean = lock is None  # no unverified files of earlier processes
        self._lock = Lock()
        if lock is None:
            weakref.finalize(self, _remove, path, os.getpid())

    def ensure_exists(self) -> None:
        """Recreate the folder if it was removed: a running PoCL cannot change its folder.

        A file in its place is removed. Raises DeviceError if the folder cannot be made.
        """
        if os.path.isdir(self.path):
            return
        with self._lock:
            if os.path.isdir(self.path):
                return
            try:
                for path in (self.path.parent, self.path) if self.lock is not None else (self.path,):
                    if os.path.lexists(path) and not path.is_dir():
                        _discard(path)
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise DeviceError(
                    f"PoCL's folder {self.path} was removed and cannot be made again ({e.strerror or e}); make it "
                    "writable, or restart the process"
                ) from e
            if self.lock is not None:
                with suppress(OSError, ImportError):  # without a lock a new process takes the folder
                    self.lock = try_lock(self.path.parent / f"{self.path.name}.lock") or self.lock
        _log.warning("PoCL's folder %s was removed while this process runs; it is made again", self.path)

    def install(self, binary: bytes) -> None:
        """Make the files of `binary` here equal to its contents. Raises DeviceError if they cannot be written."""
        found = unpack(binary)
        if found is None:
            self.remove_unverified()
            return
        name, files = found
        with self._lock:
            root = self.path / name
            try:
                if not self._is_clean and name not in self._verified:
                    _remove_others(root, files)
                _write_all(root, files)
            except OSError as e:
                raise DeviceError(
                    f"a program's files cannot be written to {self.path} ({e.strerror or e}), where PoCL needs them; "
                    "free space there, or set OPALITE_CACHE_DIR to another folder"
                ) from e
            self._verified.add(name)

    def remove_unverified(self) -> None:
        """Remove unverified files of earlier processes, before PoCL compiles and looks for files by itself."""
        with self._lock:
            if self._is_clean:
                return
            self._is_clean = True
            for child in _children(self.path):
                if child.name.startswith(BUILDS):
                    continue
                # PoCL nests programs in folders of two letters.
                inner = _children(child) if re.fullmatch("[A-P]{2}", child.name) else [child]
                for path in inner:
                    if path.relative_to(self.path).as_posix() not in self._verified:
                        _discard(path)


def open_folder(parent: Path | None) -> PoclFolder:
    """Lock a folder below `parent`, or make a temporary one.

    A temporary one if `parent` is None, not writable, not lockable, full, or mounted noexec. Raises DeviceError if no
    folder can be made.
    """
    if parent is not None and driver_fault(parent) is None:
        with suppress(OSError, ImportError):
            return _lock_folder(parent)
    return PoclFolder(make_temporary("opalite-pocl-"))


def _lock_folder(parent: Path) -> PoclFolder:
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(_MAX_PROCESSES):
        descriptor = try_lock(parent / f"{number}.lock")
        if descriptor is None:
            continue
        path = parent / str(number)
        try:
            if path.is_symlink() or len(_children(path)) > _MAX_PROGRAMS:
                _discard(path)
            path.mkdir(exist_ok=True)
            # PoCL leaves an empty file at each start; killed processes leave their build folders.
            for left in (*path.glob("tempfile*"), *path.glob(f"{BUILDS}*")):
                _discard(left)
            # Detect a read-only folder here rather than in PoCL.
            probe, name = tempfile.mkstemp(dir=path)
            os.close(probe)
            os.unlink(name)
        except OSError:
            os.close(descriptor)
            raise
        return PoclFolder(path, descriptor)
    raise OSError("too many processes")


# Files


def _write_all(root: Path, files: Mapping[str, memoryview]) -> None:
    """Write the files below `root` that differ from these contents."""
    for may_retry in (True, False):
        try:
            for relative, contents in files.items():
                path = root / relative
                if not _has_contents(path, contents):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    temporary = path.with_name(f".tmp-{secrets.token_hex(4)}")
                    temporary.write_bytes(contents)
                    os.replace(temporary, path)
            return
        except OSError as e:
            if not may_retry or isinstance(e, FileNotFoundError) or e.errno in _FULL:
                raise
            _discard(root)  # a file in place of a folder, or the reverse


def _has_contents(path: Path, contents: memoryview) -> bool:
    try:
        with open(path, "rb", buffering=0) as f:
            return os.fstat(f.fileno()).st_size == len(contents) and f.read() == contents
    except OSError:
        return False


def _remove_others(root: Path, files: Mapping[str, memoryview]) -> None:
    """Remove links and files below `root` that are not in `files`, since PoCL would use any file there."""
    if root.is_symlink() or root.is_file():
        _discard(root)

    def visit(folder: Path, prefix: str) -> None:
        with os.scandir(folder) as found:
            for entry in list(found):
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    visit(Path(entry.path), f"{name}/")
                elif entry.is_symlink() or (name not in files and name != _ACCESS_MARK):
                    _discard(Path(entry.path))

    with suppress(FileNotFoundError):
        visit(root, "")


def _children(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink()


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        shutil.rmtree(path, ignore_errors=True)
