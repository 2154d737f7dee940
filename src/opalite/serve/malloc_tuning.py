"""keep_freed_memory: malloc settings of a process that only serves.

glibc maps allocations above 128 KiB anew and unmaps them when freed, and the kernel clears each new page. For bodies of
600 KB this took half of all CPU time.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>
_FREE = 128 << 20
_PIECE = 32 << 20


def keep_freed_memory() -> None:
    """Keep up to 128 MiB of freed memory, in allocations up to 32 MiB. Linux with glibc only."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, _PIECE)
            mallopt(_TRIM_THRESHOLD, _FREE)
