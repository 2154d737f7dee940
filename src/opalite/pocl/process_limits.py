"""Checks of process limits, made before PoCL exceeds a limit: memory, file size, open files, threads, disk space.

LLVM aborts if a file cannot be written completely, and crashes if it cannot allocate memory. PoCL aborts if a thread or
`ld` cannot start, or `ld` cannot open a file. Each check takes microseconds. Needs no OpenCL.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

from ..cache.temporary_folders import free_bytes
from ..errors import DeviceError, DeviceMemoryError
from .core_affinity import core_limit

FILE_BYTES = 2 << 20
"""Upper bound of the files of a build: several times the largest seen."""

FREE_BYTES = 4 << 20
"""Free disk space for a build."""

START_BYTES = 400 << 20
"""Address space of pyopencl, PoCL and LLVM. Measured with one thread: 172 MiB with PoCL 3.0, 301 with 5.0 and 6.0."""

BUILD_BYTES = 400 << 20
"""Address space for a build: it crashed with 250 MiB left, not with 350."""

START_FILES = 4
"""File descriptors for loading drivers."""

BUILD_FILES = 10
"""File descriptors for a build, including `ld`: it failed with 5 left, not with 6."""

LOAD_FILES = 3
"""File descriptors for loading a binary; one was enough."""

_SPARE = 3  # tasks besides PoCL's threads: the linker and its parents
_STACK_BYTES = 2 << 20  # of a thread, if the stack limit is unlimited (pthread_create(3))
_ARENA_BYTES = 64 << 20  # address space that malloc reserves for a thread
_MANY = 4096  # task limits from here on are ignored


def check_start() -> None:
    """Check the limits for loading drivers.

    Raises DeviceMemoryError for too little address space (ulimit -v), DeviceError for too few files (ulimit -n).
    """
    _check_memory(START_BYTES, "loading OpenCL drivers")
    check_files(START_FILES, "loading OpenCL drivers")


def check_build(folder: str) -> None:
    """Raise DeviceError if PoCL, with its files in `folder`, cannot build a program within the process limits."""
    check_files(BUILD_FILES, "compiling a program with PoCL")
    check_file(FILE_BYTES)
    _check_memory(BUILD_BYTES, "compiling a program with PoCL")
    if folder and os.path.isdir(folder) and not os.access(folder, os.W_OK):
        raise DeviceError(f"PoCL's folder {folder} is no longer writable: make it writable, or restart the process")
    free = free_bytes(folder) if folder else None
    if free is not None and free < FREE_BYTES:
        raise DeviceError(
            f"the disk of {folder} is full ({free >> 10} KiB free), and PoCL, which runs kernels on the CPU, writes "
            "files while it builds a program: free space, or set OPALITE_CACHE_DIR to a folder on another disk"
        )


def check_file(nbytes: int) -> None:
    """Raise DeviceError if this process may not write files of `nbytes` (ulimit -f)."""
    limit = _limit("RLIMIT_FSIZE")
    if limit is not None and limit < nbytes:
        raise DeviceError(
            f"this process may write files of at most {limit >> 10} KiB (ulimit -f), and PoCL, which runs kernels on "
            f"the CPU, writes larger ones while it builds programs: raise the limit to {nbytes >> 10} or more"
        )


def check_files(count: int, doing: str) -> None:
    """Raise DeviceError if this process cannot open `count` more files (ulimit -n) for `doing`."""
    found = free_files()
    if found is not None and found[0] < count:
        raise DeviceError(
            f"{doing} takes up to {count} open files, and this process has {found[0]} left of {found[1]} (ulimit -n): "
            "raise the limit, or close files"
        )


def free_files() -> tuple[int, int] | None:
    """(free, total) file descriptors of this process; None without a limit."""
    limit = _limit("RLIMIT_NOFILE")
    if limit is None:
        return None
    try:
        # One is that of /dev/fd. Descriptors from before a lowering of the limit may exceed it.
        held = sum(int(name) < limit for name in os.listdir("/dev/fd")) - 1
    except OSError as e:
        return (0, limit) if e.errno == errno.EMFILE else None
    except ValueError:
        return None
    return limit - held, limit


def _check_memory(nbytes: int, doing: str) -> None:
    limit = _limit("RLIMIT_AS")
    if limit is None:
        return
    left = limit - _address_space()
    if left < nbytes:
        raise DeviceMemoryError(
            f"{doing} takes {nbytes >> 20} MiB of address space, and {max(left, 0) >> 20} MiB are left of the "
            f"{limit >> 20} MiB that this process may have (ulimit -v): raise the limit"
        )


def _address_space() -> int:
    """Mapped bytes of this process; 0 if the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _limit(name: str) -> int | None:
    """Soft limit `name` of the resource module; None if unlimited."""
    if os.name != "posix":
        return None
    import resource

    value = resource.getrlimit(getattr(resource, name))[0]
    return None if value == resource.RLIM_INFINITY else value


def task_limit(groups: Path = Path("/sys/fs/cgroup/pids.max")) -> int | None:
    """Task limit of the user or container; None if it is 4096 or more."""
    limits = [_limit("RLIMIT_NPROC")] if sys.platform == "linux" and os.geteuid() != 0 else []
    try:
        limits.append(int(groups.read_text()))
    except (OSError, ValueError):
        limits.append(None)
    return min((limit for limit in limits if limit is not None and limit < _MANY), default=None)


def thread_limit() -> int | None:
    """Number of threads for PoCL by limits of cores, tasks and address space; None for one per core.

    Raises DeviceError if no thread is possible.
    """
    cores = os.cpu_count() or 1
    found = (core_limit(), _task_threads(cores), _stack_threads())
    return min((n for n in found if n is not None and n < cores), default=None)


def _task_threads(cores: int) -> int | None:
    """Number of PoCL threads within the task limit; None without a limit."""
    if task_limit() is None:
        return None
    got = _try_threads(cores + _SPARE)
    if got <= _SPARE:
        raise DeviceError(
            f"this process can start {got} more threads or processes (ulimit -u, or the container's limit), and PoCL, "
            f"which runs kernels on the CPU, needs {_SPARE + 1}: raise the limit"
        )
    return got - _SPARE


def _stack_threads() -> int | None:
    """Number of threads within the limit of address space; None without a limit.

    A thread can run without a malloc arena, but running threads reserve arenas while PoCL starts others.
    """
    limit = _limit("RLIMIT_AS")
    if limit is None:
        return None
    left = limit - _address_space() - START_BYTES
    return max(1, left // ((_limit("RLIMIT_STACK") or _STACK_BYTES) + _ARENA_BYTES))


def _try_threads(wanted: int) -> int:
    """Number of threads, up to `wanted`, that can exist at once; measured by starting them."""
    end = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(wanted):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    finally:
        end.set()
        for thread in started:
            thread.join()
    return len(started)
