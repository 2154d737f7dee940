"""Transfers: copies between NumPy arrays, buffers and images on command queues.

Arrays must be C-contiguous. Sizes and offsets are in bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from ...errors import InputError
from ...ir.device.device_info import DeviceInfo
from ..device.driver_errors import cl_errors, translate
from ..runtime_counters import Counters
from .device_pointers import BufferSlice, buffer_and_offset

Array = np.ndarray[Any, Any]
PAGE = 4096

# Called by cl.enqueue_copy, which first queries its arguments: half of the host time of a small copy.
_enqueue_write, _enqueue_read = cl._cl._enqueue_write_buffer, cl._cl._enqueue_read_buffer


class Transfers:
    """Transfers on `queue`, in order with launches, unless another queue is named."""

    queue: cl.CommandQueue
    info: DeviceInfo
    counters: Counters

    def write(
        self,
        buffer: cl.Buffer | BufferSlice,
        array: Array,
        offset: int = 0,
        wait: bool = True,
        queue: cl.CommandQueue | None = None,
    ) -> cl.Event | None:
        """Copy `array` into `buffer` at `offset`. Without `wait`, keep event and array until the copy is done."""
        self.counters.transfers += 1
        if array.nbytes == 0:
            return None
        target, start = buffer_and_offset(buffer, offset)
        try:  # instead of cl_errors, which is slower: every run passes here
            return _enqueue_write(queue or self.queue, target, _contiguous(array), dst_offset=start, is_blocking=wait)
        except cl.Error as e:
            raise translate(e, f"Writing {array.nbytes} bytes", self.info.title) from e

    def read(
        self,
        buffer: cl.Buffer | BufferSlice,
        array: Array,
        offset: int = 0,
        wait: bool = True,
        queue: cl.CommandQueue | None = None,
    ) -> cl.Event | None:
        """Copy `array.nbytes` bytes of `buffer` from `offset` on into `array`."""
        self.counters.transfers += 1
        if array.nbytes == 0:
            return None
        source, start = buffer_and_offset(buffer, offset)
        try:
            return _enqueue_read(queue or self.queue, source, _contiguous(array), src_offset=start, is_blocking=wait)
        except cl.Error as e:
            raise translate(e, f"Reading {array.nbytes} bytes", self.info.title) from e

    def fill(self, buffer: cl.Buffer | BufferSlice, byte: int, nbytes: int, offset: int = 0) -> None:
        """Set `nbytes` bytes of `buffer` from `offset` on to `byte`."""
        self.counters.transfers += 1
        target, start = buffer_and_offset(buffer, offset)
        if nbytes:
            with cl_errors(f"Filling {nbytes} bytes", self.info.title):
                cl.enqueue_fill_buffer(self.queue, target, np.uint8(byte), start, nbytes)

    def copy(
        self,
        source: cl.Buffer | BufferSlice,
        target: cl.Buffer | BufferSlice,
        nbytes: int,
        source_offset: int = 0,
        target_offset: int = 0,
    ) -> None:
        """Copy bytes from buffer to buffer on the device."""
        self.counters.transfers += 1
        source, first = buffer_and_offset(source, source_offset)
        target, start = buffer_and_offset(target, target_offset)
        if nbytes:
            with cl_errors(f"Copying {nbytes} bytes", self.info.title):
                cl.enqueue_copy(self.queue, target, source, byte_count=nbytes, src_offset=first, dst_offset=start)

    def copy_lines(
        self,
        source: cl.Buffer,
        target: cl.Buffer | Array,
        lines: int,
        nbytes: int,
        pitches: tuple[int, int],
        starts: tuple[int, int] = (0, 0),
    ) -> Any:
        """Enqueue a copy of `nbytes` of each of `lines` lines into a buffer or an array.

        pitches, starts: of the lines, in the source and in the target. Keep the result until an array is filled.
        """
        if nbytes == 0 or lines == 0:
            return None
        ends = ("buffer", "host") if isinstance(target, np.ndarray) else ("src", "dst")
        begins = [(start % pitch, start // pitch, 0) for start, pitch in zip(starts, pitches, strict=True)]
        places: dict[str, Any] = {f"{end}_origin": begin for end, begin in zip(ends, begins, strict=True)}
        places |= {f"{end}_pitches": (pitch, pitch * lines) for end, pitch in zip(ends, pitches, strict=True)}
        if ends[0] == "buffer":
            self.counters.transfers += 1
            places |= {"is_blocking": False}
        with cl_errors(f"Copying {lines} lines of {nbytes} bytes", self.info.title):
            return cl.enqueue_copy(self.queue, target, source, region=(nbytes, lines, 1), **places)

    def write_mapped(
        self, buffer: cl.Buffer, source: Array, dtype: np.dtype[Any], queue: cl.CommandQueue | None = None
    ) -> None:
        """Store `source` as `dtype`, row-major, in the mapped `buffer`."""
        self._copy_mapped(buffer, source, dtype, cl.map_flags.WRITE_INVALIDATE_REGION, queue)

    def read_mapped(self, buffer: cl.Buffer, array: Array, queue: cl.CommandQueue | None = None) -> None:
        """Fill the C-contiguous `array` from the mapped `buffer`. Waits for the queue."""
        self._copy_mapped(buffer, array, array.dtype, cl.map_flags.READ, queue)

    def _copy_mapped(
        self, buffer: cl.Buffer, array: Array, dtype: np.dtype[Any], access: int, queue: cl.CommandQueue | None
    ) -> None:
        self.counters.transfers += 1
        queue, nbytes = queue or self.queue, array.size * dtype.itemsize
        with cl_errors(f"Mapping {nbytes} bytes", self.info.title):
            mapped = cl.enqueue_map_buffer(queue, buffer, access, 0, (nbytes,), np.uint8, is_blocking=True)[0]
            inside = mapped.view(dtype).reshape(array.shape)
            try:
                if access == cl.map_flags.READ:
                    np.copyto(array, inside)
                else:
                    np.copyto(inside, array, casting="unsafe")
            finally:
                mapped.base.release(queue)

    def write_image(self, image: cl.Image, texels: Array) -> None:
        """Copy `texels` [height, width, 4] into the image, whose channel type must be the array's dtype."""
        self.counters.transfers += 1
        with cl_errors(f"Writing an image of {image.width}×{image.height}", self.info.title):
            cl.enqueue_copy(self.queue, image, _contiguous(texels), origin=(0, 0), region=_region(image, texels))

    def read_image(self, image: cl.Image, texels: Array) -> None:
        """Copy the image into `texels` [height, width, 4]."""
        self.counters.transfers += 1
        with cl_errors(f"Reading an image of {image.width}×{image.height}", self.info.title):
            cl.enqueue_copy(self.queue, _contiguous(texels), image, origin=(0, 0), region=_region(image, texels))


def _region(image: cl.Image, texels: Array) -> tuple[int, int]:
    if texels.shape != (image.height, image.width, 4):
        raise InputError(
            f"an image of {image.width}×{image.height} texels holds an array of shape "
            f"{(image.height, image.width, 4)}, this one has {texels.shape}"
        )
    return image.width, image.height


def _contiguous(array: Array) -> Array:
    if not array.flags.c_contiguous:
        raise InputError(f"an array of shape {array.shape} is not C-contiguous; copy it with np.ascontiguousarray")
    # NumPy exports no buffer of types that it does not define, such as bfloat16.
    return array if array.dtype.isbuiltin == 1 else array.reshape(-1).view(np.uint8)


def aligned_bytes(nbytes: int) -> Array:
    """Zeroed host memory whose address is a multiple of PAGE."""
    raw = np.zeros(nbytes + PAGE, np.uint8)
    start = -raw.__array_interface__["data"][0] % PAGE
    return raw[start : start + nbytes]
