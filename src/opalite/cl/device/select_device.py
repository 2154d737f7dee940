"""Which device a request means, and ids that name a device the same way each time. Pure: needs no OpenCL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import NoDeviceError
from ...ir.device.device_info import DeviceInfo
from .install_advice import device_advice

# Start of an id by platform name; the first match wins.
_PLATFORMS = (
    ("portable computing language", "pocl"),
    ("rusticl", "rusticl"),
    ("clover", "clover"),
    ("clvk", "clvk"),
    ("oclgrind", "oclgrind"),
    ("nvidia", "nvidia"),
    ("amd", "amd"),
    ("intel", "intel"),
    ("arm", "arm"),
    ("qualcomm", "qualcomm"),
    ("powervr", "imagination"),
    ("imagination", "imagination"),
    ("apple", "apple"),
)
# Translation layers and debuggers show a device that a driver of its own may show too.
_SECOND_CHOICE = ("rusticl", "clover", "clvk", "oclgrind")


@dataclass(frozen=True)
class DeviceEntry:
    """A device that a request may mean. `index` is 'platform:device' in the order that the drivers report."""

    info: DeviceInfo
    index: str
    location: str = ""  # PCI address, if known
    usable: bool = True  # available, with a compiler

    def __str__(self) -> str:
        return f"{self.info.id} [{self.index}] {self.info.name} ({self.info.platform}, {self.info.kind})"


def platform_slug(platform: str) -> str:
    """Short name of a platform for ids: 'pocl', 'nvidia', 'intel'..."""
    lowered = platform.lower()
    for part, slug in _PLATFORMS:
        if part in lowered:
            return slug
    return re.sub(r"[^a-z0-9]+", "-", lowered).strip("-") or "opencl"


def stable_ids(candidates: Sequence[DeviceEntry]) -> list[str]:
    """An id such as 'nvidia:gpu:0' for each candidate, in their order.

    The number counts devices of one platform and kind by PCI address, then name, then the driver's order: it stays
    when drivers are reordered and changes only when devices of that platform come or go.
    """
    order = sorted(range(len(candidates)), key=lambda i: (candidates[i].location, candidates[i].info.name, i))
    counts: dict[str, int] = {}
    ids = [""] * len(candidates)
    for i in order:
        info = candidates[i].info
        stem = f"{platform_slug(info.platform)}:{info.kind}"
        ids[i] = f"{stem}:{counts.setdefault(stem, 0)}"
        counts[stem] += 1
    return ids


def select(request: str | None, candidates: Sequence[DeviceEntry]) -> DeviceEntry:
    """The candidate that `request` means.

    An id ('nvidia:gpu:0'), an index ('0:1'), a kind ('cpu', 'gpu', 'accelerator') or one of a kind by its number
    ('gpu:1'), else a vendor, family, platform or part of a name; of several the best. None or '' takes the
    best GPU, else the best CPU. NoDeviceError lists what there is and what to do.
    """
    usable = [c for c in candidates if c.usable]
    if not usable:
        raise NoDeviceError(
            "no OpenCL device was found"
            + (f"; these cannot be used: {', '.join(map(str, candidates))}" if candidates else "")
            + f". To have one, {device_advice()}. `opalite doctor` says what is missing"
        )
    wanted = (request or "").strip().lower()
    found = _matching(wanted, usable) if wanted else usable
    if not found:
        listed = "".join(f"\n  {c}" for c in usable)
        raise NoDeviceError(
            f"no OpenCL device matches {request!r}. Found:{listed}\n"
            "Ask for an id, an index '0:0', 'cpu', 'gpu', a vendor or part of a name; `opalite devices` lists them, "
            "`opalite doctor` says why one may be missing"
        )
    return max(found, key=_rank)


def _matching(wanted: str, usable: Sequence[DeviceEntry]) -> list[DeviceEntry]:
    exact = [c for c in usable if wanted in (c.info.id, c.index)]
    if exact or re.fullmatch(r"\d+:\d+", wanted):
        return exact
    if match := re.fullmatch(r"(cpu|gpu|accelerator)(?::(\d+))?", wanted):
        kind = sorted((c for c in usable if c.info.kind == match[1]), key=_order)
        return kind if match[2] is None else kind[int(match[2]) :][:1]
    for fields in (("family", "id", "vendor", "platform"), ("name",)):
        found = [c for c in usable if any(wanted in str(getattr(c.info, f)).lower() for f in fields)]
        if found:
            return found
    return []


def _order(candidate: DeviceEntry) -> tuple[bool, str, str]:
    """Devices of a kind by number: drivers of their own before layers, then by place on the bus, then by id."""
    return platform_slug(candidate.info.platform) in _SECOND_CHOICE, candidate.location, candidate.info.id


def _rank(candidate: DeviceEntry) -> tuple[int, bool, bool, float]:
    info = candidate.info
    kind = {"gpu": 2, "accelerator": 1}.get(info.kind, 0)
    first_choice = platform_slug(info.platform) not in _SECOND_CHOICE
    return kind, first_choice, not info.unified_memory, info.peak_flops
