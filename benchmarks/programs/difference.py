"""Compares two records of programs: the first difference of each program, and of their sources without comments."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .lines import ONLY_SHOWN, Record, digest

MOST_LINES = 60  # of the difference of two sources
SHORT = 160  # characters of a value that is shown whole


@dataclass
class Difference:
    """The comparison of two records. lines: about each differing program. failed: programs that neither can plan."""

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
    """The differences between two folders of record.py for the programs of `after`; equal source changes count once."""
    found = Difference()
    sides = ((before, _Code(before / "sources")), (after, _Code(after / "sources")))
    sources = _Sources(*(code for _, code in sides))
    for name in sorted(_names(after)):
        old, new = (_read(folder / f"{name}.jsonl", code) for folder, code in sides)
        if old == new:
            found.equal += 1
            if any(line.record["step"] == "failure" for line in new):
                found.failed.append(name)
            continue
        found.differing.append(name)
        if not old:
            found.lines.append(f"{name}: not recorded before")
            continue
        found.lines += _explain(name, old, new, sources)
    return found


def _names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)).removesuffix(".jsonl") for p in folder.glob("*/*.jsonl")}


@dataclass(frozen=True)
class _Line:
    """A record line; lines with equal `key` count as equal."""

    key: str
    record: Record = field(compare=False)

    @classmethod
    def of(cls, record: Record) -> _Line:
        return cls(json.dumps({k: v for k, v in record.items() if k not in ONLY_SHOWN}, sort_keys=True), record)


class _Code:
    """The sources of one record, without comments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}  # by digest of the text
        self._keys: dict[str, str] = {}  # that digest by the record's key

    def key(self, recorded: str) -> str:
        """Digest of the source under `recorded` without comments."""
        if recorded not in self._keys:
            text = without_comments((self._folder / f"{recorded}.cl").read_text())
            self._keys[recorded] = digest(text.encode())
            self._texts[self._keys[recorded]] = text
        return self._keys[recorded]

    def text(self, key: str) -> str:
        return self._texts[key]


_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def without_comments(text: str) -> str:
    """OpenCL C without comments, blanks at the end of a line, and empty lines."""
    code = _COMMENT.sub(lambda m: m[0] if m[0].startswith('"') else " ", text)
    return "".join(f"{line.rstrip()}\n" for line in code.splitlines() if line.strip())


def _read(path: Path, code: _Code) -> list[_Line]:
    """The lines of a program; none if it was not recorded."""
    if not path.is_file():
        return []
    records: list[Record] = [json.loads(line) for line in path.read_text().splitlines()]
    return [_Line.of({**r, "source": code.key(r["source"])} if "source" in r else r) for r in records]


def _explain(name: str, old: list[_Line], new: list[_Line], sources: _Sources) -> Iterator[str]:
    """The first of the differing lines whose difference was not shown yet."""
    gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
    yield f"{name}: {len(old)} -> {len(new)} records; {gone.total()} gone, {come.total()} new."
    end = _Line.of({"step": "the end"})
    for at, (one, other) in enumerate(zip_longest(old, new, fillvalue=end)):
        a, b = one.record, other.record
        keys = [k for k in dict.fromkeys((*a, *b)) if a.get(k) != b.get(k) and k not in ONLY_SHOWN]
        if one == other or (keys == ["source"] and sources.is_shown(a["source"], b["source"])):
            continue
        yield f"  record {at} before: {_title(a)}"
        yield f"  record {at} after:  {_title(b)}"
        if a["step"] == b["step"]:
            for key in keys:
                yield from _values(key, a.get(key), b.get(key))
            if "source" in keys:
                yield from sources.difference(a["source"], b["source"])
        return
    yield "  only sources differ, as shown above"


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


class _Sources:
    """The sources of two records; each difference is shown once."""

    def __init__(self, before: _Code, after: _Code) -> None:
        self._codes = before, after
        self._shown: set[tuple[str, str]] = set()

    def is_shown(self, old: str, new: str) -> bool:
        return (old, new) in self._shown

    def difference(self, old: str, new: str) -> Iterator[str]:
        """The difference of two sources."""
        if self.is_shown(old, new):
            yield "    (the difference of the sources stands above)"
            return
        self._shown.add((old, new))
        a, b = (code.text(key).splitlines() for code, key in zip(self._codes, (old, new), strict=True))
        lines = list(difflib.unified_diff(a, b, f"{old}.cl", f"{new}.cl", lineterm="", n=2))
        yield from (f"    {line}" for line in lines[:MOST_LINES])
        if len(lines) > MOST_LINES:
            yield f"    ... and {len(lines) - MOST_LINES} lines more"
