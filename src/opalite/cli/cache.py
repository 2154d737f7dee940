"""`opalite cache`: lists and clears the cache, exports and imports tuning results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
from rich.table import Table

from .. import knobs
from ..cache.cache_folder import cache_entries, cache_folder
from ..cache.cache_folder import clear as clear_programs
from ..cache.hit_counters import Count, all_counts, forget_counts
from ..errors import InputError
from ..tune.database_files import database_path
from ..tune.export_json import export_json, import_json
from ..tune.tuning_database import TuningDatabase, open_database
from .console import make_console
from .output_files import check_writable, write_text

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


@command.command("ls")
def list_() -> None:
    """List cached programs and plans by kind, tuning results by device, hits and misses.

    Hits and misses are those of all processes that ended since the cache was cleared. Weights are shared in memory.
    """
    folder = cache_folder()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for unit in cache_entries(folder):
        counts[unit.kind] += 1
        sizes[unit.kind] += unit.nbytes
    console = make_console()
    state = "" if knobs.get("OPALITE_CACHE") else "; OPALITE_CACHE=0 keeps it out of use"
    console.print(f"cache folder {folder}, at most {knobs.get('OPALITE_CACHE_MB')} MiB{state}", soft_wrap=True)
    table = Table(box=None)
    for title in ("what", "entries", "MiB", "hits", "misses"):
        table.add_column(title, justify="left" if title == "what" else "right")
    asked = all_counts(folder)
    for kind, words in _KINDS.items():
        table.add_row(words, str(counts[kind]), f"{sizes[kind] / 2**20:.1f}", *_cells(asked.get(f"{kind}s")))
    path = database_path()
    if path is not None and path.is_file():
        for device, entries in sorted(Counter(e.device for e in open_database().entries()).items()):
            table.add_row(f"tuning of {device}", str(entries), "")
    table.add_row("tuning in all", "", "", *_cells(asked["tuning"]))
    table.add_row("weights that sessions share", "", "", *_cells(asked["weights"]))
    console.print(table)


def _cells(count: Count | None) -> tuple[str, str]:
    return ("", "") if count is None else (str(count.hits), str(count.misses))


@command.command("clear")
@click.option("--tuning", is_flag=True, help="Forget tuning results too, which may have taken hours to find.")
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
    known = {e.device for e in database.entries()}
    if device is not None and device not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise InputError(f"no tuning results of device {device!r} are kept; there are: {listed}")
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
