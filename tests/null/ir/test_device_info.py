"""DeviceInfo as data: fixtures of real devices, JSON both ways, and the estimates drawn from them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from opalite.ir.device import device_family
from opalite.ir.device.default_workgroups import default_group
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.device.device_family import (
    ADDRESSES,
    ARM_DOT,
    BYTE_FOURS,
    BYTE_PAIRS,
    FP16_UNLISTED,
    HALF_TYPES,
    PTX_DOT,
    PTX_MMA,
    PTX_WGMMA,
    QCOM_DOT,
    SLOW_DOT,
    SLOW_SUB_BUFFERS,
    UNBUILT,
    find_family,
)
from opalite.ir.device.device_info import DeviceInfo
from opalite.kernels.kernel import all_kernels

NAMES = description_names()


def test_there_are_descriptions() -> None:
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_json_both_ways(name: str) -> None:
    device = read_description(name)
    assert DeviceInfo.from_json(device.to_json()) == device


@pytest.mark.parametrize("name", NAMES)
def test_family_is_what_the_names_tell(name: str) -> None:
    d = read_description(name)
    found = find_family(d.name, d.vendor, d.platform, d.version, d.kind, d.native_float_width)
    assert (d.family, d.generation, d.wave_size, d.lanes) == (
        found.family,
        found.generation,
        found.wave_size,
        found.lanes,
    )
    tried = {
        ARM_DOT,
        QCOM_DOT,
        SLOW_DOT,
        BYTE_FOURS,
        BYTE_PAIRS,
        FP16_UNLISTED,
        HALF_TYPES,
        PTX_DOT,
        PTX_MMA,
        PTX_WGMMA,
        ADDRESSES,
    }
    assert set(found.quirks) - {SLOW_SUB_BUFFERS} == set(d.quirks) - tried - {SLOW_SUB_BUFFERS}
    assert (SLOW_SUB_BUFFERS in found.quirks) == bool({SLOW_SUB_BUFFERS, ADDRESSES} & set(d.quirks))


@pytest.mark.parametrize("name", NAMES)
def test_every_quirk_is_one_that_something_avoids(name: str) -> None:
    """A misspelt one would be avoided by nobody, and nobody would say so."""
    known = {v for k, v in vars(device_family).items() if k.isupper() and not k.startswith("_") and isinstance(v, str)}
    known |= {UNBUILT + kernel.name for kernel in all_kernels()}
    d = read_description(name)
    assert set(d.quirks) <= known - {UNBUILT}


@pytest.mark.parametrize("name", NAMES)
def test_fixture_is_plausible(name: str) -> None:
    d = read_description(name)
    assert d.max_alloc <= d.global_mem
    assert max(d.max_work_item_sizes) <= 8192
    assert d.max_work_group_size <= d.max_work_item_sizes[0] or d.family == "mali"
    assert d.fp16 == (d.has("cl_khr_fp16") or FP16_UNLISTED in d.quirks)
    assert d.fp64 == d.has("cl_khr_fp64")
    assert d.base_align in (128, 512)
    assert d.id.split(":")[1] == d.kind
    assert 1e9 < d.peak_flops < 1e14
    assert d.pack == (16 if d.generation == "avx512" else 8 if d.generation == "avx2" else 4)


def test_unknown_keys_are_ignored() -> None:
    raw = json.loads(DeviceInfo(name="x").to_json())
    raw["from_the_future"] = 1
    assert DeviceInfo.from_json(json.dumps(raw)) == DeviceInfo(name="x")


def test_defaults_are_a_minimal_device() -> None:
    assert DeviceInfo.from_json("{}") == DeviceInfo()


def test_images_by_family() -> None:
    assert read_description("adreno_640").prefers_images
    assert read_description("powervr_ge8320").prefers_images
    assert not read_description("mali_g76").prefers_images
    assert not read_description("intel_uhd_630").prefers_images


def test_image_limits() -> None:
    device = read_description("adreno_330")
    assert device.fits_image(8192, 8192)
    assert not device.fits_image(8193, 1)
    assert not device.fits_image(1, 8193)
    assert not DeviceInfo().fits_image(1, 1)


def test_flush_policy() -> None:
    assert read_description("mali_g52").flush_every == 24
    assert read_description("powervr_ge8320").flush_every == 16
    assert read_description("nvidia_h200").flush_every == 0


def test_estimates_order_devices_as_reality_does() -> None:
    names = ["adreno_506", "adreno_640", "amd_rx_6800", "nvidia_h200"]
    flops = [read_description(n).peak_flops for n in names]
    assert flops == sorted(flops)
    assert (
        read_description("nvidia_h200").bandwidth
        > read_description("amd_rx_6800").bandwidth
        > read_description("mali_g78").bandwidth
    )
    assert read_description("adreno_640").launch_s > read_description("nvidia_h200").launch_s


def test_a_clock_that_cannot_be_right_is_not_believed() -> None:
    told = DeviceInfo(compute_units=8, clock_mhz=5)  # Mali-G71's driver says 5 MHz
    assert told.peak_flops == DeviceInfo(compute_units=8, clock_mhz=0).peak_flops > 1e10


def test_groups_fill_the_wide_waves_of_an_adreno() -> None:
    """1,344 work-items: groups of 112 divide them, and would leave an eighth of a wave of 128 idle."""
    device = read_description("adreno_640")
    assert (device.wave_size, device.full_wave) == (64, 128)
    assert default_group((1344,), device) == (128,)
    assert default_group((1344,), dataclasses.replace(device, full_wave=0)) == (128,)


@pytest.mark.parametrize(
    ("file", "name", "title"),
    [
        ("pocl_avx512", "", "Intel(R) Xeon(R) Processor, CPU by PoCL 5.0"),
        ("pocl_avx2", "", "AMD Ryzen 7 3700X 8-Core Processor, CPU by PoCL 3.1"),
        ("pocl_avx2", "pthread-AMD EPYC", "AMD EPYC, CPU by PoCL 3.1"),
        ("pocl_arm", "", "cortex-a76, CPU by PoCL 5.0"),
        ("adreno_640", "", "Adreno 640"),
        ("adreno_x1_85", "", "Adreno X1-85"),
        ("mali_g610", "", "Mali-G610 r0p0"),
        ("intel_arc_b580", "", "Intel Arc B580 Graphics"),
        ("amd_rx_6800", "", "AMD gfx1030"),
        ("nvidia_h200", "", "NVIDIA H200"),
    ],
)
def test_a_device_is_called_as_its_owner_calls_it(file: str, name: str, title: str) -> None:
    device = read_description(file)
    assert dataclasses.replace(device, name=name or device.name).title == title


def test_texels_of_buffers_have_a_limit() -> None:
    device = DeviceInfo(family="adreno", image_support=True, image_buffer_max=100)
    assert [device.reads_texels(count) for count in (100, 101)] == [True, False]
    assert not DeviceInfo(family="mali", image_support=True, image_buffer_max=100).reads_texels(1)


def test_a_dot_product_that_no_instruction_computes_is_none() -> None:
    """The driver lists the extension of Khronos in any case; a vendor's is then taken."""
    khr = ("cl_khr_integer_dot_product",)
    assert DeviceInfo(extensions=khr).dot_product == "khr"
    assert DeviceInfo(extensions=khr, quirks=(SLOW_DOT,)).dot_product == ""
    assert DeviceInfo(extensions=khr, quirks=(SLOW_DOT, ARM_DOT)).dot_product == "arm"
