"""Looks up a cost table's row for a device: each field from the most specific file that has it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ..ir.device.device_info import DeviceInfo

_FOLDER = Path(__file__).parent
_ORIGIN = ("measured", "shown_by")
_T = TypeVar("_T", bound="Table")

UNKNOWN_SHARE = 0.1
"""Share of the peak of a kernel that no table names."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Named costs of one kind of kernel. A subclass names its TOML table."""

    table: ClassVar[str]

    @classmethod
    def of(cls, device: DeviceInfo) -> Self:
        """The row for `device`."""
        return find_row(cls, *_layer_key(device))

    @classmethod
    def named(cls, name: str, device: DeviceInfo) -> Self:
        """The row `name` of a table with a row per kernel."""
        return find_row(cls, *_layer_key(device), name)


def share_of_peak(kernel: str, device: DeviceInfo) -> float:
    """Share of the device's peak that an untuned run of `kernel` is assumed to reach."""
    return float(_merged("share_of_peak", *_layer_key(device)).get(kernel, UNKNOWN_SHARE))


_rows: dict[tuple[type[Table], str, str, str, str], Any] = {}


def find_row(table: type[_T], kind: str, family: str, generation: str, name: str = "") -> _T:
    """The row of `table` for devices of a kind (cpu or gpu), family and generation; cached."""
    key = (table, kind, family, generation, name)
    row: _T | None = _rows.get(key)
    if row is None:
        path = f"{table.table}.{name}" if name else table.table
        row = _rows[key] = table(**_merged(path, kind, family, generation))
    return row


@cache
def _merged(path: str, kind: str, family: str, generation: str) -> Mapping[str, Any]:
    """The fields of a TOML table, each from the most specific file that has it, without `measured` and `shown_by`."""
    fields: dict[str, Any] = {}
    for _, layer in layers(kind, family, generation):
        found: Any = layer
        for part in path.split("."):
            found = found.get(part, {})
        fields |= {k: v for k, v in found.items() if k not in _ORIGIN}
    return fields


def layers(kind: str, family: str, generation: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, tables) of the files for a device, the most specific last."""
    for name in ("any", kind, family, f"{family}-{generation}"):
        if (tables := _read(name)) is not None:
            yield name, tables


@cache
def _read(name: str) -> Mapping[str, Any] | None:
    path = _FOLDER / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _layer_key(device: DeviceInfo) -> tuple[str, str, str]:
    return ("cpu" if device.is_cpu else "gpu"), device.family, device.generation
