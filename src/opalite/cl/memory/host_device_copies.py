"""Transfers between NumPy arrays and device memory.

Arrays must be C-contiguous. Sizes and offsets are in bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from ...errors import InputError
from ..device.driver_errors import cl_errors, translate

Array = np.ndarray[Any, Any]
PAGE = 4096

# Called by cl.enqueue_copy, which first queries its arguments: half of the host time of a small copy.
_enqueue_write, _enqueue_read = cl._cl._enqueue_write_buffer, cl._cl._enqueue_read_buffer


def write_buffer(
    queue: cl.CommandQueue, buffer: cl.Buffer, offset: int, array: Array, wait: bool, device: str
) -> cl.Event | None:
    """Copy `array` into `buffer` at `offset`. Without `wait` the array must not change until the queue finishes."""
    if array.nbytes == 0:
        return None
    try:  # instead of cl_errors, which is slower: every run passes here
        return _enqueue_write(queue, buffer, _contiguous(array), dst_offset=offset, is_blocking=wait)
    except cl.Error as e:
        raise translate(e, f"Writing {array.nbytes} bytes", device) from e


def read_buffer(
    queue: cl.CommandQueue, buffer: cl.Buffer, offset: int, array: Array, wait: bool, device: str
) -> cl.Event | None:
    """Copy `array.nbytes` bytes of `buffer` from `offset` on into `array`."""
    if array.nbytes == 0:
        return None
    try:
        return _enqueue_read(queue, buffer, _contiguous(array), src_offset=offset, is_blocking=wait)
    except cl.Error as e:
        raise translate(e, f"Reading {array.nbytes} bytes", device) from e


def fill_buffer(queue: cl.CommandQueue, buffer: cl.Buffer, offset: int, byte: int, nbytes: int, device: str) -> None:
    """Set `nbytes` bytes from `offset` on to `byte`."""
    if nbytes == 0:
        return
    with cl_errors(f"Filling {nbytes} bytes", device):
        cl.enqueue_fill_buffer(queue, buffer, np.uint8(byte), offset, nbytes)


def copy_buffer(
    queue: cl.CommandQueue,
    source: cl.Buffer,
    source_offset: int,
    target: cl.Buffer,
    target_offset: int,
    nbytes: int,
    device: str,
) -> None:
    """Copy `nbytes` bytes from buffer to buffer on the device."""
    if nbytes == 0:
        return
    with cl_errors(f"Copying {nbytes} bytes", device):
        cl.enqueue_copy(queue, target, source, byte_count=nbytes, src_offset=source_offset, dst_offset=target_offset)


def copy_lines(
    queue: cl.CommandQueue,
    source: cl.Buffer,
    target: cl.Buffer,
    lines: int,
    nbytes: int,
    source_pitch: int,
    target_pitch: int,
    device: str,
) -> None:
    """Copy the first `nbytes` of each of `lines` lines, which are a pitch apart, on the device."""
    if nbytes == 0 or lines == 0:
        return
    with cl_errors(f"Copying {lines} lines of {nbytes} bytes", device):
        cl.enqueue_copy(
            queue,
            target,
            source,
            src_origin=(0, 0, 0),
            dst_origin=(0, 0, 0),
            region=(nbytes, lines, 1),
            src_pitches=(source_pitch, source_pitch * lines),
            dst_pitches=(target_pitch, target_pitch * lines),
        )


def write_mapped(queue: cl.CommandQueue, buffer: cl.Buffer, source: Array, dtype: np.dtype[Any], device: str) -> None:
    """Store `source` as `dtype`, row-major, in the mapped `buffer`."""
    nbytes = source.size * dtype.itemsize
    with cl_errors(f"Mapping {nbytes} bytes", device):
        mapped = _map(queue, buffer, cl.map_flags.WRITE_INVALIDATE_REGION, nbytes)
        try:
            np.copyto(mapped.view(dtype).reshape(source.shape), source, casting="unsafe")
        finally:
            mapped.base.release(queue)


def read_mapped(queue: cl.CommandQueue, buffer: cl.Buffer, array: Array, device: str) -> None:
    """Fill the C-contiguous `array` from the mapped `buffer`. Waits for the queue."""
    with cl_errors(f"Mapping {array.nbytes} bytes", device):
        mapped = _map(queue, buffer, cl.map_flags.READ, array.nbytes)
        try:
            np.copyto(array, mapped.view(array.dtype).reshape(array.shape))
        finally:
            mapped.base.release(queue)


def _map(queue: cl.CommandQueue, buffer: cl.Buffer, flags: int, nbytes: int) -> Any:
    return cl.enqueue_map_buffer(queue, buffer, flags, 0, (nbytes,), np.uint8, is_blocking=True)[0]


def write_image(queue: cl.CommandQueue, image: cl.Image, texels: Array, wait: bool, device: str) -> None:
    """Copy `texels` [height, width, 4] into the image, whose channel type must be the array's dtype."""
    with cl_errors(f"Writing an image of {image.width}×{image.height}", device):
        region = _region(image, texels)
        cl.enqueue_copy(queue, image, _contiguous(texels), origin=(0, 0), region=region, is_blocking=wait)


def read_image(queue: cl.CommandQueue, image: cl.Image, texels: Array, wait: bool, device: str) -> None:
    """Copy the image into `texels` [height, width, 4]."""
    with cl_errors(f"Reading an image of {image.width}×{image.height}", device):
        region = _region(image, texels)
        cl.enqueue_copy(queue, _contiguous(texels), image, origin=(0, 0), region=region, is_blocking=wait)


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


def aligned_bytes(nbytes: int, alignment: int = PAGE) -> Array:
    """Zeroed host memory whose address is a multiple of `alignment`."""
    raw = np.zeros(nbytes + alignment, np.uint8)
    start = -raw.__array_interface__["data"][0] % alignment
    return raw[start : start + nbytes]
