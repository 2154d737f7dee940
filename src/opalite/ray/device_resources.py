"""Which device an actor computes on, and what a node announces: Ray's custom resource `opencl`, one for each device."""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import knobs
from ..cl.device.enumerate_devices import devices
from ..errors import DeviceError, InputError
from .device_shares import Share, acquire_share

RESOURCE = "opencl"
_PATIENCE_S = 30.0  # for a device whose last actor is ending


def announced_devices() -> list[str]:
    """Ids of the devices that a node announces: all but CPUs, or the CPUs where there is no other."""
    found = devices()
    return [d.id for d in found if d.kind != "cpu"] or [d.id for d in found]


def resources() -> dict[str, int]:
    """What to give `ray start --resources` on this machine, as `opalite devices --resources` prints it."""
    return {RESOURCE: len(announced_devices())}


@dataclass(frozen=True)
class DeviceAssignment:
    """device: an id, None for the default device. share: what the actor has of it, as long as it lives."""

    device: str | None
    share: Share | None = None


_held: weakref.WeakValueDictionary[str, DeviceAssignment] = weakref.WeakValueDictionary()  # of this process


def assign_device() -> DeviceAssignment:
    """Where this actor computes, by what Ray has assigned to it.

    With `resources={"opencl": 1}` each actor of a node gets one of its devices for itself; with 1/2, two share one, or
    one shares it with two that asked for 1/4. Without, the default device; `num_gpus` lets a process see only the GPU
    that Ray chose. On a CPU an actor takes as many threads as Ray has assigned cores.

    DeviceError if devices were announced that this machine does not have.
    """
    assigned = _assigned()
    if cores := int(assigned.get("CPU", 0)):
        knobs.default_foreign("POCL_MAX_PTHREAD_COUNT", str(cores))
        knobs.default_foreign("POCL_AFFINITY", "0")  # actors on one machine would all begin with the first core
    share = float(assigned.get(RESOURCE, 0))
    if share <= 0:
        return DeviceAssignment(None)
    if share > 1:
        raise InputError(f"an actor computes on one device: ask for {{'{RESOURCE}': 1}} each, got {share:g}")
    place = _held.get(RESOURCE)
    if place is None:
        place = _held[RESOURCE] = _acquire_device(announced_devices(), share, *_folder_and_node())
    return place


def _assigned() -> dict[str, Any]:
    """What Ray has assigned to this worker; nothing outside of one."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return {}
    try:
        found: dict[str, Any] = ray.get_runtime_context().get_assigned_resources()
    except AssertionError:  # Ray's answer in the process that drives
        return {}
    return found


def _folder_and_node() -> tuple[Path, str]:
    """A folder of this user's for the actors of this machine, and which of its nodes this one is."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    node: str = sys.modules["ray"].get_runtime_context().get_node_id()
    return Path(tempfile.gettempdir(), f"opalite-ray-{user}"), node[:16]


def _acquire_device(
    ids: list[str], share: float, folder: Path, node: str, patience_s: float = _PATIENCE_S
) -> DeviceAssignment:
    """The first device that has so much left. It is given back when nobody has the Place, or the process ends."""
    found = acquire_share(folder, node, len(ids), share, patience_s if share == 1 else patience_s / 10)
    if found is None:
        raise DeviceError(
            f"this node has {len(ids)} devices, and all are taken by other actors, though Ray has assigned one "
            f'here; start it with --resources "$(opalite devices --resources)"'
        )
    place = DeviceAssignment(ids[found.device], found)
    weakref.finalize(place, found.release)
    return place
