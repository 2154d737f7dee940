"""Selection of a device by a request string, and stable device ids. Needs no OpenCL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import NoDeviceError
from ...ir.device.device_descriptions import description_advice
from ...ir.device.device_info import DeviceInfo
from ...lazy_dataclass import dataclass
from .install_advice import device_advice

# First part of an id by platform name; the first match wins.
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
# Translation layers and debuggers; a native driver may report the same device.
_LAYERS = ("rusticl", "clover", "clvk", "oclgrind")


@dataclass(frozen=True)
class DeviceEntry:
    """A selectable device. index: 'platform:device' in the loader's order."""

    info: DeviceInfo
    index: str
    location: str = ""  # PCI address, if known
    usable: bool = True  # available, with a compiler

    def __str__(self) -> str:
        return f"{self.info.id} [{self.index}] {self.info.title} ({self.info.platform}, {self.info.kind})"


def platform_slug(platform: str) -> str:
    """Short platform name for ids: 'pocl', 'nvidia', 'intel'..."""
    lowered = platform.lower()
    for part, slug in _PLATFORMS:
        if part in lowered:
            return slug
    return re.sub(r"[^a-z0-9]+", "-", lowered).strip("-") or "opencl"


def stable_ids(candidates: Sequence[DeviceEntry]) -> list[str]:
    """An id such as 'nvidia:gpu:0' for each candidate, in order.

    Devices of one platform and kind are numbered by PCI address, then name, then the driver's order. The order of the
    drivers does not affect ids.
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
    """The best candidate that matches `request`.

    A request is an id ('nvidia:gpu:0'), an index ('0:1'), a kind ('cpu', 'gpu', 'accelerator'), a number within a kind
    ('gpu:1'), or a vendor, family, platform or part of a name. None or '': the best GPU, else the best CPU. Raises
    NoDeviceError that lists the devices found, with advice.
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
            f"no OpenCL device matches {request!r}. Found:{listed}\n{description_advice(wanted)}"
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
    for fields in (("family", "id", "vendor", "platform"), ("name", "title")):
        found = [c for c in usable if any(wanted in str(getattr(c.info, f)).lower() for f in fields)]
        if found:
            return found
    return []


def _order(candidate: DeviceEntry) -> tuple[bool, str, str]:
    """Order of the devices of one kind: native drivers before layers, then by PCI address, then by id."""
    return platform_slug(candidate.info.platform) in _LAYERS, candidate.location, candidate.info.id


def _rank(candidate: DeviceEntry) -> tuple[int, bool, bool, float]:
    info = candidate.info
    kind = {"gpu": 2, "accelerator": 1}.get(info.kind, 0)
    is_native = platform_slug(info.platform) not in _LAYERS
    return kind, is_native, not info.unified_memory, info.peak_flops
