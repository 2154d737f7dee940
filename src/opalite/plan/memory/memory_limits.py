"""Error for tensors larger than the device's memory, raised before programs are built."""

from __future__ import annotations

from ...errors import DeviceMemoryError
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Graph
from ...ir.symbols import hint_of

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def check_sizes(graph: Graph, device: DeviceInfo) -> None:
    """DeviceMemoryError for a tensor larger than all memory of `device`, stored as its Place says."""
    for v in graph.values():
        nbytes = v.type.count * v.type.storage.size
        if nbytes > device.global_mem:
            who = f"output of {v.producer.label}" if v.producer is not None else f"tensor '{v.name}'"
            what = f"{v.type.dtype.short}{list(hint_of(v.shape))}"
            raise DeviceMemoryError(
                f"{who}: {what} takes {size_text(hint_of(nbytes))}, but {device.title} has "
                f"{size_text(device.global_mem)} in all. Use a smaller batch or input, or another device"
            )


def size_text(nbytes: int) -> str:
    """A size as readable text: '512 bytes', '4.0 TiB', '2^200 bytes'."""
    if nbytes.bit_length() > 100:  # a damaged file may ask for more than a float holds
        return f"2^{nbytes.bit_length() - 1} bytes"
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
