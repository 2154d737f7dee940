"""The tuning database: measured times by device, kernel and sizes, in one sqlite file.

A lookup is exact: device, driver, kernel digest, layouts and sizes must agree. `nearest` finds the entry of the closest
sizes for the same kernel; its callers report that it is one.

    entry    the best parameters of a kernel on a node: read by the planner
    trial    every measured time: an interrupted or a larger search reuses it
    verdict  for a graph, whether the tuned or the untuned program was faster

Each row ends with a checksum of the other columns, because a flipped bit in a number would select another kernel.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..cache.hit_counters import count_lookup
from .database_files import database_path
from .database_keys import size_distance
from .tuning_levels import Level

FORMAT = 1
_TABLES = f"{FORMAT}, with sums"  # the format of the file
_log = logging.getLogger(__name__)
_SCHEMA = """
create table if not exists meta (key text primary key, value text);
create table if not exists entry (
  device text not null, kernel text not null, binding text not null, node text not null,
  params text not null, grp text not null, seconds real not null, default_seconds real not null,
  level integer not null, measured_at real not null, sum text not null,
  primary key (device, kernel, binding, node)
);
create table if not exists trial (
  device text not null, node text not null, kernel text not null, binding text not null,
  params text not null, grp text not null, seconds real, sum text not null,
  primary key (device, node, kernel, binding, params, grp)
);
create table if not exists verdict (
  device text not null, graph text not null, tuned integer not null, untuned_seconds real not null,
  tuned_seconds real not null, level integer not null, measured_at real not null, sum text not null,
  primary key (device, graph)
);
"""
_COLUMNS = "device, kernel, binding, node, params, grp, seconds, default_seconds, level, measured_at, sum"

Key = tuple[str, str, str, str]
"""Kernel digest, binding, parameters and work-group of a trial, as stored."""
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """The best parameters of a kernel on a node, their time, and that of the node's untuned choice.

    level: NONE if the budget ended the search.
    """

    device: str
    kernel: str
    binding: str
    node: str
    params: Mapping[str, Any]
    group: tuple[int, ...] | None
    seconds: float
    default_seconds: float
    level: Level
    measured_at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Verdict:
    """The comparison of a graph's tuned and untuned programs: median seconds, and whether tuning is used.

    Both times are 0 if nothing was compared: the programs are equal, or (tuned = False) one could not run.
    """

    tuned: bool
    untuned_s: float
    tuned_s: float
    level: Level

    def __str__(self) -> str:
        if not self.tuned_s:
            same = "nothing faster than the untuned choice was found"
            return same if self.tuned else "tuned and untuned could not be compared: tuning is set aside"
        times = f"in turn {1e3 * self.untuned_s:.3f} ms untuned and {1e3 * self.tuned_s:.3f} ms tuned"
        if not self.tuned:
            return f"the whole graph takes {times}: tuning is not faster in most rounds and is set aside"
        return f"the whole graph takes {times}: {self.untuned_s / self.tuned_s:.2f} times as fast"


_opened: dict[Path | None, TuningDatabase] = {}
_opening = threading.Lock()


def open_database() -> TuningDatabase:
    """The user's database, opened once in a process."""
    path = database_path()
    with _opening:
        if path not in _opened:
            _opened[path] = TuningDatabase(path)
        return _opened[path]


class _ForeignFormatError(Exception):
    """Raised if the file was written by another version."""


