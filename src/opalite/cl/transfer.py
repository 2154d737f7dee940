"""Copies between NumPy arrays and device memory. Arrays must be C-contiguous; sizes are bytes, offsets too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import InputError
from .failures import cl_errors

Array = np.ndarray[Any, Any]


def write_buffer(
    queue: cl.CommandQueue, buffer: cl.Buffer, array: Array, offset: int, wait: bool, device: str
) -> cl.Event | None:
    """Copy `array` into `buffer` at `offset`. Without `wait` the array must stay unchanged until the queue finishes."""
    if array.nbytes == 0:
        return None
    with cl_errors(f"Writing {array.nbytes} bytes", device):
        return cl.enqueue_copy(queue, buffer, _contiguous(array), dst_offset=offset, is_blocking=wait)


def read_buffer(
    queue: cl.CommandQueue, buffer: cl.Buffer, array: Array, offset: int, wait: bool, device: str
) -> cl.Event | None:
    """Copy `array.nbytes` bytes of `buffer` from `offset` on into `array`."""
    if array.nbytes == 0:
        return None
    with cl_errors(f"Reading {array.nbytes} bytes", device):
        return cl.enqueue_copy(queue, _contiguous(array), buffer, src_offset=offset, is_blocking=wait)


def fill_buffer(queue: cl.CommandQueue, buffer: cl.Buffer, byte: int, nbytes: int, offset: int, device: str) -> None:
    """Set `nbytes` bytes from `offset` on to `byte`."""
    if nbytes == 0:
        return
    with cl_errors(f"Filling {nbytes} bytes", device):
        cl.enqueue_fill_buffer(queue, buffer, np.uint8(byte), offset, nbytes)


def copy_buffer(
    queue: cl.CommandQueue,
    source: cl.Buffer,
    target: cl.Buffer,
    nbytes: int,
    source_offset: int,
    target_offset: int,
    device: str,
) -> None:
    """Copy `nbytes` bytes from buffer to buffer on the device."""
    if nbytes == 0:
        return
    with cl_errors(f"Copying {nbytes} bytes", device):
        cl.enqueue_copy(queue, target, source, byte_count=nbytes, src_offset=source_offset, dst_offset=target_offset)


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
    # NumPy gives no buffer for types that it did not define itself, such as bfloat16.
    return array if array.dtype.isbuiltin == 1 else array.reshape(-1).view(np.uint8)
