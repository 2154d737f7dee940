"""Finds OpenCL devices, tolerant of drivers that fail, and picks one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyopencl as cl

from .. import knobs
from ..errors import NoDeviceError
from ..ir.device import DeviceInfo
from . import intel, pocl
from .cachefolder import cache_folder
from .describe import describe, location, with_trials
from .failures import code_name
from .forks import check_fork
from .select import Candidate, select, stable_ids


@dataclass(frozen=True)
class Found(Candidate):
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

    devices: list[Found] = field(default_factory=list)
    broken: list[BrokenPlatform] = field(default_factory=list)
    platforms: list[str] = field(default_factory=list)  # name and version, in the loader's order


def list_all() -> Listing:
    """Ask every platform for its devices. A platform or device that fails is noted and left out, never an error."""
    check_fork()
    pocl.prepare_environment(cache_folder() if knobs.get("OPALITE_CACHE") else None)
    intel.prepare_environment()
    try:
        return _list_all()
    finally:
        pocl.restore_environment()


def _list_all() -> Listing:
    listing = Listing()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return listing  # the loader's way of saying that there is no platform
    for p, platform in enumerate(platforms):
        name = f"platform {p}"
        try:
            name = platform.name.strip()
            listing.platforms.append(f"{name} ({platform.version.strip()})")
            devices = platform.get_devices()
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
    return [with_trials(found.device, found.info) for found in list_all().devices]


def find_device(request: str | None = None) -> Found:
    """The device that `request` means (see `select`); None takes OPALITE_DEVICE, else the best GPU, else the CPU.

    NoDeviceError lists the devices and platforms found and says what to do.
    """
    listing = list_all()
    try:
        chosen = select(request if request is not None else knobs.get("OPALITE_DEVICE"), listing.devices)
    except NoDeviceError as e:
        for broken in listing.broken:
            e.add_context(f"platform {broken.index} '{broken.name}' failed with {broken.reason}")
        raise
    assert isinstance(chosen, Found)
    return replace(chosen, info=with_trials(chosen.device, chosen.info))


def _found(device: cl.Device, index: str) -> Found:
    try:
        usable = bool(device.available) and bool(device.compiler_available)
    except cl.Error:
        usable = False
    return Found(describe(device), index, location(device), usable, device)
