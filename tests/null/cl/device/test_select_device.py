"""Which device a request means, on lists of fixtures."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from opalite.cl.device.select_device import DeviceEntry, platform_slug, select, stable_ids
from opalite.errors import NoDeviceError
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_info import DeviceInfo


def load(name: str) -> DeviceInfo:
    return read_description(name)


def listing(*platforms: list[DeviceInfo]) -> list[DeviceEntry]:
    found = [DeviceEntry(d, f"{p}:{i}") for p, devices in enumerate(platforms) for i, d in enumerate(devices)]
    return [replace(c, info=replace(c.info, id=i)) for c, i in zip(found, stable_ids(found), strict=True)]


INTEL, NVIDIA, POCL = load("intel_uhd_630"), load("nvidia_h200"), load("pocl_avx2")
LAPTOP = listing([INTEL], [NVIDIA], [POCL])


@pytest.mark.parametrize(
    "request_, expected",
    [
        (None, "nvidia:gpu:0"),
        ("", "nvidia:gpu:0"),
        ("nvidia:gpu:0", "nvidia:gpu:0"),
        ("NVIDIA:GPU:0", "nvidia:gpu:0"),
        ("0:0", "intel:gpu:0"),
        ("2:0", "pocl:cpu:0"),
        ("cpu", "pocl:cpu:0"),
        ("GPU", "nvidia:gpu:0"),
        ("gpu:0", "intel:gpu:0"),
        ("gpu:1", "nvidia:gpu:0"),
        ("cpu:0", "pocl:cpu:0"),
        ("intel", "intel:gpu:0"),
        ("uhd", "intel:gpu:0"),
        ("h200", "nvidia:gpu:0"),
        ("portable computing", "pocl:cpu:0"),
        ("pocl", "pocl:cpu:0"),
        ("haswell", "pocl:cpu:0"),
        (" nvidia ", "nvidia:gpu:0"),
    ],
)
def test_requests(request_: str | None, expected: str) -> None:
    assert select(request_, LAPTOP).info.id == expected


def test_default_is_the_cpu_where_there_is_no_gpu() -> None:
    assert select(None, listing([POCL])).info.kind == "cpu"


def test_discrete_gpu_goes_before_integrated_whatever_its_size() -> None:
    small = replace(NVIDIA, compute_units=1, clock_mhz=300)
    assert select("gpu", listing([INTEL], [small])).info.family == "nvidia"


def test_a_translation_layer_goes_after_the_driver() -> None:
    layered = replace(NVIDIA, platform="rusticl")
    assert select("gpu:0", listing([layered], [NVIDIA])).index == "1:0"
    assert select("gpu", listing([layered], [NVIDIA])).index == "1:0"
    assert select("rusticl", listing([layered], [NVIDIA])).index == "0:0"


@pytest.mark.parametrize(
    "request_", ["mali", "amd:gpu:0", "3:0", "0:1", "accelerator", "nvidia:gpu:1", "gpu:2", "accelerator:0"]
)
def test_no_match_lists_what_there_is(request_: str) -> None:
    with pytest.raises(NoDeviceError) as e:
        select(request_, LAPTOP)
    for part in (request_, "intel:gpu:0 [0:0]", "NVIDIA H200", "opalite devices", "doctor"):
        assert part in str(e.value)


def test_nothing_found_says_what_to_install() -> None:
    with pytest.raises(NoDeviceError, match="pip install pocl-binary-distribution"):
        select(None, [])


def test_unusable_devices_are_left_out_and_named() -> None:
    broken = [replace(c, usable=False) for c in LAPTOP]
    with pytest.raises(NoDeviceError, match=r"cannot be used: .*NVIDIA H200"):
        select("gpu", broken)
    assert select("gpu", [broken[1], LAPTOP[0]]).info.family == "intel"


def test_ids_survive_any_order_of_drivers() -> None:
    for order in itertools.permutations([[INTEL], [NVIDIA, replace(NVIDIA, name="NVIDIA L4")], [POCL]]):
        ids = {c.info.name: c.info.id for c in listing(*order)}
        assert ids["Intel(R) UHD Graphics 630"] == "intel:gpu:0"
        assert ids["NVIDIA H200"] == "nvidia:gpu:0"
        assert ids["NVIDIA L4"] == "nvidia:gpu:1"


def test_equal_devices_are_ordered_by_their_place_on_the_bus() -> None:
    there = [DeviceEntry(NVIDIA, f"0:{i}", location) for i, location in enumerate(["0000:81:00", "0000:02:00"])]
    assert stable_ids(there) == ["nvidia:gpu:1", "nvidia:gpu:0"]


def test_kinds_of_one_platform_count_apart() -> None:
    assert [c.info.id for c in listing([POCL, replace(NVIDIA, platform=POCL.platform)])] == ["pocl:cpu:0", "pocl:gpu:0"]


@pytest.mark.parametrize(
    "platform, slug",
    [
        ("Portable Computing Language", "pocl"),
        ("NVIDIA CUDA", "nvidia"),
        ("Intel(R) OpenCL HD Graphics", "intel"),
        ("AMD Accelerated Parallel Processing", "amd"),
        ("ARM Platform", "arm"),
        ("QUALCOMM Snapdragon(TM)", "qualcomm"),
        ("Vivante OpenCL Platform", "vivante-opencl-platform"),
        ("???", "opencl"),
    ],
)
def test_platform_slugs(platform: str, slug: str) -> None:
    assert platform_slug(platform) == slug


def test_a_native_driver_comes_before_a_layer_over_it() -> None:
    """However fast the layer says that the device is."""
    layer = DeviceInfo(platform="rusticl", kind="gpu", compute_units=99, id="rusticl:gpu:0")
    native = DeviceInfo(platform="Intel(R) OpenCL Graphics", kind="gpu", unified_memory=True, id="intel:gpu:0")
    entries = [DeviceEntry(layer, "0:0"), DeviceEntry(native, "1:0")]
    assert select(None, entries).info.id == "intel:gpu:0"
    assert select("gpu", entries[::-1]).info.id == "intel:gpu:0"
