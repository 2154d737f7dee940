"""host_memory: converts Python's MemoryError to DeviceMemoryError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....errors import DeviceMemoryError


@contextmanager
def host_memory(doing: str) -> Iterator[None]:
    """Convert a MemoryError inside the block to a DeviceMemoryError. doing: the activity, for the message."""
    try:
        yield
    except MemoryError as e:
        raise out_of_memory(e, doing) from e


def out_of_memory(error: MemoryError, doing: str) -> DeviceMemoryError:
    """The DeviceMemoryError for a MemoryError during the activity `doing`."""
    detail = f" ({error})" if str(error) else ""
    return DeviceMemoryError(f"the host ran out of memory{detail} {doing}; use a smaller batch or input")
