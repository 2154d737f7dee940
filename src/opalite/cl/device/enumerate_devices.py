"""Finds OpenCL devices, tolerant of drivers that fail, and picks one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyopencl as cl

from ... import knobs
from ...cache.cache_folder import is_writable, usable_folder
from ...cache.temporary_folders import user_folder, write_fault
from ...errors import NoDeviceError
from ...ir.device.device_info import DeviceInfo
from ...pocl import cpu_workarounds as pocl
from ...pocl.core_affinity import task_ids
from . import intel_cpu_runtime
from .driver_errors import code_name
from .fork_guard import check_fork
from .query_device_info import describe, location, with_probed_features
from .select_device import DeviceEntry, select, stable_ids

_PYOPENCL_ROOM = 1 << 20  # bytes on the disk for pyopencl's own cache


@dataclass(frozen=True)
class FoundDevice(DeviceEntry):
    """A candidate with its OpenCL device."""

    device: cl.Device = None


@dataclass(frozen=True)
class BrokenPlatform:
    """A platform that could not be asked for its devices."""

    index: int
    name: str
    reason: str


@dataclass
class Listing:
    """Every device of every platform, and the platforms that failed."""

    devices: list[FoundDevice] = field(default_factory=list)
    broken: list[BrokenPlatform] = field(default_factory=list)
    platforms: list[str] = field(default_factory=list)  # name and version, in the loader's order
    faults: list[str] = field(default_factory=list)  # of the machine, by which devices may be missing


def list_all() -> Listing:
    """Ask every platform for its devices. A platform or device that fails is noted and left out, never an error."""
    check_fork()
    listing = Listing()
    kept = usable_folder()
    if (fault := pocl.prepare_environment(kept if kept is not None and is_writable(kept) else None)) is not None:
        listing.faults.append(fault)
    _spare_cache_of_pyopencl()
    intel_cpu_runtime.prepare_environment()
    try:
        return _list_all(listing)
    finally:
        pocl.restore_environment()


def _spare_cache_of_pyopencl() -> None:
    """Keep pyopencl from its own cache of generated code, without which it raises, where that cannot be written."""
    folder = user_folder("pytools")
    if not knobs.has_foreign("PYOPENCL_NO_CACHE") and write_fault(folder, _PYOPENCL_ROOM) is not None:
        cl._PYOPENCL_NO_CACHE = True


def _list_all(listing: Listing) -> Listing:
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return listing  # the loader's way of saying that there is no platform
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
    """Every OpenCL device found, with the findings of trial builds."""
    return [with_probed_features(found.device, found.info) for found in list_all().devices]


def find_device(request: str | None = None) -> FoundDevice:
    """The device that `request` means (see `select`); None takes OPALITE_DEVICE, else the best GPU, else the CPU.

    NoDeviceError lists the devices and platforms found and says what to do.
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
