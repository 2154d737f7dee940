"""Corrected CPU name for PoCL on CPUs unknown to its LLVM; PoCL's environment; checks before PoCL builds or loads.

PoCL's wheel (3.0, LLVM 14) guesses the name of an unknown CPU. Its compiler refuses the name 'generic', so every build
fails. Another name may lack features of PoCL's kernel library (avx512, avx2...); then no library function is inlined
and every multiply-add is a call. An Emerald Rapids, named 'icelake-client', runs MobileNetV1 in 50 ms instead of 8.
`fix_cpu_name` writes the kernel library's CPU name into PoCL's device record.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from .. import knobs
from ..cache.temporary_folders import make_temporary
from ..errors import DeviceError
from . import core_affinity, process_limits
from .check_loadable import check_loadable
from .program_binary import unpack, without_bitcode
from .program_folder import BUILDS, PoclFolder, open_folder
from .provide_linker import linker_in, prepare_linker

PLATFORM = "Portable Computing Language"
_CPU_NAMES: list[Any] = []  # strings that PoCL's device records point to
_folder: PoclFolder | None = None  # of this process
_fault: DeviceError | None = None  # the reason if there is no folder
_user_folder = ""  # POCL_CACHE_DIR, if the user has set it
_THREADS = "POCL_MAX_PTHREAD_COUNT"
_SPECIALIZATION = "POCL_WORK_GROUP_SPECIALIZATION"
_limited = ""  # the thread limit that this process set
_RECORD_BYTES = 4096
_NAMES = (("avx512f", "skylake-avx512"), ("avx2", "haswell"), ("avx", "sandybridge"), ("sse4_1", "penryn"))


def has_wrong_cpu_name(platform_name: str, device_version: str) -> bool:
    """Return whether an old PoCL (its wheel) names the CPU differently from its kernel library."""
    return (
        sys.platform == "linux"
        and platform.machine() == "x86_64"
        and platform_name == PLATFORM
        and processor_name(device_version) != host_cpu_name()
        and ("pthread-" in device_version or processor_name(device_version) == "generic")
    )


def processor_name(device_version: str) -> str:
    """LLVM's CPU name at the end of a PoCL device version, such as '...-linux-gnu-icelake-client'."""
    return device_version.strip().rpartition("-gnu-")[2]


def prepare_environment(cache_folder: Path | None) -> str | None:
    """Set PoCL's environment: its folder below `cache_folder` (None: a temporary one), threads, pinning.

    Call this before the first OpenCL call, and `restore_environment` after it. Settings made by the user are kept.
    Returns the reason if PoCL has no folder, else None: other drivers need none. Raises DeviceError if the process
    limits leave too little memory for drivers or no thread for PoCL.

    PoCL gets one thread for each usable core (core_affinity.py), pinned by PoCL if it has every core of the machine,
    else by `pin_threads`. Specialization by work-group size is off: one function serves all sizes as fast, and is part
    of the program's binary.
    """
    global _folder, _fault, _limited, _user_folder
    if _folder is not None:
        return None
    process_limits.check_start()
    knobs.default_foreign(_SPECIALIZATION, "0")
    if not knobs.foreign(_THREADS) and (threads := process_limits.thread_limit()) is not None:
        _limited = str(threads)
        knobs.set_foreign(_THREADS, _limited)
    if _has_all_cores():
        knobs.default_foreign("POCL_AFFINITY", "1")
    if knobs.has_foreign("POCL_CACHE_DIR") or knobs.has_foreign("POCL_KERNEL_CACHE"):
        _user_folder = knobs.foreign("POCL_CACHE_DIR") or ""
        return None
    try:
        _folder = open_folder(None if cache_folder is None else cache_folder / "pocl")
    except DeviceError as e:
        _fault = e
        return str(e)
    _fault = None
    knobs.set_foreign("POCL_CACHE_DIR", str(_folder.path))
    return None


def restore_environment() -> None:
    """Unset the folder and thread limit, which children must not inherit. Call after the first OpenCL call."""
    global _limited
    if _limited and knobs.foreign(_THREADS) == _limited:
        knobs.unset_foreign(_THREADS)
    _limited = ""
    if _folder is not None and knobs.foreign("POCL_CACHE_DIR") == str(_folder.path):
        knobs.unset_foreign("POCL_CACHE_DIR")


def pin_threads(platform_name: str, started: set[int]) -> None:
    """Pin PoCL's threads, which are among the tasks `started`, to one core each.

    No effect if the numbers of threads and usable cores differ, or if POCL_AFFINITY is set (1: PoCL pins; 0: the user
    forbids pinning).
    """
    if platform_name == PLATFORM and not knobs.foreign("POCL_AFFINITY"):
        core_affinity.pin(started, core_affinity.allowed_cores())


