"""Exports and imports tuning entries as JSON, for other machines and for the shipped defaults."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..errors import InputError
from .tuning_database import FORMAT, Entry, TuningDatabase
from .tuning_levels import Level


def export_json(database: TuningDatabase, device: str | None = None) -> str:
    """Every entry, or those of one device."""
    return to_json(database.entries(device))


def import_json(database: TuningDatabase, text: str) -> int:
    """Merges exported entries, keeping the faster of two; returns the number imported.

    They apply only to the device and driver that measured them. InputError if `text` is not an export.
    """
    taken = 0
    for e in from_json(text):
        known = database.find(e.device, e.kernel, e.binding, e.node)
        if known is None or e.seconds < known.seconds:
            database.put(e)
            taken += 1
    return taken


def to_json(entries: Iterable[Entry]) -> str:
    """JSON text that `from_json` reads."""
    return json.dumps({"format": FORMAT, "entries": [{**asdict(e), "level": str(e.level)} for e in entries]}, indent=1)


def from_json(text: str) -> list[Entry]:
    """The entries in `text`; InputError names the fault."""
    try:
        raw = json.loads(text)
    except ValueError as e:
        raise InputError(f"tuning entries are expected as JSON: {e}") from e
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise InputError(f"tuning entries of format {FORMAT} are expected, got {found}; export them again")
    try:
        return [_entry(item) for item in raw["entries"]]
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise InputError(f"a tuning entry is incomplete or of the wrong type ({e!r}); export them again") from e


def _entry(item: dict[str, Any]) -> Entry:
    group = item["group"]
    return Entry(
        device=str(item["device"]),
        kernel=str(item["kernel"]),
        binding=str(item["binding"]),
        node=str(item["node"]),
        params=dict(item["params"]),
        group=None if group is None else tuple(int(g) for g in group),
        seconds=float(item["seconds"]),
        default_seconds=float(item["default_seconds"]),
        level=Level.parse(item["level"]),
        measured_at=float(item["measured_at"]),
    )
