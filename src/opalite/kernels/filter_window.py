"""Filter windows: every spatial rank as three axes (depth, height, width), missing leading ones of size 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ..cost.cost_tables import Windows
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Node
from ..ir.symbols import always_equal, symbolic_max, symbolic_min
from ..ops.conv import Windowed
from ..ops.pool import Pool
from .kernel import Problem
from .launch import STORAGE, Defines

MAX_RANK = 3
PACKED_TYPES = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT32)
"""Element types of which channel-packed window kernels compute."""

MAX_RUN = 16  # columns by which taps may exceed a tile before each tap is loaded as a separate run
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Window:
    """Window geometry of a Conv, ConvTranspose or Pool node along depth, height and width, in elements.

    Idle axes (size 1 in and out, no window, no padding) are dropped unless the caller keeps them. The longest
    contiguous runs are then along the width.
    """

    kernel: Triple
    strides: Triple
    dilations: Triple
    begin: Triple  # padding before the first element; negative crops
    end: Triple
    size: Triple  # of the input
    out: Triple

    @classmethod
    def of(cls, node: Node, squeeze: bool = True) -> Window:
        """The window of `node`, whose spatial rank is at most MAX_RANK. squeeze: drop idle axes."""
        op = node.as_(Windowed)
        size, out = node.x.shape[2:], node.y.shape[2:]
        kernel = op.kernel if isinstance(op, Pool) else node.input(1).shape[2:]
        rank = len(size)
        begin, end = op.pads[:rank], op.pads[rank:]
        given = zip(kernel, op.strides, op.dilations, begin, end, size, out, strict=True)
        axes = [axis for axis in given if not squeeze or not _is_idle(*axis)]
        d, h, w = [_IDLE] * (MAX_RANK - len(axes)) + axes
        return cls(*zip(d, h, w, strict=True))

    @property
    def is_pointwise(self) -> bool:
        """Whether the filter is 1x1 with stride 1 and no padding."""
        return self.kernel == self.strides == (1, 1, 1) and not any(self.begin + self.end)

    def runs(self) -> tuple[int, int, int]:
        """(input columns loaded per output column, RUN, STEP) of kernels that load runs of a row.

        A run holds every STEP-th column that RUN taps of adjacent output columns read: all taps of a row, or a single
        tap if the taps are too far apart to share loads.
        """
        kw, sw, dw = self.kernel[2], self.strides[2], self.dilations[2]
        step = math.gcd(sw, dw) if kw > 1 else sw
        if (kw - 1) * dw // step > MAX_RUN:
            return kw, 1, sw
        return sw // step, kw, step

    def args(self, ends: bool = False) -> dict[str, int]:
        """Size arguments: id, ih, iw (input), od.. (output), pd.. (padding before); qd.. (padding after) if `ends`."""
        table = {"i": self.size, "o": self.out, "p": self.begin} | ({"q": self.end} if ends else {})
        return {letter + axis: v for letter, values in table.items() for axis, v in zip("dhw", values, strict=True)}

    def defines(self) -> Defines:
        """KD, KH, KW (filter), SD.. (stride) and DD.. (dilation)."""
        table: Defines = {}
        for letter, values in (("K", self.kernel), ("S", self.strides), ("D", self.dilations)):
            table |= {letter + axis: v for axis, v in zip("DHW", values, strict=True)}
        return table


_IDLE = (1, 1, 1, 0, 0, 1, 1)
"""An axis on which nothing happens: kernel, stride, dilation, padding before and behind, size in and out."""


def _is_idle(kernel: int, stride: int, dilation: int, begin: int, end: int, size: int, out: int) -> bool:
    return always_equal((size, out, kernel, begin, end), (1, 1, 1, 0, 0))


class WindowProblem(Problem):
    """A node that slides a window over its input; `window` needs at most MAX_RANK spatial axes."""

    @cached_property
    def window(self) -> Window:
        """The window geometry without idle axes."""
        return Window.of(self.node)

    @cached_property
    def block(self) -> int:
        """Channels per block of the node's packed values."""
        return block_size(self.node, self.device)


def window_refusal(node: Node) -> str | None:
    """The reason why no window kernel takes `node` (rank or element type), or None."""
    rank = len(node.x.shape) - 2
    if rank > MAX_RANK:
        return f"{rank} spatial axes; kernels serve up to {MAX_RANK}"
    if node.x.dtype not in STORAGE:
        return f"element type {node.x.dtype} has no arithmetic on the device"
    return None


def empty_refusal(node: Node) -> str | None:
    """The reason why an empty `node` is left to the direct kernels, or None if it has elements."""
    return None if node.x.type.count and node.y.type.count else "the tensors hold no elements"


def block_size(node: Node, device: DeviceInfo) -> int:
    """Channels per block of the node's packed values; the device's default if none is packed yet."""
    layouts = [v.type.layout for v in (node.x, node.y) if not v.type.layout.is_row_major]
    return layouts[0].pack if layouts else device.pack


def window_seconds(flops: float, nbytes: float, efficiency: float, device: DeviceInfo) -> float:
    """Estimated seconds if arithmetic and memory traffic overlap little, so that both rank kernels.

    GPU work-items that each own whole sums wait for memory most of the time.
    """
    efficiency *= Windows.of(device).waiting
    return flops / (device.peak_flops * efficiency) + nbytes / device.bandwidth + device.launch_s


def find_span(tiles: int, others: int, device: DeviceInfo, filter_bytes: int = 0) -> int:
    """Adjacent tiles that one work-item computes in turn, out of `tiles` in each of `others` grid rows.

    GPUs get one tile per work-item. On a CPU a work-group costs as much as a small tile, and 16 per core balance the
    load. If the tiles of a row share more filters than the L1 cache holds, 4 tiles per work-item read them less often.
    """
    if not device.is_cpu:
        return 1
    groups = device.compute_units * (4 if filter_bytes > 1 << 16 else 16)
    span: int = symbolic_max([1, symbolic_min([tiles, tiles * others // groups])])
    return span
