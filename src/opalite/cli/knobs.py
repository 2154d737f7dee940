"""`opalite knobs`: lists the environment settings with their current values."""

from __future__ import annotations

import click
from rich.table import Table

from .. import knobs as settings
from ..errors import InputError
from .console import make_console


@click.command()
def command() -> None:
    """List every environment setting: name, current value, default, meaning."""
    table = Table(box=None)
    for title in ("setting", "value", "default", "meaning"):
        table.add_column(title, overflow="fold")
    for knob in settings.all_knobs():
        table.add_row(knob.name, _value(knob), "" if knob.default is None else str(knob.default), knob.help)
    make_console().print(table)


def _value(knob: settings.Knob) -> str:
    try:
        value = knob.read()
    except InputError:
        return f"{settings.foreign(knob.name)} (not valid)"
    return "" if value is None else str(value)
