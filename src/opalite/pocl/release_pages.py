"""Releases resident pages of PoCL's libraries that only their initialization has read. Linux only.

libpocl contains LLVM, whose relocations and constructors make 26 MB of the file resident. A process that lets workers
compile hardly reads them again. The pages are unmodified file pages, so the system reloads needed ones from its page
cache. Needs no OpenCL.
"""

from __future__ import annotations

import ctypes
import re
import sys
from functools import cache
from pathlib import Path

_MIN_KIB = 64  # smallest mapping that is worth a call
_DONT_NEED = 4  # MADV_DONTNEED, of Linux on every architecture
# A private read-only mapping of a library, with its resident, anonymous (copied) and swapped KiB.
_MAPPING = (
    r"(?m)^([0-9a-f]+)-([0-9a-f]+) r-[-x]p [^/\n]*/(?:[^/\n]*/)*(?:libpocl|libLLVM|libclang)[^/\n]*\n"
    r"(?:[A-Z]\w*:.*\n)*?Rss: +(\d+) kB\n(?:[A-Z]\w*:.*\n)*?Anonymous: +(\d+) kB\n(?:[A-Z]\w*:.*\n)*?Swap: +(\d+) kB$"
)


@cache
def release_pages() -> int:
    """Release unmodified resident pages of the libraries, once in a process; returns the bytes. Call after loading."""
    if sys.platform != "linux":
        return 0
    try:
        found = unchanged_mappings(Path("/proc/self/smaps").read_text())
    except (OSError, UnicodeDecodeError):
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(resident for start, end, resident in found if advise(start, end - start, _DONT_NEED) == 0)


def unchanged_mappings(smaps: str) -> list[tuple[int, int, int]]:
    """(start, end, resident bytes) of each read-only mapping of the libraries without modified pages.

    The loader writes relocations into some mappings before it makes them read-only; these have modified pages.
    """
    mappings = [(int(m[1], 16), int(m[2], 16), int(m[3]), int(m[4]) + int(m[5])) for m in re.finditer(_MAPPING, smaps)]
    return [(first, end, kib << 10) for first, end, kib, copied in mappings if not copied and kib >= _MIN_KIB]
