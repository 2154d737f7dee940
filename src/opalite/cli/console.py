"""Console of the commands."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from .. import knobs
from ..cache.hit_counters import process_counts
from .json_report import wants_json

_UNLIMITED = 100_000  # columns where output goes to a file or a pipe, whose readers want whole values


def make_console(stderr: bool = False) -> Console:
    """A console without markup, since names of models and tensors may look like markup.

    With --json it writes to standard error: standard output is for JSON alone.
    """
    console = Console(markup=False, emoji=False, highlight=False, stderr=stderr or wants_json())
    if not console.is_terminal and not knobs.foreign("COLUMNS"):
        console.width = _UNLIMITED
    return console


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines that the terminal may wrap."""
    for line in lines:
        console.print(line, soft_wrap=True)


def print_caches(console: Console) -> None:
    """Print the cache hits and misses of this process."""
    counts = ", ".join(f"{name} {c.hits}/{c.misses}" for name, c in process_counts().items())
    console.print(f"caches   hits/misses: {counts}", soft_wrap=True)