def make_build_folder() -> str:
    """Make a folder for build workers, removed with this process's folder. Raises DeviceError if that fails."""
    if _folder is None:
        return str(make_temporary("opalite-build-"))
    _folder.ensure_exists()
    return tempfile.mkdtemp(prefix=BUILDS, dir=_folder.path)


def prepare_binary(binary: bytes) -> bytes:
    """Return `binary` as PoCL should load it, after checks; call this before loading.

    Raises DeviceError if its files cannot be written, UnloadableError if the program must be built again.
    """
    _check_folder()
    binary = strip_bitcode(binary)
    if (found := unpack(binary)) is not None:
        check_loadable(found[1])
    process_limits.check_file(len(binary))
    process_limits.check_files(process_limits.LOAD_FILES, "loading a program of PoCL's")
    if _folder is not None:
        _folder.install(binary)
    return binary


def strip_bitcode(binary: bytes) -> bytes:
    """`binary` without bitcode, unless specialization by work-group size is on, which needs bitcode."""
    return without_bitcode(binary) if knobs.foreign(_SPECIALIZATION) == "0" else binary


def prepare_build() -> None:
    """Check linker, folder and process limits. Raises DeviceError if a build would fail. Call before PoCL compiles."""
    _check_folder()
    prepare_linker()
    process_limits.check_build(str(_folder.path) if _folder is not None else knobs.foreign("POCL_CACHE_DIR"))
    if _folder is not None:
        _folder.remove_unverified()


def _check_folder() -> None:
    """Ensure that PoCL's folder exists. Raises DeviceError if there is none."""
    if _folder is None and _fault is not None:
        raise DeviceError(str(_fault))
    if _folder is not None:
        _folder.ensure_exists()
    elif _user_folder:
        with suppress(OSError):  # PoCL reports it
            os.makedirs(_user_folder, exist_ok=True)


def _has_all_cores() -> bool:
    """Return whether PoCL has a thread for every core of the machine: its pinning numbers cores from 0."""
    limit, count = knobs.foreign(_THREADS), os.cpu_count() or 1
    if limit and limit != str(count):
        return False
    return hasattr(os, "sched_getaffinity") and len(core_affinity.allowed_cores()) == count


def worker_environment(folder: str) -> dict[str, str]:
    """Environment of a build worker: this process's packages, PoCL's files in `folder`, one thread.

    Raises OSError if `folder` cannot be written.
    """
    return knobs.environment(
        **{
            **linker_in(folder),
            "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
            "POCL_CACHE_DIR": folder,
            "POCL_KERNEL_CACHE": "0",
            "POCL_MAX_PTHREAD_COUNT": "1",
            "POCL_AFFINITY": "0",
            "OPENBLAS_NUM_THREADS": "1",
        }
    )


@cache
def host_cpu_name() -> str:
    """LLVM's CPU name of the kernel library that PoCL selects here; the architecture unless on x86-64 Linux."""
    machine = platform.machine().lower() or "host"
    return llvm_cpu_name(cpu_flags()) if sys.platform == "linux" and machine == "x86_64" else machine


def llvm_cpu_name(flags: set[str]) -> str:
    """LLVM's CPU name of the kernel library that PoCL selects for these /proc/cpuinfo flags."""
    for flag, name in _NAMES:
        if flag in flags:
            return name
    return "x86-64"


def fix_cpu_name(device_pointer: int, device_version: str) -> bool:
    """Replace the CPU name in PoCL's record of the device at `device_pointer`; False if the name is not found."""
    wrong = processor_name(device_version).encode() + b"\0"
    record = _peek(device_pointer, _RECORD_BYTES)
    for offset in range(0, len(record), 8):
        target = int.from_bytes(record[offset : offset + 8], "little")
        if 4096 < target < 1 << 47 and _peek(target, len(wrong)) == wrong:
            name = ctypes.create_string_buffer(host_cpu_name().encode())
            _CPU_NAMES.append(name)
            ctypes.c_uint64.from_address(device_pointer + offset).value = ctypes.addressof(name)
            return True
    return False


def _peek(address: int, count: int) -> bytes:
    """Bytes of this process's memory; b'' for unmapped addresses, without a fault."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(count)
    except (OSError, ValueError, OverflowError):
        return b""


def cpu_flags() -> set[str]:
    """Flags of an x86 CPU in /proc/cpuinfo; empty on other systems."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("flags"):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()
