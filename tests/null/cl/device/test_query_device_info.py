"""Describing devices that are stand-ins: broken queries, and findings of probe builds kept on disk."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from opalite.cl.device import query_device_info as module
from opalite.cl.device.query_device_info import describe, fingerprint, location, with_probed_features
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import (
    ADDRESSES,
    ARM_DOT,
    BYTE_FOURS,
    BYTE_PAIRS,
    FP16_UNLISTED,
    HALF_TYPES,
    HALF_VECTORS,
    NO_ASSEMBLY,
    PTX_DOT,
    PTX_MMA,
    PTX_WGMMA,
    QCOM_DOT,
    SLOW_DOT,
    SLOW_SUB_BUFFERS,
)
from opalite.ir.device.device_info import DeviceInfo


class Broken:
    """Answers no query at all."""

    def __getattr__(self, name: str) -> Any:
        raise cl.LogicError(cl._cl._ErrorRecord("no answer", -30, "clGetDeviceInfo"))


def test_a_device_that_answers_nothing_is_a_minimal_device() -> None:
    info = describe(Broken())
    assert info.kind == "accelerator"
    assert info.compute_units == 1
    assert info.max_alloc == DeviceInfo().max_alloc
    assert not info.fp16
    assert location(Broken()) == ""


def test_what_a_driver_reports_is_taken_over() -> None:
    device = SimpleNamespace(
        name="QUALCOMM Adreno(TM)\0",
        vendor=" QUALCOMM ",
        version="OpenCL 2.0 Adreno(TM) 640",
        driver_version="d",
        extensions="cl_khr_fp16 cl_khr_subgroups ",
        platform=SimpleNamespace(name="QUALCOMM Snapdragon(TM)"),
        type=cl.device_type.GPU,
        max_compute_units=2,
        max_clock_frequency=585,
        max_work_group_size=1024,
        max_work_item_sizes=[1024, 1024, 64],
        mem_base_addr_align=1024,
        image_support=1,
        image2d_max_width=16384,
        image2d_max_height=8192,
        host_unified_memory=1,
        local_mem_type=cl.device_local_mem_type.GLOBAL,
    )
    info = describe(device)
    assert (info.name, info.vendor) == ("QUALCOMM Adreno(TM)", "QUALCOMM")
    assert (info.kind, info.family, info.generation, info.wave_size) == ("gpu", "adreno", "6xx", 64)
    assert info.max_work_item_sizes == (1024, 1024, 64)
    assert info.base_align == 128
    assert info.image2d_max == (16384, 8192)
    assert info.fp16
    assert info.unified_memory
    assert not info.local_mem_dedicated


def test_waves_of_unknown_gpus_are_what_the_driver_prefers(builds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = SimpleNamespace(name="Maleoon 910", type=cl.device_type.GPU, preferred_work_group_size_multiple=32)
    assert describe(unknown).wave_size == 32
    unknown.preferred_work_group_size_multiple = 48
    assert describe(unknown).wave_size == 1
    asked: list[str] = []
    monkeypatch.setattr(module, "_kernel_wave", lambda device: asked.append("kernel") or 16)
    older = replace(describe(unknown), fp16=True)
    assert [with_probed_features(None, older).wave_size for _ in range(2)] == [16, 16]
    assert asked == ["kernel"], "asked once, then remembered"
    midgard = SimpleNamespace(name="Mali-T860", type=cl.device_type.GPU, preferred_work_group_size_multiple=4)
    assert describe(midgard).wave_size == 1, "the table knows it"


def test_waves_that_a_driver_reports_come_before_the_tables() -> None:
    """An RDNA driver in wave64 mode, and an NVIDIA GPU of warps that no table foresees."""
    amd = SimpleNamespace(name="gfx1030", type=cl.device_type.GPU, wavefront_width_amd=64)
    assert describe(amd).wave_size == 64
    del amd.wavefront_width_amd
    assert describe(amd).wave_size == 32
    assert describe(SimpleNamespace(name="NVIDIA X1", type=cl.device_type.GPU, warp_size_nv=16)).wave_size == 16


NVIDIA = replace(read_description("nvidia_h200"), fp16=False, quirks=())


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("OPALITE_CACHE", raising=False)
    tried: list[str] = []
    monkeypatch.setattr(module, "_builds", lambda device, source: bool(tried.append(source)) or True)
    monkeypatch.setattr(module, "supports_wgmma", lambda device: bool(tried.append("run")) or True)
    return tried


def test_what_is_not_listed_is_tried_once_and_remembered(builds: list[str], tmp_path: Path) -> None:
    for _ in range(3):
        info = with_probed_features(None, NVIDIA)
        assert info.fp16
        assert info.quirks == (FP16_UNLISTED, HALF_VECTORS, HALF_TYPES, PTX_MMA, PTX_DOT, PTX_WGMMA)
        assert info.half_sums
    assert len(builds) == 6
    assert next(iter(json.loads((tmp_path / "facts.json").read_text()).values())) == {
        "name": "NVIDIA H200",
        FP16_UNLISTED: True,
        HALF_VECTORS: True,
        HALF_TYPES: True,
        PTX_MMA: True,
        PTX_DOT: True,
        PTX_WGMMA: True,
    }
    with_probed_features(None, replace(NVIDIA, driver="another"))
    assert len(builds) == 12


@pytest.mark.parametrize("works", [True, False])
def test_arguments_by_address_take_the_place_of_sub_buffers(
    builds: list[str], monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    monkeypatch.setattr(module, "supports_device_pointers", lambda device: works)
    slow = replace(NVIDIA, fp16=True, extensions=(), quirks=(SLOW_SUB_BUFFERS,))
    assert with_probed_features(None, slow).quirks == ((ADDRESSES,) if works else (SLOW_SUB_BUFFERS,))


@pytest.mark.parametrize(
    ("extension", "probe", "quirk"),
    [
        ("cl_khr_integer_dot_product", "is_khr_dot_slow", SLOW_DOT),
        ("cl_qcom_dot_product8", "supports_qcom_dot", QCOM_DOT),
        ("cl_arm_integer_dot_product_int8", "supports_arm_dot", ARM_DOT),
    ],
)
def test_listed_dot_products_are_asked_about(
    builds: list[str], monkeypatch: pytest.MonkeyPatch, extension: str, probe: str, quirk: str
) -> None:
    monkeypatch.setattr(module, probe, lambda *_: True)
    phone = DeviceInfo(name=extension, fp16=True, generation="any", extensions=(extension,))
    assert with_probed_features(None, phone).quirks == (quirk,)
    monkeypatch.setattr(module, probe, lambda *_: False)
    assert with_probed_features(None, phone).quirks == (quirk,), "asked once, then remembered"
    assert with_probed_features(None, replace(phone, driver="another")).quirks == ()


def test_warpgroups_are_tried_on_hopper_alone(builds: list[str]) -> None:
    assert PTX_WGMMA not in with_probed_features(None, replace(NVIDIA, generation="blackwell")).quirks
    assert "run" not in builds


def test_listed_half_and_cpus_are_not_tried(builds: list[str]) -> None:
    assert with_probed_features(None, replace(NVIDIA, fp16=True, extensions=())).quirks == ()
    assert not with_probed_features(None, replace(NVIDIA, kind="cpu")).fp16
    assert not builds


def test_cpus_are_asked_for_products_of_bytes(builds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each width with its own instructions; sums of fours where the system names them, whatever was found elsewhere."""
    cpu = read_description("pocl_avx512")
    plain = replace(cpu, quirks=())
    flags = {"avx512f", "avx512_vnni"}
    monkeypatch.setattr(module.pocl, "cpu_flags", lambda: flags)
    assert with_probed_features(None, plain).quirks == (BYTE_PAIRS, BYTE_FOURS)
    assert with_probed_features(None, replace(cpu, quirks=(NO_ASSEMBLY,))).quirks == (NO_ASSEMBLY, BYTE_PAIRS)
    assert not builds, "PoCL's compiler is known"
    plain = replace(plain, family="intel")
    assert with_probed_features(None, plain).quirks == (BYTE_PAIRS, BYTE_FOURS)
    assert with_probed_features(None, plain).byte_dots == "fours"
    assert len(builds) == 2
    assert all("512" in source for source in builds)
    flags.remove("avx512_vnni")  # another machine with the same folder
    assert with_probed_features(None, plain).byte_dots == "pairs"
    flags.add("avx_vnni")
    assert with_probed_features(None, replace(plain, generation="avx2", driver="another")).byte_dots == "fours"
    assert "%{vex%} vpdpbusd" in builds[-1]
    assert with_probed_features(None, replace(plain, generation="sse")).byte_dots == ""


