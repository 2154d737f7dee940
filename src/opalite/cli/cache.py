"""`opalite cache`: lists and clears the cache, exports and imports tuning results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from .. import knobs
from ..cache.cache_folder import cache_entries, cache_folder
from ..cache.cache_folder import clear as clear_programs
from ..cache.hit_counters import Count, all_counts, forget_counts
from ..errors import InputError
from ..tune.database_files import database_path
from ..tune.database_keys import device_title
from ..tune.export_json import export_json, import_json
from ..tune.tuning_database import TuningDatabase, open_database
from .console import make_console
from .json_report import json_options, report
from .output_files import check_writable, write_text
from .tables import Column, print_table

_KINDS = {
    "program": "program binaries",
    "plan": "plans of models",
    "weight": "large constants of plans",
    "data": "names and digests of models' data files",
    "vain": "sizes that need no plan of their own",
    "bundle": "programs of bundles that are not trusted",
    "choice": "choices of precision",
    "pocl": "files of PoCL's, by process",
    "failed": "sources that did not compile",
}


@click.group()
def command() -> None:
    """List, clear, export or import program binaries and tuning."""


_COLUMNS = (
    Column("what", least=24),
    Column("entries", right=True),
    Column("MiB", right=True),
    Column("hits", right=True),
    Column("misses", right=True),
)


@command.command("ls")
@json_options
def list_() -> None:
    """List cached programs and plans by kind, tuning results by device, hits and misses.

    Hits and misses are those of all processes that ended since the cache was cleared. Weights are shared in memory.
    """
    record = _contents()
    if report(record):
        return
    console = make_console()
    state = "" if record["is_used"] else "; OPALITE_CACHE=0 keeps it out of use"
    console.print(f"cache folder {record['folder']}, at most {record['limit_mib']} MiB{state}", soft_wrap=True)
    rows = [
        (_KINDS[r["kind"]], str(r["entries"]), f"{r['bytes'] / 2**20:.1f}", _text(r["hits"]), _text(r["misses"]))
        for r in record["kinds"]
    ]
    rows += [(f"tuning of {t['title']}", str(t["entries"]), "", "", "") for t in record["tuning"]]
    for what, name in (("tuning in all", "tuning"), ("weights that sessions share", "weights")):
        rows.append((what, "", "", _text(record["lookups"][name]["hits"]), _text(record["lookups"][name]["misses"])))
    print_table(console, _COLUMNS, rows)


def _contents() -> dict[str, Any]:
    """The cache's contents and counts as data."""
    folder = cache_folder()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for unit in cache_entries(folder):
        counts[unit.kind] += 1
        sizes[unit.kind] += unit.nbytes
    asked = all_counts(folder)
    path = database_path()
    has_tuning = path is not None and path.is_file()
    devices = Counter(e.device for e in open_database().entries()) if has_tuning else Counter[str]()
    return {
        "folder": str(folder),
        "limit_mib": knobs.get("OPALITE_CACHE_MB"),
        "is_used": bool(knobs.get("OPALITE_CACHE")),
        "kinds": [
            {"kind": kind, "entries": counts[kind], "bytes": sizes[kind], **_lookups(asked.get(f"{kind}s"))}
            for kind in _KINDS
        ],
        "tuning": [{"device": name, "title": device_title(name), "entries": n} for name, n in sorted(devices.items())],
        "lookups": {name: _lookups(asked[name]) for name in ("tuning", "weights")},
    }


def _lookups(count: Count | None) -> dict[str, int | None]:
    return {"hits": None, "misses": None} if count is None else {"hits": count.hits, "misses": count.misses}


def _text(count: int | None) -> str:
    return "" if count is None else str(count)


@command.command("clear")
@click.option("--tuning", is_flag=True, help="Remove tuning results too, which may have taken hours to find.")
def clear(tuning: bool) -> None:
    """Remove programs and plans; they are made again when needed. Tuning results stay unless --tuning is given.

    Do not call this while another process builds programs.
    """
    freed = clear_programs(cache_folder())
    forget_counts(cache_folder())
    click.echo(f"freed {freed / 2**20:.1f} MiB of programs and plans")
    if tuning:
        path = database_path()
        forgotten = open_database().clear() if path is not None and path.is_file() else 0
        click.echo(f"forgot {forgotten} tuning results")


@command.command("export")
@click.argument("file", type=click.Path())
@click.option("--device", default=None, help="Only the results of this device, named as `opalite cache ls` names it.")
def export(file: str, device: str | None) -> None:
    """Write tuning results to FILE as JSON."""
    check_writable(file)
    database = _database()
    if device is not None:
        named = {signature: device_title(signature) for signature in {e.device for e in database.entries()}}
        matches = sorted(s for s, title in named.items() if device in (s, title))
        if not matches:
            listed = ", ".join(sorted(set(named.values()))) or "none"
            raise InputError(f"no tuning results of device {device!r} are kept; there are: {listed}")
        if len(matches) > 1:
            raise InputError(f"several drivers of {device!r} have tuning results; choose one: {'; '.join(matches)}")
        (device,) = matches
    write_text(file, export_json(database, device) + "\n")
    click.echo(f"wrote {sum(1 for _ in database.entries(device))} tuning results to {file}")


@command.command("import")
@click.argument("file", type=click.Path())
def import_(file: str) -> None:
    """Merge the tuning results in FILE, keeping the faster of two. They apply to their device and driver only."""
    database = _database()
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"tuning results {file} could not be read: {getattr(e, 'strerror', None) or e}") from e
    try:
        taken = import_json(database, text)
    except InputError as e:
        raise e.add_context(f"while reading {file}") from None
    click.echo(f"took {taken} tuning results from {file}")


def _database() -> TuningDatabase:
    if database_path() is None:
        raise InputError(
            "tuning results are kept in memory only (OPALITE_CACHE=0, or the cache folder cannot be written); give "
            "OPALITE_CACHE_DIR a folder to export or import them"
        )
    return open_database()
