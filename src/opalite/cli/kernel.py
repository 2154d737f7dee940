"""`opalite kernel`: writes, tests and times kernels of your own."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from .console import make_console, print_lines
from .described_device import find_info
from .json_report import json_options, report
from .shared_options import kernels_option, parse_shapes
from .watch_file import watch_file

if TYPE_CHECKING:
    from ..kernel.testing.check_kernels import Check
    from ..kernel.testing.time_rivals import Race, Rival

_SHOWN = 10  # failures of one kernel and case

_file = click.argument("file", type=click.Path(dir_okay=False))
_device = click.option("--device", default=None, help="Device id, index '0:1', cpu, gpu, vendor or part of a name.")
_watch = click.option("--watch", is_flag=True, help="Again at each change of the file's folder, until Ctrl-C.")


@click.group()
def command() -> None:
    """Write, test and time kernels and operators of your own (docs/add-a-kernel.md)."""


@command.command()
@click.argument("name")
@click.option("--for", "model", required=True, metavar="MODEL", help="The model that has the node.")
@click.option("--node", required=True, help="The node: its name, its output's or its operator's.")
@kernels_option
@click.option(
    "--to", "folder", default=".", type=click.Path(file_okay=False), help="Where the files go.", show_default=True
)
@click.option("--shape", "shapes", multiple=True, metavar="NAME:DIMS", help="Input shape, e.g. x:1x3x224x224.")
@_device
def new(name: str, model: str, node: str, folder: str, shapes: tuple[str, ...], device: str | None) -> None:
    """Write the skeleton NAME.py, NAME.cl and test_NAME.py for a node of MODEL.

    Of an operator that Opalite computes, it is a copy of the fastest kernel; of one that is unknown, an operator and a
    kernel to fill in. Its test passes as it is.
    """
    from ..kernel.find_node import find_node
    from ..kernel.write_skeleton import make_skeleton, write_skeleton

    info = find_info(device)
    skeleton = make_skeleton(name, find_node(model, node, info, parse_shapes(shapes)), info)
    paths = write_skeleton(skeleton, Path(folder))
    console = make_console()
    print_lines(console, [f"wrote    {path}" for path in paths])
    print_lines(console, [f"to do    {note}" for note in skeleton.notes])
    print_lines(console, [f"then     opalite kernel test {paths[0]}"])


@command.command()
@_file
@_device
@_watch
@json_options
def test(file: str, device: str | None, watch: bool) -> None:
    """Compare the kernels that FILE registers with the NumPy reference, in many sizes, types and layouts.

    Exits with 1 if a check fails, or a kernel refuses all of its cases.
    """
    if watch:
        watch_file(file, ["test", file, *_device_words(device)])
        return
    from ..kernel.testing.check_kernels import idle_kernels
    from ..kernel.testing.checks_in_child import check_file

    found = check_file(file, device)
    idle = idle_kernels(found.checks)
    if not report({**vars(found), "checks": [vars(c) for c in found.checks]}):
        console = make_console()
        console.print(f"device   {found.device}")
        _print_checks(console, found.checks)
        for kernel, why in idle.items():
            console.print(f"{kernel} refuses all of its cases ({why}): it was not tested", soft_wrap=True)
    if any(c.problem for c in found.checks) or idle:
        sys.exit(1)


@command.command()
@_file
@_device
@_watch
@click.option("--tune", is_flag=True, help="Each kernel at the fastest point of its space, not at its untuned one.")
@json_options
def bench(file: str, device: str | None, watch: bool, tune: bool) -> None:
    """Time the kernels that FILE registers, in turns with all others that compute the same nodes.

    A kernel's outputs are compared with the reference first; exits with 1 if one of FILE's is wrong.
    """
    if watch:
        watch_file(file, ["bench", file, *_device_words(device), *(["--tune"] if tune else [])])
        return
    from ..cl.runtime import find_runtime
    from ..ir.load_plugins import load_plugin
    from ..kernel.testing.time_rivals import time_module

    rt = find_runtime(device)
    races = list(time_module(load_plugin(file), rt, tune))
    if not report({"device": rt.info.title, "device_id": rt.info.id, "cases": list(map(_race_json, races))}):
        console = make_console()
        console.print(f"device   {rt.info.title}")
        for race in races:
            _print_race(console, race)
    if any(r.own and r.wrong for race in races for r in race.rivals):
        sys.exit(1)


def _device_words(device: str | None) -> list[str]:
    return [] if device is None else ["--device", device]


def _print_checks(console: Console, found: list[Check]) -> None:
    for (kernel, case), group in groupby(found, lambda c: (c.kernel, c.case)):
        checks = list(group)
        bad = [c for c in checks if c.problem]
        passed = len(checks) - len(bad) - sum(bool(c.refused) for c in checks)
        worst = max((c.error for c in checks if not c.problem), default=0.0)
        error = f", the largest error is {worst:.2g} of the allowed one" if passed and worst else ""
        console.print(f"{kernel:8} {case}: {passed} passed{error}", soft_wrap=True)
        refused = _merged((c.variation, c.refused) for c in checks if c.refused)
        print_lines(console, [f"  refused, {where}: {why}" for why, where in refused.items()])
        failed = _merged((c.variation, c.problem) for c in bad)
        print_lines(console, [f"  FAILED, {where}: {why}" for why, where in islice(failed.items(), _SHOWN)])
        if len(failed) > _SHOWN:
            console.print(f"  and {len(failed) - _SHOWN} more failed")


def _merged(told: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Variations by what is told of them, each sentence once."""
    found: dict[str, list[str]] = {}
    for variation, sentence in told:
        found.setdefault(sentence, []).append(variation)
    return {
        sentence: where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more"
        for sentence, where in found.items()
    }


def _print_race(console: Console, race: Race) -> None:
    console.print(f"case     {race.case}", soft_wrap=True)
    table = Table(box=None)
    for title in ("kernel", "layout", "us", "times best rival", "GB/s", "parameters"):
        table.add_column(title, justify="right" if title in ("us", "times best rival", "GB/s") else "left")
    best = race.best_rival
    timed = sorted((r for r in race.rivals if r.seconds), key=lambda r: r.seconds or 0.0)
    for r in timed:
        assert r.seconds is not None
        ratio = "" if best is None or best.seconds is None else f"{r.seconds / best.seconds:.2f}"
        mark = "* " if r.own else "  "
        rate = f"{race.bytes / r.seconds / 1e9:.1f}"
        table.add_row(
            mark + r.kernel, r.layout, f"{1e6 * r.seconds:.1f}", ratio, rate, r.params, style=None if r.own else "dim"
        )
    console.print(table)
    if best is None:
        console.print(f"no other kernel computes it; NumPy's reference takes {1e6 * race.reference_s:.1f} us")
    print_lines(console, [f"  {r.kernel}: {'WRONG, ' if r.wrong else ''}{_told(r)}" for r in race.rivals if r.problem])


def _told(rival: Rival) -> str:
    """The problem: all of it for a kernel of the file, the first line for others."""
    return rival.problem if rival.own else rival.problem.splitlines()[0]


def _race_json(race: Race) -> dict[str, object]:
    """A race as JSON-ready data: vars of its rivals, and the case as text."""
    return {**vars(race), "case": str(race.case), "rivals": [vars(r) for r in race.rivals]}
