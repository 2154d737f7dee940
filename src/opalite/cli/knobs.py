"""`opalite knobs`: lists the environment settings with their current values."""

from __future__ import annotations

import click

from .. import knobs as settings
from ..errors import InputError
from .console import make_console
from .json_report import json_option, report
from .tables import Column, print_table

_COLUMNS = (
    Column("setting"),
    Column("value", least=5, wraps=True),
    Column("default", rank=1),
    Column("meaning", least=24, wraps=True),
)


@click.command()
@json_option()
def command() -> None:
    """List every environment setting: name, current value, default, meaning."""
    knobs = list(settings.all_knobs())
    if report({"settings": [_as_data(k) for k in knobs]}):
        return
    rows = [(k.name, _value(k), "" if k.default is None else str(k.default), k.help) for k in knobs]
    print_table(make_console(), _COLUMNS, rows)


def _as_data(knob: settings.Knob) -> dict[str, object]:
    try:
        value, is_valid = knob.read(), True
    except InputError:
        value, is_valid = settings.foreign(knob.name), False
    return {"name": knob.name, "value": value, "default": knob.default, "is_valid": is_valid, "meaning": knob.help}


def _value(knob: settings.Knob) -> str:
    raw = _as_data(knob)
    return f"{raw['value']} (not valid)" if not raw["is_valid"] else "" if raw["value"] is None else str(raw["value"])
