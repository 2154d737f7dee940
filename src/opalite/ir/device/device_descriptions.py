"""Device descriptions: DeviceInfo files by path, or by the name of one that comes with the package."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ...errors import InputError
from .device_info import DeviceInfo

FOLDER = Path(__file__).parent / "descriptions"
SUFFIX = ".json"


def description_names() -> list[str]:
    """Names of the descriptions that come with the package, such as 'adreno_640'."""
    return sorted(p.stem for p in FOLDER.glob(f"*{SUFFIX}"))


def is_description(request: str | None) -> bool:
    """Whether a device request names a description: a .json file, or one of the package's."""
    return bool(request) and (request.endswith(SUFFIX) or request in description_names())  # type: ignore[union-attr]


def read_description(request: str) -> DeviceInfo:
    """The device that a .json file, or a description of the package by its name, describes.

    Raises InputError for a file that cannot be read or holds something else.
    """
    path = Path(request) if request.endswith(SUFFIX) else FOLDER / f"{request}{SUFFIX}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(
            f"device description '{request}' cannot be read ({getattr(e, 'strerror', None) or e}); give a .json file "
            f"of `opalite devices --export`, or one of {', '.join(description_names())}"
        ) from e
    try:
        found = DeviceInfo.from_json(text)
        _check_types(found)
    except (ValueError, TypeError, AttributeError) as e:
        raise InputError(
            f"device description '{path}' does not describe a device ({e}); `opalite devices --export FILE.json` "
            "writes one"
        ) from e
    return found


def _check_types(device: DeviceInfo) -> None:
    """ValueError for a field of another type than its default's."""
    default = DeviceInfo()
    for field in dataclasses.fields(DeviceInfo):
        value, usual = getattr(device, field.name), getattr(default, field.name)
        fits = type(value) is type(usual)
        if fits and isinstance(usual, tuple):
            kind = int if usual and isinstance(usual[0], int) else str
            fits = (len(value) == len(usual) or kind is str) and all(type(v) is kind for v in value)
        if not fits:
            raise ValueError(f"{field.name} is {value!r}, where one like {usual!r} is expected")
