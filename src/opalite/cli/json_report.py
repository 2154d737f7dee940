"""--json and -o of the commands: the same report as JSON, on standard output or in a file (docs/json.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from .output_files import check_writable, write_text
from .shared_options import F, join, option_value, shared_option


def json_option(what: str = "Print the report as JSON, and nothing else, on standard output.") -> Callable[[F], F]:
    """--json. what: its help."""
    return shared_option("--json", "as_json", is_flag=True, help=what)


def _check(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    check_writable(value)
    return value


report_file_option = shared_option(
    "-o", "report_file", default=None, metavar="FILE.json", checked=_check, help="Write the report as JSON to a file."
)
json_options = join(json_option(), report_file_option)


def wants_json() -> bool:
    """Whether the running command prints JSON alone on standard output."""
    return bool(option_value("as_json", False))


def report(record: Mapping[str, Any]) -> bool:
    """Write `record` where --json and -o ask for it; returns whether nothing else is to be printed."""
    path = option_value("report_file")
    if not wants_json() and path is None:
        return False
    text = to_json({**_head(), **record})
    if path is not None:
        write_text(path, text)
        click.echo(f"wrote {path}", err=True)
    if wants_json():
        click.echo(text, nl=False)
    return wants_json()


def to_json(record: Any) -> str:
    """JSON of one report: keys in order, null for numbers that are not finite."""
    return json.dumps(_plain(record), indent=1, allow_nan=False) + "\n"


def _head() -> dict[str, str]:
    """The keys that every report begins with."""
    from .. import __version__

    context: click.Context | None = click.get_current_context()
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return {"command": " ".join(names) or str(click.get_current_context().info_name), "version": __version__}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        value = value.tolist()
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(v) for v in value]
    return str(value)
