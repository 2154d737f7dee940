"""The doctor's checks on made-up folders: each fault is found and told with its fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from opalite.cl.device import doctor_checks, enumerate_devices, install_advice
from opalite.cl.device.doctor_checks import BAD, GOOD, NOTE, Finding
from opalite.pocl import cpu_workarounds as pocl

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the checks look at Linux folders")


def only(findings: list[Finding], level: str) -> Finding:
    found = [f for f in findings if f.level == level]
    assert len(found) == 1, findings
    return found[0]


def loader(*there: str) -> Callable[[str], object]:
    def load(name: str) -> object:
        if Path(name).name not in there:
            raise OSError(f"{name}: cannot open shared object file")
        return object()

    return load


def test_icd_that_loads_and_one_that_does_not(tmp_path: Path) -> None:
    (tmp_path / "a.icd").write_text("libgood.so\n")
    (tmp_path / "b.icd").write_text("/opt/gone/libgone.so")
    findings = doctor_checks.check_icds([tmp_path, tmp_path / "absent"], loader("libgood.so"))
    assert "libgood.so, which loads" in only(findings, GOOD).what
    bad = only(findings, BAD)
    assert "libgone.so" in bad.what
    assert f"sudo rm {tmp_path / 'b.icd'}" in bad.fix


def test_a_library_beside_its_icd_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "pocl.icd").write_text("libpocl-1.so")
    (tmp_path / "libpocl-1.so").write_text("")
    asked: list[str] = []
    doctor_checks.check_icds([tmp_path], asked.append)
    assert asked == [str(tmp_path / "libpocl-1.so")]


def test_no_icd_file_at_all(tmp_path: Path) -> None:
    assert "pip install pocl-binary-distribution" in only(doctor_checks.check_icds([tmp_path]), BAD).fix


def test_a_driver_that_no_icd_names(tmp_path: Path) -> None:
    libraries, vendors = tmp_path / "lib", tmp_path / "vendors"
    libraries.mkdir()
    (libraries / "libnvidia-opencl.so.1").write_text("")
    finding = only(doctor_checks.check_unregistered([vendors], library_folders=[str(libraries)]), BAD)
    assert "NVIDIA" in finding.what
    assert finding.fix == (f"sudo mkdir -p {vendors} && echo libnvidia-opencl.so.1 | sudo tee {vendors / 'nvidia.icd'}")
    vendors.mkdir()
    (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    assert not doctor_checks.check_unregistered([vendors], library_folders=[str(libraries)])


@pytest.mark.parametrize(
    "vendor, platforms, level, fix",
    [
        ("0x8086", [], NOTE, "intel-opencl-icd"),
        ("0x8086", ["Intel(R) OpenCL Graphics"], GOOD, ""),
        ("0x1002", ["NVIDIA CUDA"], NOTE, "rocm-opencl-runtime"),
        ("0x1002", ["rusticl"], GOOD, ""),
        ("0x10de", ["Portable Computing Language"], NOTE, "nvidia-opencl-icd"),
    ],
)
def test_gpus_without_a_platform(tmp_path: Path, vendor: str, platforms: list[str], level: str, fix: str) -> None:
    card = tmp_path / "card0" / "device"
    card.mkdir(parents=True)
    (card / "vendor").write_text(vendor + "\n")
    assert fix in only(doctor_checks.check_gpus(tmp_path, platforms), level).fix


def test_an_unknown_display_controller_is_no_finding(tmp_path: Path) -> None:
    card = tmp_path / "card0" / "device"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x1234\n")
    assert not doctor_checks.check_gpus(tmp_path)
    assert not doctor_checks.check_gpus(tmp_path / "absent")


def test_render_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "renderD128").write_text("")
    (tmp_path / "card0").write_text("")
    assert "renderD128" in only(doctor_checks.check_permissions(tmp_path), GOOD).what
    monkeypatch.setattr(os, "access", lambda *_: False)
    bad = only(doctor_checks.check_permissions(tmp_path), BAD)
    assert bad.fix.startswith("sudo usermod -aG ")


def test_cache_folder(tmp_path: Path) -> None:
    fine = only(doctor_checks.check_cache(tmp_path / "new", True, 512), GOOD)
    assert "0 program binaries, 0.0 of 512 MiB" in fine.what
    (tmp_path / "file").write_text("")
    without = only(doctor_checks.check_cache(tmp_path / "file", True, 512), NOTE)  # a session runs all the same
    assert "OPALITE_CACHE_DIR" in without.fix
    assert "builds its programs again" in without.what
    assert only(doctor_checks.check_cache(tmp_path, False, 512), NOTE)
    assert not list(tmp_path.glob("**/.tmp-*"))


def test_loader_is_named(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f10 r-xp 00000000 08:01 5 /usr/lib/libOpenCL.so.1\n7f10-7f20 r--p 0 08:01 6 /usr/lib/libc.so\n"
    )
    findings = doctor_checks.check_loader(maps)
    assert [f.what for f in findings][1:] == ["OpenCL loader /usr/lib/libOpenCL.so.1"]


def test_pocl_by_wheel_by_system_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "pip install pocl-binary-distribution" in only(doctor_checks.check_pocl(["NVIDIA CUDA"]), NOTE).fix
    assert only(doctor_checks.check_pocl([f"{pocl.PLATFORM} (OpenCL 3.0 PoCL 5.0)"]), GOOD)
    monkeypatch.setattr(metadata, "version", lambda name: "3.0")
    assert only(doctor_checks.check_pocl(), GOOD).what == "PoCL wheel 3.0"


# PoCL's processor names and cache


@pytest.mark.parametrize(
    "platform, version, expected",
    [
        (pocl.PLATFORM, "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic", True),
        (pocl.PLATFORM, "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-icelake-client", True),
        (pocl.PLATFORM, "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-skylake-avx512", False),
        (pocl.PLATFORM, "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-sapphirerapids", False),
        (pocl.PLATFORM, "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-skylake-avx512", False),
        ("Intel(R) OpenCL", "OpenCL 3.0 generic", False),
    ],
)
def test_who_needs_the_repair(platform: str, version: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocl.sys, "platform", "linux")
    monkeypatch.setattr(pocl.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(pocl, "host_cpu_name", lambda: "skylake-avx512")
    assert pocl.has_wrong_cpu_name(platform, version) is expected


@pytest.mark.parametrize(
    "flags, name",
    [
        ({"sse4_1", "avx", "avx2", "avx512f"}, "skylake-avx512"),
        ({"sse4_1", "avx", "avx2"}, "haswell"),
        ({"sse4_1", "avx"}, "sandybridge"),
        ({"sse4_1"}, "penryn"),
        (set(), "x86-64"),
    ],
)
def test_processor_names(flags: set[str], name: str) -> None:
    assert pocl.llvm_cpu_name(flags) == name


def test_pocls_files_lie_beside_ours_unless_the_user_said_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POCL_CACHE_DIR", "POCL_KERNEL_CACHE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(pocl, "_folder", None)
    pocl.prepare_environment(tmp_path)
    assert Path(os.environ["POCL_CACHE_DIR"]) == tmp_path / "pocl" / "0"
    assert Path(os.environ["POCL_CACHE_DIR"]).is_dir()
    pocl.restore_environment()
    assert "POCL_CACHE_DIR" not in os.environ, "processes that this one starts have folders of their own"
    pocl.prepare_environment(tmp_path)
    assert "POCL_CACHE_DIR" not in os.environ, "PoCL looks once"
    monkeypatch.setattr(pocl, "_folder", None)
    pocl.prepare_environment(None)
    assert not Path(os.environ["POCL_CACHE_DIR"]).is_relative_to(tmp_path)
    monkeypatch.setattr(pocl, "_folder", None)
    monkeypatch.setenv("POCL_CACHE_DIR", "/mine")
    pocl.prepare_environment(tmp_path)
    pocl.restore_environment()
    assert os.environ["POCL_CACHE_DIR"] == "/mine"


@pytest.mark.parametrize(
    "cores, allowed, limit, expected",
    [(4, 4, "", "1"), (4, 4, "4", "1"), (4, 2, "", None), (4, 4, "2", None), (4, 4, "8", None)],
)
def test_threads_are_pinned_where_every_core_is_theirs(
    cores: int, allowed: int, limit: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pocl, "_folder", None)  # as in a process that has not asked for devices yet
    monkeypatch.setattr(pocl.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(pocl.os, "sched_getaffinity", lambda pid: set(range(allowed)), raising=False)
    monkeypatch.setenv("POCL_MAX_PTHREAD_COUNT", limit)
    monkeypatch.setenv("POCL_AFFINITY", "")
    monkeypatch.delenv("POCL_AFFINITY")
    monkeypatch.setenv("POCL_CACHE_DIR", "/mine")
    pocl.prepare_environment(None)
    assert os.environ.get("POCL_AFFINITY") == expected
    monkeypatch.setenv("POCL_AFFINITY", "0")
    pocl.prepare_environment(None)
    assert os.environ["POCL_AFFINITY"] == "0"  # what the user has set stays


@pytest.mark.parametrize(("set_by_user", "expected"), [(None, "1"), ("0", "0")])
def test_intels_runtime_does_not_widen_vectors(
    monkeypatch: pytest.MonkeyPatch, set_by_user: str | None, expected: str
) -> None:
    name = "CL_CONFIG_CPU_VECTORIZER_MODE"
    monkeypatch.setenv(name, set_by_user or "")
    if set_by_user is None:
        monkeypatch.delenv(name)
    enumerate_devices.prepare_intel_cpu_runtime()
    assert os.environ.get(name) == expected


def test_a_driver_that_crashes_is_named_and_not_loaded_here(tmp_path: Path) -> None:
    (tmp_path / "bad.icd").write_text("libbad.so")

    def crash(name: str) -> object:
        raise ProcessLookupError("it ends the process by signal 11")

    bad = only(doctor_checks.check_icds([tmp_path], crash), BAD)
    assert bad.is_fatal
    assert "which crashes every program that uses OpenCL: it ends the process by signal 11" in bad.what
    assert f"sudo rm {tmp_path / 'bad.icd'}" in bad.fix


def test_libraries_are_loaded_in_a_process_of_their_own() -> None:
    with pytest.raises(OSError, match="libnone"):
        doctor_checks.load_in_child("libnone.so.77")
    doctor_checks.load_in_child("libc.so.6")


@pytest.mark.parametrize("where", ["linux-x86_64", "linux", "wsl", "android", "macos", "windows", "other"])
def test_every_system_has_its_advice(where: str) -> None:
    assert "CPU" in install_advice.device_advice(where)
    assert ("apt" in install_advice.device_advice(where)) == (where in ("linux", "wsl"))


def test_a_missing_loader_is_a_sentence_and_other_imports_are_not() -> None:
    missing = ImportError("libOpenCL.so.1: cannot open shared object file", name="pyopencl._cl")
    assert "libOpenCL.so.1" in str(install_advice.loader_advice(missing))
    assert install_advice.loader_advice(ModuleNotFoundError("No module named 'pyopencl'", name="pyopencl")) is not None
    assert install_advice.loader_advice(ModuleNotFoundError("No module named 'numpy'", name="numpy")) is None
