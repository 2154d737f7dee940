"""Limits of the process that PoCL does not survive, looked at before it meets them, as sentences.

LLVM aborts where a file cannot be written to its end and crashes where memory cannot be had; PoCL aborts where a thread
or `ld` cannot be started, or `ld` cannot open a file. Each check costs microseconds. Needs no OpenCL.
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
"""Largest file that PoCL may have to write when it builds a program; several times the largest seen."""

FREE_BYTES = 4 << 20
"""What must be free on the disk for a build."""

START_BYTES = 400 << 20
"""Address space that the libraries of pyopencl, PoCL and LLVM take; measured with one thread: 172 MiB with PoCL 3.0 and
301 with 5.0 and 6.0."""

BUILD_BYTES = 400 << 20
"""Address space for a build: crashes were seen with 250 MiB left, none with 350."""

START_FILES = 4
"""Files that must be free to be opened where drivers are loaded."""

BUILD_FILES = 10
"""Files for a build: PoCL's, and those of the system's `ld`, which ended it with 5 left and not with 6."""

LOAD_FILES = 3
"""Files for a program that was built before; one was enough."""

_SPARE = 3  # tasks besides PoCL's threads: the linker, and what starts it
_STACK_BYTES = 2 << 20  # of a thread where a process's own stack has no limit (pthread_create(3))
_ARENA_BYTES = 64 << 20  # that malloc sets aside for a thread, beside its stack, once it asks for memory
_MANY = 4096  # limits from here on are nobody's concern


def check_start() -> None:
    """DeviceMemoryError if the address space left (ulimit -v) is too small to load OpenCL drivers.

    DeviceError if too few files may be opened.
    """
    _check_memory(START_BYTES, "loading OpenCL drivers")
    check_files(START_FILES, "loading OpenCL drivers")


def check_build(folder: str) -> None:
    """DeviceError if PoCL, whose files lie in `folder`, cannot build a program within this process's limits."""
    check_files(BUILD_FILES, "compiling a program with PoCL")
    check_file(FILE_BYTES)
    _check_memory(BUILD_BYTES, "compiling a program with PoCL")
    if folder and os.path.isdir(folder) and not os.access(folder, os.W_OK):
        raise DeviceError(
            f"the folder {folder} cannot be written any more, and PoCL, which runs kernels on the CPU, writes files "
            "there while it builds a program: let it be written, or start the process again"
        )
    free = free_bytes(folder) if folder else None
    if free is not None and free < FREE_BYTES:
        raise DeviceError(
            f"the disk of {folder} is full ({free >> 10} KiB free), and PoCL, which runs kernels on the CPU, writes "
            "files while it builds a program: make room, or set OPALITE_CACHE_DIR to a folder on another disk"
        )


def check_file(nbytes: int) -> None:
    """DeviceError if this process may not write files of `nbytes` (ulimit -f)."""
    limit = _limit("RLIMIT_FSIZE")
    if limit is not None and limit < nbytes:
        raise DeviceError(
            f"this process may write files of at most {limit >> 10} KiB (ulimit -f), and PoCL, which runs kernels on "
            f"the CPU, writes larger ones while it builds programs: raise the limit to {nbytes >> 10} or more"
        )


def check_files(count: int, doing: str) -> None:
    """DeviceError if this process may not open `count` files more (ulimit -n), as `doing` takes."""
    found = free_files()
    if found is not None and found[0] < count:
        raise DeviceError(
            f"{doing} takes up to {count} open files, and this process has {found[0]} left of {found[1]} (ulimit -n): "
            "raise the limit, or close files"
        )


def free_files() -> tuple[int, int] | None:
    """How many files this process may open beside those that are, and how many it may have; None without a limit."""
    limit = _limit("RLIMIT_NOFILE")
    if limit is None:
        return None
    try:
        # One of them is the folder's own. Those that were opened before the limit was lowered may be past it.
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
    """Bytes that this process has mapped; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _limit(name: str) -> int | None:
    """The soft limit `name` of the resource module; None where there is none."""
    if os.name != "posix":
        return None
    import resource

    value = resource.getrlimit(getattr(resource, name))[0]
    return None if value == resource.RLIM_INFINITY else value


def task_limit(groups: Path = Path("/sys/fs/cgroup/pids.max")) -> int | None:
    """How many tasks this user or container may have, where that is so few that it matters."""
    limits = [_limit("RLIMIT_NPROC")] if sys.platform == "linux" and os.geteuid() != 0 else []
    try:
        limits.append(int(groups.read_text()))
    except (OSError, ValueError):
        limits.append(None)
    return min((limit for limit in limits if limit is not None and limit < _MANY), default=None)


def thread_limit() -> int | None:
    """How many threads PoCL may start where cores, tasks or address space are few; None if one for each core there is.

    DeviceError if not even one.
    """
    cores = os.cpu_count() or 1
    found = (core_limit(), _task_threads(cores), _stack_threads())
    return min((n for n in found if n is not None and n < cores), default=None)


def _task_threads(cores: int) -> int | None:
    """How many threads the limit of tasks leaves to PoCL; None where there is no limit."""
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
    """How many threads the limit of address space leaves room for; None where there is no limit.

    A thread does without an arena of its own, but those that run take theirs while PoCL starts others.
    """
    limit = _limit("RLIMIT_AS")
    if limit is None:
        return None
    left = limit - _address_space() - START_BYTES
    return max(1, left // ((_limit("RLIMIT_STACK") or _STACK_BYTES) + _ARENA_BYTES))


def _try_threads(wanted: int) -> int:
    """How many threads of `wanted` start at once."""
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
