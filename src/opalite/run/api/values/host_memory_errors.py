"""What the host's memory cannot hold, said as an error of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....errors import DeviceMemoryError


@contextmanager
def host_memory(doing: str) -> Iterator[None]:
    """Tell of memory that the host lacks inside the block as a DeviceMemoryError; `doing` says what was being done."""
    try:
        yield
    except MemoryError as e:
        raise out_of_memory(e, doing) from e


def out_of_memory(error: MemoryError, doing: str) -> DeviceMemoryError:
    """What to raise for `error`, which came of `doing`."""
    detail = f" ({error})" if str(error) else ""
    return DeviceMemoryError(f"the host ran out of memory{detail} {doing}; use a smaller batch or input")
