"""The console that commands print on."""

from __future__ import annotations

from rich.console import Console

from .. import knobs

_WIDTH = 160  # columns where output goes to a file or a pipe, so that tables are not cut at 80


def make_console() -> Console:
    """A console that takes text as it is: names of models and tensors may hold what looks like markup."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal and not knobs.foreign("COLUMNS"):
        console.width = _WIDTH
    return console
