"""Keeps PoCL usable and fast on processors that its LLVM does not know.

PoCL's wheel (3.0, LLVM 14) guesses the name of such a processor. Its own compiler refuses the name 'generic', so every
build fails. Any other name may lack features that PoCL's kernel library (avx512, avx2...) was compiled with; then no
function of that library is inlined and every multiply-add is a call: measured on an Emerald Rapids, which it calls
'icelake-client', MobileNetV1 takes 50 ms in place of 8. `fix_cpu_name` writes the LLVM name that
the library was built for into PoCL's device record.

PoCL also needs a folder for its files (folder.py), which `prepare_environment` tells it.
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
_KEEP: list[Any] = []  # strings that PoCL's device records point to
_folder: PoclFolder | None = None  # this process's
_fault: DeviceError | None = None  # why it has none
_user_folder = ""  # the one that the user has chosen, if any
_THREADS = "POCL_MAX_PTHREAD_COUNT"
_SPECIALIZATION = "POCL_WORK_GROUP_SPECIALIZATION"
_limited = ""  # what this process told PoCL of its threads
_RECORD_BYTES = 4096
_NAMES = (("avx512f", "skylake-avx512"), ("avx2", "haswell"), ("avx", "sandybridge"), ("sse4_1", "penryn"))


def has_wrong_cpu_name(platform_name: str, device_version: str) -> bool:
    """Whether this is a CPU device of PoCL, as old as its wheel, whose processor's name is not its kernel library's."""
    return (
        sys.platform == "linux"
        and platform.machine() == "x86_64"
        and platform_name == PLATFORM
        and processor_name(device_version) != host_cpu_name()
        and ("pthread-" in device_version or processor_name(device_version) == "generic")
    )


def processor_name(device_version: str) -> str:
    """LLVM's name for the processor, which a PoCL device's version ends with: '...-linux-gnu-icelake-client'."""
    return device_version.strip().rpartition("-gnu-")[2]


def prepare_environment(cache_folder: Path | None) -> str | None:
    """Tell PoCL where its files go: into `cache_folder`, or into temporary files for None. See `restore_environment`.

    To be called before the first OpenCL call. What the user has set stays. Returns why PoCL has no folder, or None;
    other drivers do without one.
    DeviceError if the limits of this process leave drivers too little memory, or PoCL no thread.

    PoCL starts as many threads as the process may use cores (core_affinity.py), each of which stays on a core of its
    own: PoCL does that itself where it has every core of the machine, else `pin_threads`.

    Kernels are not compiled again for each work-group size: one function serves them all, no slower by measurement, and
    a program's binary holds it.
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
    """To be called after the first OpenCL call. PoCL knows its folder and threads, which are no other process's."""
    global _limited
    if _limited and knobs.foreign(_THREADS) == _limited:
        knobs.unset_foreign(_THREADS)
    _limited = ""
    if _folder is not None and knobs.foreign("POCL_CACHE_DIR") == str(_folder.path):
        knobs.unset_foreign("POCL_CACHE_DIR")


def pin_threads(platform_name: str, started: set[int]) -> None:
    """Keep PoCL's threads, which are among the tasks `started` since the platform was asked, to a core each.

    Only where they are as many as the cores that the process may use; POCL_AFFINITY says 1 where PoCL has done it, and
    0 where the user does not want it.
    """
    if platform_name == PLATFORM and not knobs.foreign("POCL_AFFINITY"):
        core_affinity.pin(started, core_affinity.allowed_cores())


def make_build_folder() -> str:
    """A new folder for processes that only build; it goes with this process's own. DeviceError if there is no place."""
    if _folder is None:
        return str(make_temporary("opalite-build-"))
    _folder.keep()
    return tempfile.mkdtemp(prefix=BUILDS, dir=_folder.path)


def prepare_binary(binary: bytes) -> bytes:
    """To be called before PoCL is given `binary`: what to give it in its place.

    DeviceError if its files cannot be written, UnloadableError if it has to be built again.
    """
    _check_folder()
    binary = strip_bitcode(binary)
    if (found := unpack(binary)) is not None:
        check_loadable(found[1])
    process_limits.check_file(len(binary))
    process_limits.check_files(process_limits.LOAD_FILES, "loading a program of PoCL's")
    if _folder is not None:
        _folder.take(binary)
    return binary


def strip_bitcode(binary: bytes) -> bytes:
    """`binary` without the bitcode of PoCL's, unless that is to compile kernels again for sizes of work-groups."""
    return without_bitcode(binary) if knobs.foreign(_SPECIALIZATION) == "0" else binary


def prepare_build() -> None:
    """To be called before PoCL compiles anything. DeviceError if it would not survive that."""
    _check_folder()
    prepare_linker()
    process_limits.check_build(str(_folder.path) if _folder is not None else knobs.foreign("POCL_CACHE_DIR"))
    if _folder is not None:
        _folder.forget()


def _check_folder() -> None:
    """See to it that PoCL's folder is there. DeviceError if there is none."""
    if _folder is None and _fault is not None:
        raise DeviceError(str(_fault))
    if _folder is not None:
        _folder.keep()
    elif _user_folder:
        with suppress(OSError):  # PoCL says so
            os.makedirs(_user_folder, exist_ok=True)


def _has_all_cores() -> bool:
    """Whether PoCL's threads are as many as the machine's cores, which PoCL numbers from 0 when it pins them."""
    limit, count = knobs.foreign(_THREADS), os.cpu_count() or 1
    if limit and limit != str(count):
        return False
    return hasattr(os, "sched_getaffinity") and len(core_affinity.allowed_cores()) == count


def worker_environment(folder: str) -> dict[str, str]:
    """Environment of a process that only builds: this one's packages, PoCL's files in `folder`, one thread.

    OSError if `folder` cannot be written.
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
    """LLVM's name for the kernel library that PoCL picks here; elsewhere than on x86 Linux the architecture."""
    machine = platform.machine().lower() or "host"
    return llvm_cpu_name(cpu_flags()) if sys.platform == "linux" and machine == "x86_64" else machine


def llvm_cpu_name(flags: set[str]) -> str:
    """LLVM's name for the kernel library that PoCL picks on a processor with these /proc/cpuinfo flags."""
    for flag, name in _NAMES:
        if flag in flags:
            return name
    return "x86-64"


def fix_cpu_name(device_pointer: int, device_version: str) -> bool:
    """Replace the processor's name in the record of the device at `device_pointer`; False where it was not found."""
    wrong = processor_name(device_version).encode() + b"\0"
    record = _peek(device_pointer, _RECORD_BYTES)
    for offset in range(0, len(record), 8):
        target = int.from_bytes(record[offset : offset + 8], "little")
        if 4096 < target < 1 << 47 and _peek(target, len(wrong)) == wrong:
            name = ctypes.create_string_buffer(host_cpu_name().encode())
            _KEEP.append(name)
            ctypes.c_uint64.from_address(device_pointer + offset).value = ctypes.addressof(name)
            return True
    return False


def _peek(address: int, count: int) -> bytes:
    """Memory of this process, or b'' where it is not mapped (never a fault)."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(count)
    except (OSError, ValueError, OverflowError):
        return b""


def cpu_flags() -> set[str]:
    """What the system says that an x86 processor has, by its names; empty where it does not say."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("flags"):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()
