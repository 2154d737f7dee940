"""Tables of the commands: as wide as the terminal, whole in a pipe.

Where a terminal is too narrow, columns of the highest rank are left out first. Columns that may be cut or wrapped then
share what is left.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GAP = "  "


@dataclass(frozen=True)
class Column:
    """One column. rank: those of the highest rank are left out first, 0 never. least: the width to which cells may be
    cut in their middle, or wrapped; 0: never."""

    title: str
    right: bool = False
    rank: int = 0
    least: int = 0
    wraps: bool = False


def print_table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()
) -> None:
    """Print a table that fits the console. styles: of rows."""
    cells = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    for number, line in enumerate(table_lines(columns, cells, console.width)):
        style = styles[number - 1] if 0 < number <= len(styles) else ""
        for part in line:
            console.print(Text(part, style), soft_wrap=True)


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """The lines of the title and of each row, in at most `room` characters if the columns allow it."""
    texts = [[c.title for c in columns], *rows]
    natural = [max(cell_len(row[i]) for row in texts) for i in range(len(columns))]
    shown = _choose(columns, natural, room)
    widths = _share(columns, natural, shown, room - len(_GAP) * (len(shown) - 1))
    return [_row([(columns[i], row[i], widths[i]) for i in shown]) for row in texts]


def shorten(text: str, width: int) -> str:
    """`text` in `width` characters: its beginning and its end, which tell names apart."""
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def _least(column: Column, width: int) -> int:
    return min(width, max(column.least, cell_len(column.title))) if column.least else width


def _choose(columns: Sequence[Column], natural: Sequence[int], room: int) -> list[int]:
    """Numbers of the columns that fit, in order."""
    shown = [i for i in range(len(columns)) if natural[i]]
    while sum(_least(columns[i], natural[i]) + len(_GAP) for i in shown) - len(_GAP) > room:
        last = max(shown, key=lambda i: (columns[i].rank, i))
        if columns[last].rank == 0:
            break
        shown.remove(last)
    return shown


def _share(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], room: int) -> dict[int, int]:
    """A width for each column: columns that may shrink do so evenly, the widest first."""
    widths = {i: natural[i] for i in shown}
    while (over := sum(widths.values()) - room) > 0:
        able = [i for i in shown if widths[i] > _least(columns[i], natural[i])]
        if not able:
            break
        order = sorted(able, key=lambda i: -widths[i])
        widest = order[0]
        below = max(widths[order[1]] if len(order) > 1 else 0, _least(columns[widest], natural[widest]))
        widths[widest] -= min(over, max(widths[widest] - below, 1))
    return widths


def _row(cells: Sequence[tuple[Column, str, int]]) -> list[str]:
    """The lines of one row; several where a cell wraps."""
    parts = [
        textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""] if c.wraps else [shorten(text, width)]
        for c, text, width in cells
    ]
    lines = []
    for number in range(max(map(len, parts))):
        line = [
            _pad(own[number] if number < len(own) else "", width, c.right)
            for own, (c, _, width) in zip(parts, cells, strict=True)
        ]
        lines.append(_GAP.join(line).rstrip())
    return lines


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * max(width - cell_len(text), 0)
    return space + text if right else text + space
