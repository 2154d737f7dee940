"""Two records of programs side by side: what differs first in each program, and how their sources differ."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .lines import ONLY_SHOWN, Record

MOST_LINES = 60  # of the difference of two sources
SHORT = 160  # characters of a value that is shown whole


@dataclass
class Difference:
    """Two records compared. `lines` tells of every program that differs; `failed` names those that neither can plan."""

    equal: int = 0
    differing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        programs = self.equal + len(self.differing)
        words = f"{self.equal} of {programs} programs are equal"
        return words + (f", {len(self.failed)} of which cannot be planned" if self.failed else "")


def compare(before: Path, after: Path) -> Difference:
    """What differs between two folders that record.py wrote, for the programs of `after`. A difference of sources is
    shown once.
    """
    found = Difference()
    shown: set[tuple[str, str]] = set()
    for name in sorted(_names(after)):
        old, new = (_read(folder / f"{name}.jsonl") for folder in (before, after))
        if old == new:
            found.equal += 1
            if any(line.record["step"] == "failure" for line in new):
                found.failed.append(name)
            continue
        found.differing.append(name)
        if not old:
            found.lines.append(f"{name}: not recorded before")
            continue
        found.lines += _explain(name, old, new, before, after, shown)
    return found


def _names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)).removesuffix(".jsonl") for p in folder.glob("*/*.jsonl")}


@dataclass(frozen=True)
class _Line:
    """A record, equal to another by what a program is made of: `key`."""

    key: str
    record: Record = field(compare=False)

    @classmethod
    def of(cls, record: Record) -> _Line:
        return cls(json.dumps({k: v for k, v in record.items() if k not in ONLY_SHOWN}, sort_keys=True), record)


def _read(path: Path) -> list[_Line]:
    """Nothing for a program that was not recorded."""
    if not path.is_file():
        return []
    return [_Line.of(json.loads(line)) for line in path.read_text().splitlines()]


def _explain(
    name: str, old: list[_Line], new: list[_Line], before: Path, after: Path, shown: set[tuple[str, str]]
) -> Iterator[str]:
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
    yield f"{name}: {len(old)} -> {len(new)} records; {gone.total()} gone, {come.total()} new. The first, number {at}:"
    a, b = (side[at].record if at < len(side) else {"step": "the end"} for side in (old, new))
    yield f"  before: {_title(a)}"
    yield f"  after:  {_title(b)}"
    if a["step"] != b["step"]:
        return
    for key in dict.fromkeys((*a, *b)):
        if a.get(key) != b.get(key) and key not in ONLY_SHOWN:
            yield from _values(key, a.get(key), b.get(key))
    pair = (str(a.get("source")), str(b.get("source")))
    if pair[0] != pair[1]:
        if pair in shown:
            yield "    (their difference stands above)"
        else:
            shown.add(pair)
            yield from _source_difference(before / "sources", after / "sources", *pair)


def _title(r: Record) -> str:
    return " ".join(str(r[k]) for k in ("step", "entry", "op", "kernel", "node") if r.get(k))


def _values(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (x, y) in enumerate(zip(old, new, strict=True)):
            if x != y:
                yield f"    {key}[{i}]: {_short(x)} -> {_short(y)}"
    else:
        yield f"    {key}: {_short(old)} -> {_short(new)}"


def _short(x: Any) -> str:
    text = str(x)
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."


def _source_difference(before: Path, after: Path, old: str, new: str) -> Iterator[str]:
    a, b = ((folder / f"{key}.cl").read_text().splitlines() for folder, key in ((before, old), (after, new)))
    lines = list(difflib.unified_diff(a, b, f"{old}.cl", f"{new}.cl", lineterm="", n=2))
    yield from (f"    {line}" for line in lines[:MOST_LINES])
    if len(lines) > MOST_LINES:
        yield f"    ... and {len(lines) - MOST_LINES} lines more"
