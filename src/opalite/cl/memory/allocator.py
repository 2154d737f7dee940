"""Allocator and Arena: buffers, images, and one arena for the regions of a memory plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyopencl as cl

from ...errors import DeviceError, DeviceMemoryError
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ..device.driver_errors import code_name, translate
from ..runtime_counters import Counters
from .device_pointers import BufferSlice
from .sub_buffers import SubBufferBlock, drop_released_blocks

Array = np.ndarray[Any, Any]
M = TypeVar("M")
_MIN_BYTES = 16  # some drivers refuse empty buffers
_TEXEL_BYTES = 16  # of four uint32
_MIB = 1 << 20


class Allocator:
    """Makes and counts buffers and images of one context. Errors state requested and available memory."""

    def __init__(self, context: cl.Context, info: DeviceInfo, counters: Counters) -> None:
        self.context = context
        self.info = info
        self.counters = counters

    def buffer(self, nbytes: int, *, mapped: bool = False) -> cl.Buffer:
        """A read-write buffer of at least `nbytes`. mapped: in host-accessible memory.

        Raises DeviceMemoryError if the device is full.
        """
        size = max(nbytes, _MIN_BYTES)
        if size > self.info.global_mem:
            # NVIDIA's driver allocates at first use and accepts any size here.
            raise self._refused(f"a buffer of {size} bytes", size, None)
        flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if mapped else 0)
        return self._made(lambda: cl.Buffer(self.context, flags, size), f"a buffer of {size} bytes", size)

    def wrapped(self, array: Array, *, writable: bool = False) -> cl.Buffer | None:
        """A zero-copy buffer over `array`; None if the device is no CPU, or the array is empty or misaligned.

        The array must outlive the buffer and must not change unless `writable`.
        """
        if not self.info.on_host or array.nbytes == 0 or not array.flags.c_contiguous:
            return None
        if array.__array_interface__["data"][0] % self.info.base_align:
            return None
        access = cl.mem_flags.READ_WRITE if writable else cl.mem_flags.READ_ONLY
        flags = access | cl.mem_flags.USE_HOST_PTR
        try:
            made = cl.Buffer(self.context, flags, hostbuf=array)
        except cl.Error:
            return None
        self._count(0)
        return made

    def sub_buffer(self, block: SubBufferBlock, offset: int, nbytes: int) -> cl.Buffer:
        """The range [offset, offset + nbytes) of `block`. `offset` is a multiple of the device's base_align."""
        try:
            made = block.cut(offset, max(nbytes, _MIN_BYTES))
        except cl.Error as e:
            have = f"a buffer of {block.buffer.size} (alignment {self.info.base_align})"
            raise translate(e, f"Cutting {nbytes} bytes at {offset} from {have}", self.info.title) from e
        self._count(0)
        return made

    def image(self, width: int, height: int, dtype: DType) -> cl.Image:
        """A read-write image2d of RGBA texels with channels of `dtype`, FLOAT32 or FLOAT16.

        Raises DeviceError if the image exceeds the device's limits, DeviceMemoryError if the device is full.
        """
        if not self.info.fits_image(width, height):
            raise DeviceError(
                f"an image of {width}×{height} texels exceeds what {self.info.title} allows ({_limits(self.info)}); "
                "keep this tensor in a buffer"
            )
        size = width * height * 4 * dtype.size
        flags, kind = cl.mem_flags.READ_WRITE, image_format(dtype)
        what = f"an image of {width}×{height} {dtype.short} texels"
        return self._made(lambda: cl.create_image(self.context, flags, kind, (width, height)), what, size)

    def texels(self, buffer: cl.Buffer, nbytes: int) -> cl.Image:
        """The first `nbytes` of `buffer` as an image of texels of four uint32. Raises DeviceError if it is too long."""
        count, most = nbytes // _TEXEL_BYTES, self.info.image_buffer_max
        if count > most:
            raise DeviceError(
                f"an image over a buffer of {count} texels exceeds the {most} that {self.info.title} allows; read the "
                "buffer itself"
            )
        kind = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT32)
        flags = cl.mem_flags.READ_ONLY
        view = partial(cl.create_image, self.context, flags, kind, (count,), buffer=buffer)
        return self._made(view, f"an image over a buffer of {nbytes} bytes", 0)

    def _made(self, make: Callable[[], M], what: str, nbytes: int) -> M:
        """Call `make`; if the device is full, free the memory of closed arenas and call it again."""
        drop_released_blocks()
        try:
            made = make()
        except cl.Error:
            drop_released_blocks()
            drop_released_blocks()
            try:
                made = make()
            except cl.Error as e:
                raise self._refused(what, nbytes, e) from e
        self._count(nbytes)
        return made

    def _count(self, nbytes: int) -> None:
        self.counters.memory_objects += 1
        self.counters.bytes_allocated += nbytes

    def _refused(self, what: str, nbytes: int, error: cl.Error | None) -> DeviceMemoryError:
        info = self.info
        held = self.counters.bytes_allocated
        reason = f" ({code_name(error.code)})" if error is not None else ""
        return DeviceMemoryError(
            f"{info.title} has no room for {what} ({nbytes / _MIB:.1f} MiB): its memory is "
            f"{info.global_mem / _MIB:.0f} MiB, its largest buffer {info.max_alloc / _MIB:.0f} MiB, and this process "
            f"allocated {held / _MIB:.0f} MiB so far{reason}. Use a smaller batch or input, precision fp16, or "
            "another device"
        )


