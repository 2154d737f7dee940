"""Waves that plans for an Adreno ask for: by registers, which are those of the arrays of a kernel."""

from __future__ import annotations

import dataclasses

import pytest

from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_info import DeviceInfo
from opalite.kernels.launch import Launch
from opalite.kernels.wave_request import OTHERS, array_bytes, ask_wave

ADRENO = read_description("adreno_640")
SOURCE = """
#define VEC float4
static inline void other(void) {
    float elsewhere[1000];
}

kernel void f(global float *x, int n) {
    VEC acc[TM][2], more[3];
    const uchar bytes[] = {1, 2};
#if WIDE
    half8 wide[TM];
#endif
    int at[2];
    float3 three[1];
    local float shared_[500];
    x[n] = at[0];
    if (n) { return; }
}

kernel void g(global float *x) {
    float last[7];
}
"""


@pytest.mark.parametrize(("tile", "wide", "nbytes"), [("4", "0", 200), ("1", "1", 120)])
def test_arrays_of_a_kernel(tile: str, wide: str, nbytes: int) -> None:
    assert array_bytes((SOURCE,), (("TM", tile), ("WIDE", wide)), "f") == nbytes
    assert array_bytes((SOURCE,), (), "g") == 28
    assert array_bytes((SOURCE,), (), "absent") == 0


@pytest.mark.parametrize(
    ("nbytes", "wave"),
    [
        (64, 128),  # 30 waves, of either size
        (576, 128),  # 4 full waves or 8 half ones
        (1152, 128),  # 2 full waves or 4 half ones
        (1160, 64),  # one full wave alone
    ],
)
def test_full_waves_where_two_fit(nbytes: int, wave: int) -> None:
    assert ADRENO.wave_for(nbytes) == wave


def test_two_full_waves_leave_most_work_items_in_flight() -> None:
    """Of half waves no more than a quarter more are in flight, whatever the registers."""
    device = dataclasses.replace(ADRENO, max_waves=16, register_bytes=128 * 96 * 16)
    for nbytes in range(16, 2000, 12):
        full, half = (w * min(device.max_waves, device.register_bytes // (w * nbytes)) for w in (128, 64))
        assert device.wave_for(nbytes) == (128 if full >= 256 else 64)
        assert full >= 0.8 * half or full < 256


def asked(launch: Launch, device: DeviceInfo) -> str:
    found = ask_wave(launch, "image/image_conv.cl", device).prelude
    return "full" if '"full"' in found else "half" if '"half"' in found else ""


@pytest.mark.parametrize(
    ("tile", "group", "wave"), [((2, 2), None, "full"), ((8, 8), None, "half"), ((2, 2), (32, 4), "full")]
)
def test_a_launch_asks_for_what_its_tile_leaves(
    tile: tuple[int, int], group: tuple[int, ...] | None, wave: str
) -> None:
    launch = Launch("image_conv", {}, (64, 64, 1), group, {"TB": tile[0], "TW": tile[1]})
    assert asked(launch, ADRENO) == wave
    assert asked(dataclasses.replace(launch, group=(16, 4)), ADRENO) == "half", "a group of half a wave"
    for name in ("adreno_330", "adreno_506", "mali_g76"):
        assert asked(launch, read_description(name)) == "", "nothing is known of registers"
    assert OTHERS
