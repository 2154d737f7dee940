"""Places: where a value lives, in what precision and in what layout (Paddle-Lite's `Place`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from .dtype import DType


class Target(Enum):
    """Which memory holds a value."""

    HOST = "host"
    OPENCL = "opencl"


class Memory(Enum):
    """Kind of OpenCL memory object."""

    BUFFER = "buffer"
    IMAGE2D = "image2d"


@dataclass(frozen=True)
class Layout:
    """How the elements of a tensor N,C,D... are ordered.

    pack = 1 is plain row-major order (NCHW for rank 4). pack = c > 1 stores [N, ceil(C/c), D..., c]: the
    channel axis in blocks of c neighbours (NC4HW4, NC8HW8, NC16HW16). Lanes past C hold zero: whoever writes a
    packed value keeps them zero, so that readers need not mask. Images hold pack 4: one RGBA texel is a block.
    """

    pack: int = 1
    memory: Memory = Memory.BUFFER

    @property
    def is_flat(self) -> bool:
        """Plain row-major order in a buffer."""
        return self.pack == 1 and self.memory is Memory.BUFFER

    @property
    def is_image(self) -> bool:
        """Held in an image2d."""
        return self.memory is Memory.IMAGE2D

    def storage_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the stored array: [N, ceil(C/c), D..., c] when packed, else `shape` itself."""
        if self.pack == 1:
            return shape
        n, c, *rest = shape
        return (n, -(-c // self.pack), *rest, self.pack)

    def image_size(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(width, height) in texels of a tensor N,C,H,W: W * ceil(C/4), H * N, as in Paddle-Lite. No other ranks."""
        n, c, h, w = shape
        return w * -(-c // 4), h * n

    def __str__(self) -> str:
        if self.is_image:
            return "IMAGE2D"
        return "NCHW" if self.pack == 1 else f"NC{self.pack}HW{self.pack}"


FLAT = Layout()
IMAGE = Layout(4, Memory.IMAGE2D)


def packed(c: int) -> Layout:
    """Channel-packed buffer layout with blocks of `c` channels."""
    return Layout(c)


@dataclass(frozen=True)
class Place:
    """Where and how a Value lives. `precision` is the stored element type; None means the value's own dtype."""

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
