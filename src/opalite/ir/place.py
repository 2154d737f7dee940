"""Place: the memory, element type and layout of a value (Paddle-Lite's `Place`)."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import cache

from ..lazy_dataclass import dataclass
from .dtype import DType


class Target(Enum):
    """The memory that holds a value."""

    HOST = "host"
    OPENCL = "opencl"


class Memory(Enum):
    """Kind of OpenCL memory object."""

    BUFFER = "buffer"
    IMAGE2D = "image2d"


class LayoutKind(Enum):
    """The order of elements in memory. Code matches the kinds that it supports by name and rejects others."""

    ROW_MAJOR = "row-major buffer"
    PACKED = "channel-packed buffer"
    TEXELS = "image2d of texels"


@dataclass(frozen=True)
class Layout:
    """The order of the elements of a tensor N,C,D....

    ROW_MAJOR is plain order (NCHW for rank 4). PACKED with blocks of c channels stores [N, ceil(C/c), D..., c] (NC4HW4,
    NC8HW8, NC16HW16). Lanes past C hold zero: kernels write zeros there, so that readers need no mask. TEXELS are
    blocks of 4 channels: one RGBA texel is a block; `texel_dims` maps tensors of fewer than four dimensions.
    """

    kind: LayoutKind = LayoutKind.ROW_MAJOR
    block: int = 1

    @property
    def is_row_major(self) -> bool:
        """Plain row-major order in a buffer."""
        return self.kind is LayoutKind.ROW_MAJOR

    @property
    def is_packed(self) -> bool:
        """Channel blocks in a buffer."""
        return self.kind is LayoutKind.PACKED

    @property
    def is_image(self) -> bool:
        """Held in an image2d."""
        return self.kind is LayoutKind.TEXELS

    @property
    def pack(self) -> int:
        """Adjacent channels at each position: 1 in row-major order. ValueError for an unknown kind."""
        if not (self.is_row_major or self.is_packed or self.is_image):
            known = (LayoutKind.ROW_MAJOR, LayoutKind.PACKED, LayoutKind.TEXELS)
            raise ValueError(f"layout {self} is none of {', '.join(kind.value for kind in known)}")
        return self.block

    def storage_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the stored array: [N, ceil(C/c), D..., c] if channels are packed, else `shape`."""
        if self.is_row_major:
            return shape
        n, c, *rest = texel_dims(shape) if self.is_image else shape
        return (n, -(-c // self.pack), *rest, self.pack)

    def image_size(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(width, height) in texels: (W * ceil(C/4), H * N) of `texel_dims(shape)`, as in Paddle-Lite."""
        n, c, h, w = texel_dims(shape)
        return w * -(-c // 4), h * n

    def __str__(self) -> str:
        if self.is_image:
            return "IMAGE2D"
        if self.is_packed:
            return f"NC{self.block}HW{self.block}"
        return "NCHW" if self.is_row_major else str(self.kind.value)


def texel_dims(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(N, C, H, W) of the image that holds a tensor of up to four dimensions. ValueError for more.

    Four dimensions are kept. [a, b, c] becomes (a, c, b, 1): rows of ceil(c / 4) texels along the last dimension, as
    matrix products and row norms read them. Missing leading dimensions are 1.
    """
    if len(shape) > 4:
        raise ValueError(f"images hold up to four dimensions, not {len(shape)}")
    if len(shape) == 4:
        n, c, h, w = shape
        return n, c, h, w
    a, b, c = (1,) * (3 - len(shape)) + tuple(shape)
    return a, c, b, 1


FLAT = Layout()
IMAGE = Layout(LayoutKind.TEXELS, 4)


@cache
def packed(c: int) -> Layout:
    """Channel-packed buffer layout with blocks of `c` channels; blocks of one channel are row-major order."""
    return Layout(LayoutKind.PACKED, c) if c > 1 else FLAT


@dataclass(frozen=True)
class Place:
    """Memory, layout and stored element type of a Value. `precision` None means the value's own dtype."""

    target: Target
    layout: Layout = FLAT
    precision: DType | None = None

    def with_layout(self, layout: Layout) -> Place:
        """The same place in another layout."""
        return replace(self, layout=layout)

    def with_precision(self, precision: DType | None) -> Place:
        """The same place in another storage precision."""
        return replace(self, precision=precision)

    def __str__(self) -> str:
        parts = [self.target.value]
        if self.precision is not None:
            parts.append(self.precision.short)
        if self.target is Target.OPENCL:
            parts.append(str(self.layout))
        return "/".join(parts)


HOST = Place(Target.HOST)
OPENCL = Place(Target.OPENCL)