class TuningDatabase:
    """One sqlite file, safe for several processes; in memory if the path is None.

    A damaged file or one of another format is replaced by an empty one. If no file can be written, entries stay in
    memory; losing them never stops a session.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.hits = 0
        self.misses = 0
        self._lock = threading.RLock()
        self._db = self._open()
        # The first write creates the file; lookups change no state that cached plans depend on.
        self._waits = path is not None and not path.exists()

    # Entries

    def find(self, device: str, kernel: str, binding: str, node: str) -> Entry | None:
        """The exact entry, or None."""
        query = f"select {_COLUMNS} from entry where device=? and kernel=? and binding=? and node=?"
        rows = self._rows(query, (device, kernel, binding, node))
        count_lookup("tuning", bool(rows))
        if not rows:
            self.misses += 1
            return None
        self.hits += 1
        return _entry(rows[0])

    def put(self, entry: Entry) -> None:
        """Stores an entry, replacing an older one of the same key."""
        e = entry
        params, group = settings_text(e.params, e.group)
        self._insert(
            "entry",
            (
                *(e.device, e.kernel, e.binding, e.node, params, group),
                *(e.seconds, e.default_seconds, int(e.level), e.measured_at),
            ),
        )

    def entries(self, device: str | None = None) -> Iterator[Entry]:
        """Every entry, or those of one device."""
        where, args = ("", ()) if device is None else (" where device=?", (device,))
        return map(_entry, self._rows(f"select {_COLUMNS} from entry{where} order by device, kernel, node", args))

    def devices(self) -> list[str]:
        """The devices that have entries."""

        def read() -> list[str]:
            return [name for (name,) in self._db.execute("select distinct device from entry order by device")]

        self._enter_file()
        return self._guarded(read, [])

    def nearest(self, device: str, kernel: str, binding: str, node: str) -> Entry | None:
        """The entry of the same kernel and layouts whose node differs least from `node`, in sizes alone."""
        rows = self._rows(
            f"select {_COLUMNS} from entry where device=? and kernel=? and binding=?", (device, kernel, binding)
        )
        found = [(size_distance(e.node, node), e.node, e) for e in map(_entry, rows)]
        near = [f for f in found if f[0] < math.inf]
        return min(near)[2] if near else None

    # Trials

    def trials(self, device: str, node: str) -> dict[Key, float | None]:
        """Seconds of every trial of a node: infinite for wrong outputs, None for failures."""
        query = "select * from trial where device=? and node=?"
        return {(k, b, p, g): s for _, _, k, b, p, g, s, *_ in self._rows(query, (device, node))}

    def put_trial(self, device: str, node: str, key: Key, seconds: float | None) -> None:
        """Stores the time of one trial."""
        kernel, binding, params, group = key
        self._insert("trial", (device, node, kernel, binding, params, group, seconds))

    # Verdicts

    def verdict(self, device: str, graph: str) -> Verdict | None:
        """The verdict on a graph, or None."""
        query = "select * from verdict where device=? and graph=?"
        for _, _, tuned, untuned_s, tuned_s, level, *_ in self._rows(query, (device, graph)):
            return Verdict(bool(tuned), untuned_s, tuned_s, Level(level))
        return None

    def put_verdict(self, device: str, graph: str, verdict: Verdict) -> None:
        """Stores a verdict, replacing an older one."""
        v = verdict
        self._insert("verdict", (device, graph, int(v.tuned), v.untuned_s, v.tuned_s, int(v.level), time.time()))

    # The whole

    def clear(self) -> int:
        """Deletes everything; returns the number of entries."""
        count = len(self._rows(f"select {_COLUMNS} from entry", ()))
        for table in ("entry", "trial", "verdict"):
            self._write(f"delete from {table}", ())
        return count

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def _open(self, writing: bool = False) -> sqlite3.Connection:
        if self.path is None or not (writing or self.path.exists()):
            return _connect(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return _connect(str(self.path))
        except (sqlite3.OperationalError, OSError) as e:  # no permission, disk full, or locked: the file may be intact
            _log.warning("tuning is not kept, for %s cannot be opened: %s", self.path, e)
            return _connect(":memory:")
        except (sqlite3.DatabaseError, _ForeignFormatError) as e:
            return self._replaced(e)

    def _replaced(self, reason: Exception) -> sqlite3.Connection:
        assert self.path is not None
        _log.warning("the tuning database %s is replaced by an empty one: %s", self.path, reason)
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        try:
            return _connect(str(self.path))
        except (sqlite3.Error, _ForeignFormatError):
            return _connect(":memory:")

    def _rows(self, query: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Whole rows of a table, checksums last."""

        def read() -> list[tuple[Any, ...]]:
            found = self._db.execute(query, args).fetchall()
            if not all(row[-1] == _sum(row[:-1]) for row in found):
                raise sqlite3.DatabaseError("a row is damaged")
            return found

        self._enter_file()
        return self._guarded(read, [])

    def _insert(self, table: str, row: tuple[Any, ...]) -> None:
        places = ",".join("?" * (len(row) + 1))
        self._write(f"insert or replace into {table} values ({places})", (*row, _sum(row)))

    def _write(self, statement: str, args: tuple[Any, ...]) -> None:
        def write() -> None:
            with self._db:
                self._db.execute(statement, args)

        self._enter_file(writing=True)
        self._guarded(write, None)

    def _enter_file(self, writing: bool = False) -> None:
        """Switches from memory to the file if it exists by now, or creates it."""
        with self._lock:
            if self._waits and self.path is not None and (writing or self.path.exists()):
                self._waits = False
                self._db.close()
                self._db = self._open(writing)

    def _guarded(self, work: Callable[[], T], otherwise: T) -> T:
        """Runs `work`; a damaged file is replaced and counts as empty; a busy or full file gives `otherwise`."""
        with self._lock:
            try:
                return work()
            except sqlite3.OperationalError as e:
                _log.warning("the tuning database %s did not answer: %s", self.path, e)
            except sqlite3.DatabaseError as e:
                if type(e) is not sqlite3.DatabaseError:  # subclasses are errors of the statement
                    raise
                self._db.close()
                self._db = self._replaced(e) if self.path is not None else _connect(":memory:")
        return otherwise


def _connect(target: str) -> sqlite3.Connection:
    db = sqlite3.connect(target, timeout=20, check_same_thread=False)
    try:
        db.execute("pragma synchronous=off")  # a machine crash may lose the file, which is only a cache
        db.executescript(_SCHEMA)
        db.execute("insert or ignore into meta values ('format', ?)", (_TABLES,))
        db.commit()
        (found,) = db.execute("select value from meta where key='format'").fetchone()
        if found != _TABLES:
            raise _ForeignFormatError(f"it has format {found}, expected {_TABLES}")
    except BaseException:
        db.close()
        raise
    return db


def _sum(row: tuple[Any, ...]) -> str:
    # Numbers as sqlite returns them from REAL columns: integers and NumPy numbers as floats.
    row = tuple(float(v) if isinstance(v, int | float) else v for v in row)
    return hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def settings_text(params: Mapping[str, Any], group: tuple[int, ...] | None) -> tuple[str, str]:
    """Parameters and work-group as the database stores them."""
    return json.dumps(dict(params), sort_keys=True), "" if group is None else json.dumps(list(group))


def _entry(row: tuple[Any, ...]) -> Entry:
    device, kernel, binding, node, params, group, seconds, default_seconds, level, when, _ = row
    shape = tuple(json.loads(group)) if group else None
    return Entry(device, kernel, binding, node, json.loads(params), shape, seconds, default_seconds, Level(level), when)
