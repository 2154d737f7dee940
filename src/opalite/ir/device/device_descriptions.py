"""Device descriptions: DeviceInfo files by path, or by the name of one that comes with the package."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import InputError
from .device_family import FAMILIES
from .device_info import DeviceInfo

FOLDER = Path(__file__).parent / "descriptions"
SUFFIX = ".json"
_KINDS = ("cpu", "gpu", "accelerator")
_AT_LEAST_ONE = (
    *("compute_units", "wave_size", "lanes", "max_work_group_size", "max_work_item_sizes"),
    *("global_mem", "max_alloc", "base_align"),
)
_POWERS_OF_TWO = ("wave_size", "full_wave", "base_align", "native_float_width")
_MOST = 2**63 - 1  # OpenCL's numbers have 64 bits


@cache
def description_names() -> list[str]:
    """Names of the descriptions that come with the package, such as 'adreno_640'."""
    return sorted(p.stem for p in FOLDER.glob(f"*{SUFFIX}"))


def is_description(request: str | None) -> bool:
    """Whether a device request names a description: a .json file, or one of the package's, as 'Adreno 640' does."""
    return bool(request) and (_is_file(request) or _plain(request) in description_names())  # type: ignore[arg-type]


def canonical_name(request: str) -> str:
    """A request as one name stands for it in files: that of the package's description, or the request itself."""
    plain = _plain(request)
    return plain if not _is_file(request) and plain in description_names() else request.strip()


def read_description(request: str) -> DeviceInfo:
    """The device that a .json file, or a description of the package by its name, describes.

    Raises InputError for a file that cannot be read or holds something else.
    """
    path = Path(request.strip()) if _is_file(request) else FOLDER / f"{_plain(request)}{SUFFIX}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(
            f"device description '{request}' cannot be read ({getattr(e, 'strerror', None) or e}); give a .json file "
            f"of `opalite devices --export`, or one of {', '.join(description_names())}"
        ) from e
    try:
        raw = json.loads(text)
        _check_keys(raw)
        found = DeviceInfo.from_json(text)
        _check_fields(found)
    except (ValueError, RecursionError) as e:
        raise InputError(
            f"device description '{path}' does not describe a device ({e}); `opalite devices --export FILE.json` "
            "writes one"
        ) from e
    return found


def description_advice(request: str) -> str:
    """A sentence for a request that no device here matches: that it is a description, or the names like it; or ''."""
    if is_description(request):
        return f"{request.strip()} is a description: compare, inspect, compile, lens and profile --plan take it. "
    plain = _plain(request)
    near = [n for n in description_names() if plain and plain in n]
    near = near or difflib.get_close_matches(plain, description_names())
    return f"Descriptions of devices that are not here: {', '.join(near)}; one is named in full. " if near else ""


def _is_file(request: str) -> bool:
    return request.strip().lower().endswith(SUFFIX)


def _plain(request: str) -> str:
    """The name of a description from how people write it: 'Adreno 640', 'mali-g76'."""
    return re.sub(r"[\s_-]+", "_", request.strip().lower())


def _check_keys(raw: Any) -> None:
    """ValueError for JSON that is no device, or a key that is a misspelt one."""
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise ValueError("it is no object with a name")
    known = {f.name for f in dataclasses.fields(DeviceInfo)}
    for key in raw.keys() - known:
        # Other keys are notes, or a later version's.
        if meant := difflib.get_close_matches(key, known - raw.keys(), 1, 0.8):
            raise ValueError(f"{key!r} is no property of a device; is it {meant[0]}?")


def _check_fields(device: DeviceInfo) -> None:
    """ValueError for a field of another type than its default's, or a number that no device has."""
    default = DeviceInfo()
    for field in dataclasses.fields(DeviceInfo):
        value, usual = getattr(device, field.name), getattr(default, field.name)
        fits = type(value) is type(usual)
        if fits and isinstance(usual, tuple):
            kind = int if usual and isinstance(usual[0], int) else str
            fits = (len(value) == len(usual) or kind is str) and all(type(v) is kind for v in value)
        if not fits:
            raise ValueError(f"{field.name} is {value!r}, where one like {usual!r} is expected")
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int:
                _check_number(field.name, number)
    if device.kind not in _KINDS:
        raise ValueError(f"kind is {device.kind!r}, where one of {', '.join(_KINDS)} is expected")
    if device.family not in FAMILIES:
        raise ValueError(f"family is {device.family!r}, where one of {', '.join(FAMILIES)} is expected")


def _check_number(name: str, number: int) -> None:
    least = int(name in _AT_LEAST_ONE)
    if not least <= number <= _MOST:
        raise ValueError(f"{name} is {number}, where {least} to {_MOST} is expected")
    if name in _POWERS_OF_TWO and number & (number - 1):
        raise ValueError(f"{name} is {number}, where a power of two is expected")
