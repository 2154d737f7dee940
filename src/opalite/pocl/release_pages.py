"""Gives back pages of the driver's libraries that only its start has read.

libpocl holds LLVM. While it is loaded, the system's loader reads its tables, and constructors of LLVM run all over its
code: 26 MB of the file are in the process's memory then, and hardly any of them is read again by a process that leaves
compiling to others. They are pages as they lie in the file, so the system may have them back at once, and what is
needed after all is mapped again from its cache, 16 pages at a time. Linux only. Needs no OpenCL.
"""

from __future__ import annotations

import ctypes
import re
import sys
from functools import cache
from pathlib import Path

_LEAST = 64  # KiB of a mapping for which a call pays
_DONT_NEED = 4  # MADV_DONTNEED, of Linux on every architecture
# A private mapping of a library, not to be written, with what is in memory of it and how much of that is a copy, in
# memory or swapped out.
_MAPPING = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) r-[-x]p [^/\n]*/(?:[^/\n]*/)*(?:libpocl|libLLVM|libclang)[^/\n]*\n"
    r"(?:[A-Z]\w*:.*\n)*?Rss: +(\d+) kB\n(?:[A-Z]\w*:.*\n)*?Anonymous: +(\d+) kB\n(?:[A-Z]\w*:.*\n)*?Swap: +(\d+) kB$",
    re.MULTILINE,
)


@cache
def release_pages() -> int:
    """Give back what is in memory, unchanged, of the libraries' files; how many bytes that was. After their start, once
    in a process.
    """
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
    """(first address, end, resident bytes) of the libraries' mappings that cannot be written, and of which no page is
    a copy: not of the loader's making either, which writes addresses into some before it protects them.
    """
    mappings = [(int(m[1], 16), int(m[2], 16), int(m[3]), int(m[4]) + int(m[5])) for m in _MAPPING.finditer(smaps)]
    return [(first, end, kib << 10) for first, end, kib, copied in mappings if not copied and kib >= _LEAST]
