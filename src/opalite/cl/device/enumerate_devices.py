"""Enumeration and selection of OpenCL devices, tolerant of failing drivers."""

from __future__ import annotations

from dataclasses import field, replace

import pyopencl as cl

from ... import knobs
from ...cache.cache_folder import is_writable, usable_folder
from ...cache.temporary_folders import user_folder, write_fault
from ...errors import NoDeviceError
from ...ir.device.device_info import DeviceInfo
from ...lazy_dataclass import dataclass
from ...pocl import cpu_workarounds as pocl
from ...pocl.core_affinity import task_ids
from .driver_errors import code_name
from .fork_guard import check_fork
from .query_device_info import describe, location, with_probed_features
from .select_device import DeviceEntry, select, stable_ids

_PYOPENCL_CACHE_BYTES = 1 << 20


@dataclass(frozen=True)
class FoundDevice(DeviceEntry):
    """A device entry with its cl.Device."""

    device: cl.Device = None


@dataclass(frozen=True)
class BrokenPlatform:
    """A platform whose query for devices failed."""

    index: int
    name: str
    reason: str


@dataclass
class Listing:
    """All devices, and the platforms that failed."""

    devices: list[FoundDevice] = field(default_factory=list)
    broken: list[BrokenPlatform] = field(default_factory=list)
    platforms: list[str] = field(default_factory=list)  # name and version, in the loader's order
    faults: list[str] = field(default_factory=list)  # of the system; devices may be missing


def list_all() -> Listing:
    """List the devices of every platform. A failing platform or device is recorded and skipped."""
    check_fork()
    listing = Listing()
    folder = usable_folder()
    if (fault := pocl.prepare_environment(folder if folder is not None and is_writable(folder) else None)) is not None:
        listing.faults.append(fault)
    _disable_unwritable_pyopencl_cache()
    prepare_intel_cpu_runtime()
    try:
        return _list_all(listing)
    finally:
        pocl.restore_environment()


def _disable_unwritable_pyopencl_cache() -> None:
    """Turn off pyopencl's disk cache if the cache's folder cannot be written: pyopencl would raise."""
    folder = user_folder("pytools")
    if not knobs.has_foreign("PYOPENCL_NO_CACHE") and write_fault(folder, _PYOPENCL_CACHE_BYTES) is not None:
        cl._PYOPENCL_NO_CACHE = True


def prepare_intel_cpu_runtime() -> None:
    """Turn off vectorization across work-items in Intel's CPU runtime, unless the user has set that option.

    Opalite's CPU kernels are vectorized already; the runtime would widen their vectors up to 16 times without gain.
    Without widening, first runs of six models take a third to a fifth of the CPU time, later ones 0.94 to 1.01 (version
    2026.2, docs/portability.md).
    """
    knobs.default_foreign("CL_CONFIG_CPU_VECTORIZER_MODE", "1")


def _list_all(listing: Listing) -> Listing:
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return listing  # the loader reports "no platform" as an error
    for p, platform in enumerate(platforms):
        name = f"platform {p}"
        try:
            name = platform.name.strip()
            listing.platforms.append(f"{name} ({platform.version.strip()})")
            before = task_ids()
            devices = platform.get_devices()
            pocl.pin_threads(name, task_ids() - before)
        except cl.Error as e:
            listing.broken.append(BrokenPlatform(p, name, code_name(e.code)))
            continue
        for d, device in enumerate(devices):
            listing.devices.append(_found(device, f"{p}:{d}"))
    ids = stable_ids(listing.devices)
    listing.devices = [replace(f, info=replace(f.info, id=i)) for f, i in zip(listing.devices, ids, strict=True)]
    return listing


def devices() -> list[DeviceInfo]:
    """Every OpenCL device, with probed features."""
    return [with_probed_features(found.device, found.info) for found in list_all().devices]


def find_device(request: str | None = None) -> FoundDevice:
    """The device that matches `request` (see `select`). None: OPALITE_DEVICE, else the best GPU, else the CPU.

    Raises NoDeviceError that lists the devices and platforms found, with advice.
    """
    listing = list_all()
    try:
        chosen = select(request if request is not None else knobs.get("OPALITE_DEVICE"), listing.devices)
    except NoDeviceError as e:
        for broken in listing.broken:
            e.add_context(f"platform {broken.index} '{broken.name}' failed with {broken.reason}")
        for fault in listing.faults:
            e.add_context(fault)
        raise
    assert isinstance(chosen, FoundDevice)
    return replace(chosen, info=with_probed_features(chosen.device, chosen.info))


def _found(device: cl.Device, index: str) -> FoundDevice:
    try:
        usable = bool(device.available) and bool(device.compiler_available)
    except cl.Error:
        usable = False
    return FoundDevice(describe(device), index, location(device), usable, device)