class Arena:
    """Memory for regions (offset, nbytes) of one address space, as a memory plan places them; regions may overlap.

    One buffer if the device allows a buffer of that size; otherwise several, split where no region is cut.
    """

    def __init__(
        self,
        allocator: Allocator,
        regions: Sequence[tuple[int, int]],
        address: Callable[[cl.Buffer], int] | None = None,
    ) -> None:
        """address: returns the device address of a buffer, if kernels take regions as BufferSlice."""
        self._allocator = allocator
        self._address = address
        self._addresses: dict[int, int] = {}  # device address of a part, by its offset
        self._parts: list[tuple[int, int, SubBufferBlock]] = []
        self._cut: dict[tuple[int, int], cl.Buffer | BufferSlice] = {}
        limit = allocator.info.max_alloc
        for start, end in split_regions(regions, limit):
            self._parts.append((start, end, SubBufferBlock(allocator.buffer(end - start))))

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(end - start for start, end, _ in self._parts)

    @property
    def sub_buffer_count(self) -> int:
        """Number of sub-buffers; they live as long as the arena."""
        return len(self._cut) if self._address is None else 0

    def region(self, offset: int, nbytes: int) -> cl.Buffer | BufferSlice:
        """Memory of a region, shared by equal regions. A sub-buffer's `offset` is a multiple of base_align."""
        found = self._cut.get((offset, nbytes))
        if found is None:
            found = self._cut[offset, nbytes] = self._make(offset, nbytes)
        return found

    def _make(self, offset: int, nbytes: int) -> cl.Buffer | BufferSlice:
        start, block = self._part(offset, nbytes)
        if self._address is None:
            return self._allocator.sub_buffer(block, offset - start, nbytes)
        if start not in self._addresses:
            self._addresses[start] = self._address(block.buffer)
        return BufferSlice(block.buffer, self._addresses[start], offset - start, nbytes)

    def locate(self, offset: int, nbytes: int) -> tuple[cl.Buffer, int]:
        """The buffer that contains a region, and the region's offset in it."""
        start, block = self._part(offset, nbytes)
        return block.buffer, offset - start

    def _part(self, offset: int, nbytes: int) -> tuple[int, SubBufferBlock]:
        for start, end, block in self._parts:
            if start <= offset and offset + nbytes <= end:
                return start, block
        raise DeviceError(f"region {offset}+{nbytes} is not in the arena; it was not among its regions")


def split_regions(regions: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Spans [start, end) of at most `limit` bytes that cover all `regions` (offset, nbytes) without cutting one.

    A region above the limit gets its own span; the driver decides whether it fits.
    """
    spans: list[tuple[int, int]] = []
    for offset, nbytes in sorted(regions):
        end = offset + max(nbytes, _MIN_BYTES)
        if spans and offset < spans[-1][1]:  # overlaps: must share the span
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        elif spans and end - spans[-1][0] <= limit:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((offset, end))
    return spans


def image_format(dtype: DType) -> cl.ImageFormat:
    """RGBA format with channels of `dtype`: FLOAT32 or FLOAT16, which every device with images supports."""
    if dtype not in (DType.FLOAT32, DType.FLOAT16):
        raise DeviceError(f"an image holds f32 or f16 texels, not {dtype.short}")
    kind = cl.channel_type.HALF_FLOAT if dtype is DType.FLOAT16 else cl.channel_type.FLOAT
    return cl.ImageFormat(cl.channel_order.RGBA, kind)


def _limits(info: DeviceInfo) -> str:
    if not info.image_support:
        return "it has no images"
    return f"{info.image2d_max[0]}×{info.image2d_max[1]}"
