"""The work-group formulas of other engines, by hand-computed cases and by properties."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opalite.ir import DeviceInfo
from opalite.ir.device.default_workgroups import default_group
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.kernel.testing.single_node import uneven_group
from opalite.kernels.launch_workgroups import halving
from opalite.tune.workgroup_candidates import (
    Alignment,
    Limits,
    corner_cases,
    default,
    divisors,
    divisors_in_range,
    exhaustive,
    fast,
    fast_conv,
    paddle,
)

BIG = Limits(256, (256, 256, 256))
TINY = Limits(1, (1, 1, 1))
ADRENO6 = DeviceInfo(family="adreno", generation="6xx")
ADRENO3 = DeviceInfo(family="adreno", generation="3xx")
MALI = DeviceInfo(family="mali", generation="bifrost2")


@pytest.mark.parametrize(
    "grid, group, want",
    [
        ((112, 112, 8), 256, (32, 1, 8)),  # share 32; x = min(56, 32); y = min(1, 112)
        ((7, 7, 12), 256, (4, 7, 4)),  # 12 % 8, 12 % 4 == 0 -> 4; share 64; x = 4; y = min(16, 7)
        ((7, 7, 7), 128, (4, 4, 7)),  # biggest divisor of 7 up to 8; share 18; x = 4; y = min(4, 7)
        ((1, 1, 11), 256, (1, 1, 1)),  # 11 has no divisor up to 8 but 1
        ((3, 5, 2), 1024, (2, 5, 2)),
        ((13, 17, 19), 256, (7, 17, 1)),  # 19 has no divisor up to 8 but 1; x = ceil(13 / 2); y = min(256 / 7, 17)
        ((4096, 4096, 64), 256, (32, 1, 8)),  # x takes the whole share of 256 / 8
        ((4096, 4096, 64), 1, (1, 1, 1)),
    ],
)
def test_fast_follows_the_seed(grid: tuple[int, int, int], group: int, want: tuple[int, int, int]) -> None:
    assert fast(grid, Limits(group, (1024, 1024, 1024))) == [want]


@pytest.mark.parametrize(
    "grid, device, want",
    [
        ((56, 56, 16), MALI, (16, 1, 16)),
        ((56, 56, 64), ADRENO6, (4, 1, 64)),
        ((56, 56, 64), ADRENO3, (16, 1, 16)),
        ((10, 4, 16), MALI, (10, 1, 16)),
        ((4, 4, 1), MALI, (4, 2, 1)),  # y would be the whole even axis: halved
        ((4, 3, 1), MALI, (4, 3, 1)),
        ((13, 17, 19), MALI, (13, 17, 1)),  # an odd y stays whole
        ((4096, 4096, 96), MALI, (16, 1, 16)),
        ((4096, 4096, 96), ADRENO6, (5, 1, 48)),  # biggest divisor of 96 up to 64; share 256 / 48
    ],
)
def test_fast_conv_follows_the_seed(grid: tuple[int, int, int], device: DeviceInfo, want: tuple[int, int, int]) -> None:
    assert fast_conv(grid, BIG, device) == [want]


def test_fast_conv_keeps_the_devices_z_limit() -> None:
    assert fast_conv((8, 8, 64), Limits(256, (256, 256, 32)), ADRENO6) == [(8, 1, 32)]


def test_default_and_paddle() -> None:
    assert default(BIG) == [(8, 4, 1)]
    assert default(TINY) == [(1, 1, 1)]
    assert halving((112, 112, 32), 256, (256, 256, 256)) == (1, 112, 1)
    assert paddle((64, 64, 4), BIG) == [(1, 64, 2)]


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(13) == [1, 13]
    assert divisors_in_range(13) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18]


def test_exhaustive_product_lies_between_32_and_the_limit() -> None:
    found = exhaustive((16, 16, 4), Limits(64, (64, 64, 64)))
    assert (8, 4, 1) in found
    assert (16, 4, 1) in found
    assert (4, 4, 1) not in found
    assert (16, 16, 1) not in found


def test_exhaustive_by_hand() -> None:
    assert exhaustive((37, 1, 1), BIG) == [(37, 1, 1)]
    assert exhaustive((4099, 1, 1), BIG) == [(1, 1, 1)]  # its only large divisor is over the limit
    assert exhaustive((64, 64, 64), TINY) == [(1, 1, 1)]
    small = {(x, y, z) for x in (1, 2) for y in (1, 3) for z in (1, 5)}
    assert set(exhaustive((2, 3, 5), BIG)) == small  # 30 items in all: corner cases
    assert set(exhaustive((32, 2, 1), Limits(64, (32, 32, 32)))) == {(16, 2, 1), (32, 1, 1), (32, 2, 1)}


def test_exhaustive_levels_differ() -> None:
    assert len(exhaustive((13, 7, 3), BIG, Alignment.NO_ALIGNMENT)) > len(exhaustive((13, 7, 3), BIG))


extent = st.integers(1, 4099)


@given(st.tuples(extent, extent, extent), st.sampled_from([1, 2, 64, 256, 1024]))
def test_every_candidate_is_legal(grid: tuple[int, int, int], group: int) -> None:
    limits = Limits(group, (group, group, min(group, 64)))
    found = fast(grid, limits) + fast_conv(grid, limits, ADRENO6) + default(limits) + paddle(grid, limits)
    found += corner_cases(grid, limits)
    for x, y, z in found:
        assert 1 <= x * y * z <= group
        assert x <= limits.items[0]
        assert y <= limits.items[1]
        assert z <= limits.items[2]
    assert (1, 1, 1) in corner_cases(grid, limits)


@given(st.tuples(extent, extent, extent))
def test_the_cpu_group_divides_the_grid(grid: tuple[int, int, int]) -> None:
    group = default_group(grid, DeviceInfo(kind="cpu", native_float_width=16))
    assert group is not None
    assert all(g % w == 0 for g, w in zip(grid, group, strict=True))


GPUS = [d for d in (read_description(name) for name in description_names()) if not d.is_cpu]
PRIMES = (1, 2, 3, 31, 37, 113, 127, 131, 227, 1009, 4099)


@pytest.mark.parametrize("device", GPUS, ids=lambda d: d.name)
def test_a_gpus_groups_are_waves_whatever_the_grid(device: DeviceInfo) -> None:
    """A grid of primes has no divisors but 1; with one work-item a group, all lanes of a wave but one would idle."""
    wave = max(device.wave_size, 32)
    for grid in itertools.product(PRIMES, PRIMES, PRIMES):
        group = default_group(grid, device)
        assert group is not None
        assert min(32, math.prod(grid)) <= math.prod(group) <= min(128, device.max_work_group_size)
        count = math.prod(math.ceil(g / w) for g, w in zip(grid, group, strict=True))
        lanes = count * math.ceil(math.prod(group) / wave) * wave
        assert math.prod(grid) > 0.5 * lanes or math.prod(grid) < wave, f"{grid} by {group}"
        assert all(w <= most for w, most in zip(group, device.max_work_item_sizes, strict=True))


@pytest.mark.parametrize(
    ("grid", "want"),
    [
        ((96, 112, 8), (96, 1, 1)),  # divisors that fill waves stay, as nothing is rounded then
        ((112, 112, 8), (16, 8, 1)),  # 112 would leave an eighth of the lanes idle
        ((7, 7, 160), (7, 1, 16)),  # whole rows, whose elements are neighbours
        ((1009,), (128,)),
        ((2, 1009), (2, 64)),
        ((1009, 2), (128, 1)),
        ((3, 3, 1013), (3, 1, 32)),
        ((131, 1, 1), (32, 1, 1)),  # 128 would leave a quarter of the second group's lanes with work
        ((31,), (31,)),
    ],
)
def test_a_gpus_groups_by_hand(grid: tuple[int, ...], want: tuple[int, ...]) -> None:
    h200 = next(d for d in GPUS if "H200" in d.name)
    assert default_group(grid, h200) == want


@pytest.mark.parametrize("grid", [(1, 2), (4, 6, 35), (16, 9, 25)])
def test_uneven_groups_divide_no_axis(grid: tuple[int, ...]) -> None:
    group = uneven_group(grid, DeviceInfo())
    assert all(g % w for g, w in zip(grid, group, strict=True))
