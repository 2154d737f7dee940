"""What is larger than the memory there is, said before or instead of failing for want of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import DeviceMemoryError
from ...ir.device import DeviceInfo
from ...ir.graph import Graph

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def check_sizes(graph: Graph, device: DeviceInfo) -> None:
    """DeviceMemoryError for a tensor larger than all memory of `device`, stored as its Place says."""
    for v in graph.values():
        nbytes = v.type.count * v.type.storage.size
        if nbytes > device.global_mem:
            who = f"output of {v.producer.label}" if v.producer is not None else f"tensor '{v.name}'"
            raise DeviceMemoryError(
                f"{who}: {v.type.dtype.short}{list(v.shape)} takes {size_text(nbytes)}, but {device.name} has "
                f"{size_text(device.global_mem)} in all. Use a smaller batch or input, or another device"
            )


def size_text(nbytes: int) -> str:
    """A size for people: '512 bytes', '4.0 TiB'."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


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
