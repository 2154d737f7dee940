"""The folder in which PoCL keeps the files of the programs it runs: this process's own, and checked before use.

PoCL unpacks a program binary into a folder named in it, takes files that lie there already for good, and maps them as
machine code: one byte changed, or a file that another process has only begun, ends the process or makes wrong numbers.
So no two processes share a folder (a lock says whose it is, which the system lifts however a process ends), and before
PoCL is given a binary, which was checked by whoever read it, its files are compared with the binary's and written where
they differ. PoCL, which would wait for the disk at each file, then finds them. Nothing else that an earlier process
left is kept once PoCL compiles anything. Needs no OpenCL.

    pocl/0/  pocl/0.lock     the first process's; the next one to start takes it when that has ended
    pocl/1/  pocl/1.lock     one that runs at the same time
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
"""What folders in this one begin with that go when their process does."""

_MOST_PROCESSES = 4096
_MOST_PROGRAMS = 512  # of earlier processes, in one folder
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_USED = "last_accessed"  # an empty file of PoCL's own, by which a program's last use can be told


class PoclFolder:
    """One process's folder. Thread-safe."""

    def __init__(self, path: Path, lock: int | None = None) -> None:
        """`lock`: the descriptor whose lock says that `path` is this process's; it stays open as long as that runs.

        Without one the folder is new, and removed at the end of the process.
        """
        self.path = path
        self.lock = lock
        self._checked: set[str] = set()
        self._is_own = lock is None  # whether nothing of an earlier process is left, or it was all checked
        self._lock = Lock()
        if lock is None:
            weakref.finalize(self, _remove, path, os.getpid())

    def keep(self) -> None:
        """Make the folder anew if it has gone, as PoCL, which runs, cannot be told of another one.

        What lies in its place is removed: nothing but Opalite's own lies there. DeviceError if it cannot be made.
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
                    f"the folder {self.path}, where PoCL keeps the files of this process, has gone and cannot be made "
                    f"anew ({e.strerror or e}); let it be made, or start the process again"
                ) from e
            if self.lock is not None:
                with suppress(OSError, ImportError):  # another process that starts takes it if it finds no lock
                    self.lock = try_lock(self.path.parent / f"{self.path.name}.lock") or self.lock
        _log.warning(
            "the folder %s, where PoCL keeps its files, had gone while this process runs; it is made anew", self.path
        )

    def take(self, binary: bytes) -> None:
        """Make what lies here for `binary` what the binary holds. DeviceError if the files cannot be written."""
        found = unpack(binary)
        if found is None:
            self.forget()
            return
        name, files = found
        with self._lock:
            root = self.path / name
            try:
                if not self._is_own and name not in self._checked:
                    _remove_others(root, files)
                _write_all(root, files)
            except OSError as e:
                raise DeviceError(
                    f"a program's files cannot be written to {self.path} ({e.strerror or e}), where PoCL needs them; "
                    "make room there, or set OPALITE_CACHE_DIR to another folder"
                ) from e
            self._checked.add(name)

    def forget(self) -> None:
        """Remove what earlier processes left and nobody has checked: PoCL is about to look for files by itself."""
        with self._lock:
            if self._is_own:
                return
            self._is_own = True
            for child in _children(self.path):
                if child.name.startswith(BUILDS):
                    continue
                # Names of two parts share a folder of the first.
                inner = _children(child) if re.fullmatch("[A-P]{2}", child.name) else [child]
                for path in inner:
                    if path.relative_to(self.path).as_posix() not in self._checked:
                        _discard(path)


def open_folder(parent: Path | None) -> PoclFolder:
    """A folder below `parent` that no other process has; a new one for temporary files if `parent` is None.

    So too where `parent` cannot be written or locked, has no room, or nothing there may be executed. DeviceError if no
    folder can be made anywhere.
    """
    if parent is not None and driver_fault(parent) is None:
        with suppress(OSError, ImportError):
            return _lock_folder(parent)
    return PoclFolder(make_temporary("opalite-pocl-"))


def _lock_folder(parent: Path) -> PoclFolder:
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(_MOST_PROCESSES):
        descriptor = try_lock(parent / f"{number}.lock")
        if descriptor is None:
            continue
        path = parent / str(number)
        try:
            if path.is_symlink() or len(_children(path)) > _MOST_PROGRAMS:
                _discard(path)
            path.mkdir(exist_ok=True)
            # PoCL leaves an empty file at each start, and a process that was killed what its workers built.
            for left in (*path.glob("tempfile*"), *path.glob(f"{BUILDS}*")):
                _discard(left)
            # A folder that can be read but not written must be found out now, and not by PoCL.
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
    """Make the files below `root` hold these contents."""
    for again in (True, False):
        try:
            for relative, contents in files.items():
                path = root / relative
                if not _holds(path, contents):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    temporary = path.with_name(f".tmp-{secrets.token_hex(4)}")
                    temporary.write_bytes(contents)
                    os.replace(temporary, path)
            return
        except OSError as e:
            if not again or isinstance(e, FileNotFoundError) or e.errno in _FULL:
                raise
            _discard(root)  # a file where a folder should be, or the reverse


def _holds(path: Path, contents: memoryview) -> bool:
    try:
        with open(path, "rb", buffering=0) as f:
            return os.fstat(f.fileno()).st_size == len(contents) and f.read() == contents
    except OSError:
        return False


def _remove_others(root: Path, files: Mapping[str, memoryview]) -> None:
    """Remove links, and what lies below `root` and is none of `files`, which PoCL would take too."""
    if root.is_symlink() or root.is_file():
        _discard(root)

    def look(folder: Path, prefix: str) -> None:
        with os.scandir(folder) as found:
            for entry in list(found):
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    look(Path(entry.path), f"{name}/")
                elif entry.is_symlink() or (name not in files and name != _USED):
                    _discard(Path(entry.path))

    with suppress(FileNotFoundError):
        look(root, "")


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
    if os.getpid() == pid:  # a process forked from that one has the same object
        shutil.rmtree(path, ignore_errors=True)
