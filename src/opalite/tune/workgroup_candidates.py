"""Work-group candidates under the names of TensorFlow Lite's GPU delegate: fast, fast_conv, exhaustive, default.

Every generator takes the grid (three extents, missing ones are 1) and the limits, and returns a list of (x, y, z).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ..ir.device.device_info import DeviceInfo
from ..kernels.launch_workgroups import halving

Group = tuple[int, int, int]

MIN_GROUP = 32  # exhaustive: smaller groups leave most GPUs' waves idle
RANGE = 5  # NO_ALIGNMENT: extents up to this much larger than the grid may be divided instead


class Alignment(Enum):
    """PRECISE: the group divides the grid. NO_ALIGNMENT: it divides a number in [grid, grid + 5]."""

    PRECISE = "precise"
    NO_ALIGNMENT = "no_alignment"


@dataclass(frozen=True)
class Limits:
    """The most work-items per group, in total and along each axis."""

    group: int
    items: Group

    @classmethod
    def of(cls, device: DeviceInfo, kernel_limit: int | None = None) -> Limits:
        """Limits of a device, or of one kernel on it (CL_KERNEL_WORK_GROUP_SIZE)."""
        group = device.max_work_group_size if kernel_limit is None else min(device.max_work_group_size, kernel_limit)
        return cls(group, device.max_work_item_sizes)


def grid3(grid: Sequence[int]) -> Group:
    """The grid with missing axes as 1."""
    x, y, z = (*grid, 1, 1)[:3]
    return x, y, z


def biggest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit` (at least 1)."""
    return next((i for i in range(min(limit, number), 0, -1) if number % i == 0), 1)


def fast(grid: Sequence[int], limits: Limits) -> list[Group]:
    """z = 8, 4 or 2 if it divides grid.z, else the biggest divisor up to 8; x takes up to half the grid, y the rest."""
    gx, gy, gz = grid3(grid)
    z = next((d for d in (8, 4, 2) if gz % d == 0), None) or biggest_divisor(gz, 8)
    z = biggest_divisor(gz, min(z, limits.items[2], limits.group))
    share = limits.group // z
    x = min(-(-gx // 2), share, limits.items[0])
    y = min(share // x, gy, limits.items[1])
    return [(x, y, z)]


def fast_conv(grid: Sequence[int], limits: Limits, device: DeviceInfo) -> list[Group]:
    """z = biggest divisor up to 16 (Adreno above 3xx: 64); 256 items at most are shared by x, then y."""
    gx, gy, gz = grid3(grid)
    most = 64 if device.family == "adreno" and not device.generation.startswith("3") else 16
    z = biggest_divisor(gz, min(most, limits.items[2], limits.group))
    share = max(1, min(256, limits.group) // z)
    x = min(gx, share, limits.items[0])
    y = min(share // x, gy, limits.items[1])
    if y == gy and gy % 2 == 0:
        y = gy // 2
    return [(x, y, z)]


def divisors(number: int) -> list[int]:
    """All divisors in increasing order."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def divisors_in_range(number: int) -> list[int]:
    """Divisors of any of number, number + 1, ..., number + RANGE, in increasing order."""
    return sorted({d for n in range(number, number + RANGE + 1) for d in divisors(n)})


def exhaustive(grid: Sequence[int], limits: Limits, alignment: Alignment = Alignment.PRECISE) -> list[Group]:
    """All triples of divisors within the limits with a product in [32, limit]; `corner_cases` if there are none."""
    sizes = [divisors(g) if alignment is Alignment.PRECISE else divisors_in_range(g) for g in grid3(grid)]
    found = [
        (x, y, z)
        for x in sizes[0]
        if x <= limits.items[0]
        for y in sizes[1]
        if y <= limits.items[1]
        for z in sizes[2]
        if z <= limits.items[2] and MIN_GROUP <= x * y * z <= limits.group
    ]
    return found or corner_cases(grid, limits, alignment)


def corner_cases(grid: Sequence[int], limits: Limits, alignment: Alignment = Alignment.PRECISE) -> list[Group]:
    """For grids too small for `exhaustive`: a quarter to all of each extent, then 1 to 4; always (1, 1, 1)."""
    extents = grid3(grid)
    parts = [[-(-g // k) for k in range(1, 5)] for g in extents]
    small = [list(range(1, 5))] * 3
    found: dict[Group, None] = {}
    for choices in (parts, small):
        for x in choices[0]:
            for y in choices[1]:
                for z in choices[2]:
                    group = (x, y, z)
                    if x * y * z > limits.group or any(a > b for a, b in zip(group, limits.items, strict=True)):
                        continue
                    if alignment is Alignment.PRECISE and any(g % d for g, d in zip(extents, group, strict=True)):
                        continue
                    found.setdefault(group)
    return list(found)


def default(limits: Limits) -> list[Group]:
    """(8, 4, 1), reduced to the device's limits."""
    x = min(8, limits.items[0], limits.group)
    return [(x, max(1, min(4, limits.items[1], limits.group // x)), 1)]


def paddle(grid: Sequence[int], limits: Limits) -> list[Group]:
    """Paddle-Lite's default: the grid, halved until it fits."""
    return [grid3(halving(grid3(grid), limits.group, limits.items))]