def test_only_what_an_older_file_lacks_is_tried(builds: list[str], tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    with_probed_features(None, NVIDIA)
    facts = json.loads(path.read_text())
    del facts[fingerprint(NVIDIA)][PTX_DOT]
    path.write_text(json.dumps(facts))
    assert PTX_DOT in with_probed_features(None, NVIDIA).quirks
    assert len(builds) == 7


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"x": 3}', json.dumps({fingerprint(NVIDIA): 3})])
def test_a_damaged_file_of_findings_is_written_anew(
    builds: list[str], tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "facts.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert with_probed_features(None, NVIDIA).fp16
        assert with_probed_features(None, NVIDIA).fp16
    assert len(builds) == 6
    assert len(caplog.records) <= 1


def test_fingerprints_tell_drivers_apart_and_not_memory_sizes() -> None:
    assert fingerprint(NVIDIA) != fingerprint(replace(NVIDIA, driver="another"))
    assert fingerprint(NVIDIA) != fingerprint(replace(NVIDIA, version="OpenCL 1.2 CUDA"))
    assert fingerprint(NVIDIA) == fingerprint(replace(NVIDIA, global_mem=1, id="x"))


def test_a_trial_that_fails_says_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """NVIDIA's compiler writes "7 errors generated." to stderr, past Python."""

    def build(*_: Any) -> Any:
        os.write(2, b"7 errors generated.\n")
        raise cl.RuntimeError(cl._cl._ErrorRecord("no build", -11, "clBuildProgram"))

    monkeypatch.setattr(cl, "Context", build)
    assert not module._builds(object(), "no program")
    assert capfd.readouterr().err == ""
    os.write(2, b"said later")
    assert capfd.readouterr().err == "said later"
