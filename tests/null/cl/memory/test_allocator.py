"""What no driver is asked for: buffers and texels that are larger than the device allows."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.cl.memory.allocator import Allocator
from opalite.cl.runtime_counters import Counters
from opalite.errors import DeviceError, DeviceMemoryError
from opalite.ir.device.device_info import DeviceInfo
from opalite.ir.dtype import DType

SMALL = DeviceInfo(name="X", global_mem=1 << 20, image_support=True, image2d_max=(64, 32), image_buffer_max=100)


def allocator() -> Allocator:
    no_context: Any = None
    return Allocator(no_context, SMALL, Counters())


def test_a_buffer_beyond_the_devices_memory() -> None:
    """Drivers that allocate at first use accept any size."""
    with pytest.raises(DeviceMemoryError, match=r"X has no room for a buffer of 2097152 bytes .* its memory is 1 MiB"):
        allocator().buffer(2 << 20)


def test_texels_beyond_the_devices_images() -> None:
    with pytest.raises(DeviceError, match="64×33 texels exceeds what X allows"):
        allocator().image(64, 33, DType.FLOAT32)
    with pytest.raises(DeviceError, match="101 texels exceeds the 100"):
        allocator().texels(None, 101 * 16)
