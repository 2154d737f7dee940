"""Assignment of OpenCL devices to Ray actors, by Ray's custom resource `opencl`, one for each device of a node."""

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
_TIMEOUT_S = 30.0  # for a device whose last actor is ending


def announced_devices() -> list[str]:
    """Ids of the devices that a node announces: all except CPUs, or the CPUs if there is nothing else."""
    found = devices()
    return [d.id for d in found if d.kind != "cpu"] or [d.id for d in found]


def resources() -> dict[str, int]:
    """The argument of `ray start --resources` on this machine; `opalite devices --resources` prints it."""
    return {RESOURCE: len(announced_devices())}


@dataclass(frozen=True)
class DeviceAssignment:
    """The device of an actor. device: an id, None for the default device. share: the actor's part of the device."""

    device: str | None
    share: Share | None = None


_assignments: weakref.WeakValueDictionary[str, DeviceAssignment] = weakref.WeakValueDictionary()  # of this process


def assign_device() -> DeviceAssignment:
    """Assign a device to this actor according to Ray's resources.

    `resources={"opencl": 1}` gives the actor a device for itself, a fraction such as 1/2 a part of one. Without this
    resource the actor uses the default device; with `num_gpus` the process sees only the GPU that Ray has chosen. On a
    CPU the actor uses one thread for each core that Ray has assigned.

    Raises DeviceError if the node has announced devices that this machine does not have.
    """
    assigned = _assigned()
    if cores := int(assigned.get("CPU", 0)):
        knobs.default_foreign("POCL_MAX_PTHREAD_COUNT", str(cores))
        knobs.default_foreign("POCL_AFFINITY", "0")  # else all actors of a machine would be pinned to the first cores
    share = float(assigned.get(RESOURCE, 0))
    if share <= 0:
        return DeviceAssignment(None)
    if share > 1:
        raise InputError(f"an actor computes on one device: request {{'{RESOURCE}': 1}}, got {share:g}")
    place = _assignments.get(RESOURCE)
    if place is None:
        place = _assignments[RESOURCE] = _acquire_device(announced_devices(), share, *_folder_and_node())
    return place


def _assigned() -> dict[str, Any]:
    """The resources that Ray has assigned to this worker; none outside of workers."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return {}
    try:
        found: dict[str, Any] = ray.get_runtime_context().get_assigned_resources()
    except AssertionError:  # raised by Ray in the driver process
        return {}
    return found


def _folder_and_node() -> tuple[Path, str]:
    """The user's folder of lock files on this machine, and the id of this Ray node."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    node: str = sys.modules["ray"].get_runtime_context().get_node_id()
    return Path(tempfile.gettempdir(), f"opalite-ray-{user}"), node[:16]


def _acquire_device(
    ids: list[str], share: float, folder: Path, node: str, timeout_s: float = _TIMEOUT_S
) -> DeviceAssignment:
    """Acquire `share` of the first device with enough left. The share ends with the assignment or the process."""
    found = acquire_share(folder, node, len(ids), share, timeout_s if share == 1 else timeout_s / 10)
    if found is None:
        raise DeviceError(
            f"this node has {len(ids)} devices, and other actors use all of them, although Ray has assigned one here; "
            f'start the node with --resources "$(opalite devices --resources)"'
        )
    place = DeviceAssignment(ids[found.device], found)
    weakref.finalize(place, found.release)
    return place
