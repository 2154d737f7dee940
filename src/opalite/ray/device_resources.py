"""Assignment of OpenCL devices to Ray actors, by Ray's custom resource `opencl`, one for each device of a node.

An actor's share of a device is a lock file that its process keeps locked. The system releases the lock when the process
ends, in any way. The next actor removes unlocked files. The last actor that releases a share removes the folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from .. import knobs
from ..cache.file_locks import try_lock
from ..cl.device.enumerate_devices import devices
from ..errors import DeviceError, InputError

RESOURCE = "opencl"
_TIMEOUT_S = 30.0  # for a device whose last actor is ending
_log = logging.getLogger("opalite.ray")
_WHOLE = 10_000  # Ray counts resources in ten-thousandths
_GUARD = "guard"
_POLL_S = 0.05


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


@dataclass(frozen=True)
class Share:
    """A share of a device. device: the index of the device on its node."""

    device: int
    path: Path
    lock: int

    def release(self) -> None:
        with contextlib.suppress(OSError), _guarded(self.path.parent):
            self.path.unlink(missing_ok=True)
            os.close(self.lock)


def acquire_share(folder: Path, node: str, devices: int, share: float, timeout_s: float) -> Share | None:
    """Acquire `share` (0 < share <= 1) of the first device of `node` with enough left; None after `timeout_s` seconds.

    Ray only checks the sum over all devices. A fraction that fits no single device is taken of the least used device.
    """
    end = time.monotonic() + timeout_s
    need = max(1, round(share * _WHOLE))
    while True:
        is_late = time.monotonic() > end
        with _guarded(folder):
            held = _used_parts(folder, node, devices)
            device = next((i for i, n in enumerate(held) if n + need <= _WHOLE), None)
            if device is None and is_late and need < _WHOLE:
                device = min(range(devices), key=lambda i: held[i])
                _log.warning("no device has %g left, so a device is overcommitted: request fractions 1/n", share)
            if device is not None:
                return _create_share(folder, f"{node}-{device}", need, device)
        if is_late:
            return None
        time.sleep(_POLL_S)


def _used_parts(folder: Path, node: str, devices: int) -> Sequence[int]:
    """The used part of each device, in units of 1 / _WHOLE. Removes unlocked files, of other nodes too."""
    held = [0] * devices
    for path in folder.iterdir():
        if path.name == _GUARD:
            continue
        lock = try_lock(path)
        if lock is not None:
            path.unlink(missing_ok=True)
            os.close(lock)
            continue
        owner, device, _, part = path.name.rsplit("-", 3)
        if owner == node and int(device) < devices:
            held[int(device)] += int(part)
    return held


def _create_share(folder: Path, name: str, need: int, device: int) -> Share:
    path = next(p for n in count() if not (p := folder / f"{name}-{n}-{need}").exists())
    lock = try_lock(path)
    assert lock is not None, "created under the guard"
    return Share(device, path, lock)


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Hold the folder's guard lock inside the block; removes an empty folder at the end."""
    guard = folder / _GUARD
    while True:
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the folder
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = try_lock(guard)
            if lock is not None:
                if guard.exists() and os.path.samestat(os.fstat(lock), guard.stat()):
                    break
                os.close(lock)
        time.sleep(0.001)
    try:
        yield
    finally:
        if [p.name for p in folder.iterdir()] == [_GUARD]:
            guard.unlink()
            folder.rmdir()
        os.close(lock)
