"""The report of `opalite verify --cumulative`: error, signal to noise and range of each value along the graph."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..errors import InputError
from ..ir.precision import Precision, PrecisionPolicy
from ..knobs import MEMORIES
from ..run.report.drift import Drift, DriftPoint, record_drift
from ..run.report.precision_steps import PrecisionStep, precision_steps
from .console import print_lines
from .json_report import report, to_json
from .output_files import write_text
from .tables import Column, print_table

Array = np.ndarray[Any, Any]
_SHOWN = 12
_SOURCES = 3
_AMPLIFIED = 2  # relative error of a value, as a multiple of what its node inherits and adds


def _record_other(recorded: Callable[..., Drift], text: str) -> Drift:
    """The drift of the configuration 'fp32' or 'fp16:image'."""
    precision, _, memory = text.partition(":")
    if memory and memory not in MEMORIES:
        raise InputError(f"--against {text}: memory {memory!r} is not known; choose {', '.join(MEMORIES)}")
    return recorded(precision=precision, memory=memory or "auto")


class Dump:
    """Writes values to a folder: an .npz file for each, and index.json. names: those to write, all if empty."""

    def __init__(self, folder: str, names: Sequence[str]) -> None:
        self._folder, self._names = Path(folder), set(names)
        self._files: dict[str, str] = {}
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as e:
            raise InputError(f"--dump {folder}: the folder cannot be made: {e.strerror or e}") from e

    def __call__(self, point: DriftPoint, got: Array, want: Array) -> None:
        if self._names and point.value not in self._names:
            return
        name = f"{point.index:04}_{re.sub(r'[^A-Za-z0-9.-]+', '_', point.value)[-80:]}.npz"
        np.savez(self._folder / name, device=got, float64=want)
        self._files[point.value] = name

    def finish(self) -> str:
        """Write the index; returns a line on what was written. InputError for names that no kernel stores."""
        if missing := sorted(self._names.difference(self._files)):
            raise InputError(
                f"no kernel stores the value {missing[0]!r}, which may be computed inside a fused one; "
                f"`opalite run MODEL --output NAME` computes it by itself"
            )
        write_text(self._folder / "index.json", to_json(self._files))
        return f"wrote {len(self._files)} values to {self._folder}"


def report_drift(
    console: Console,
    model: str,
    feeds: Mapping[str, Array],
    settings: Mapping[str, Any],
    *,
    allowed: float | None,
    against: str | None,
    with_steps: bool,
    dump: Dump | None,
    show_all: bool,
    assumptions: Sequence[str],
) -> None:
    """Record the drift and print it. Exits with 1 if an output is further off than allowed."""
    with console.status("running node by node"):
        recorded = partial(record_drift, model, feeds, device=settings["device"], allowed=allowed)
        found = recorded(precision=settings["precision"], memory=settings["memory"], on_value=dump)
        other = None if against is None else _record_other(recorded, against)
        steps = _steps(model, feeds, settings, console) if with_steps else []
    if dump is not None:
        console.print(dump.finish(), soft_wrap=True)
    record: dict[str, Any] = {"model": model, "drift": drift_record(found, steps)}
    if other is not None:
        record["against"] = drift_record(other, [])
    if not report(record):
        print_lines(console, assumptions)
        _print(console, found, other, show_all)
        _print_steps(console, steps)
    if not found.passed:
        sys.exit(1)


def drift_record(found: Drift, steps: Sequence[PrecisionStep]) -> dict[str, Any]:
    """The drift as JSON-ready data; `steps` from all nodes in half to all in float32."""
    start = found.start
    return {
        "device": found.device,
        "precision": found.precision,
        "memory": found.memory,
        "allowed": found.allowed,
        "passed": found.passed,
        "start": None if start is None else start.index,
        "sources": [p.index for p in found.sources(_SOURCES)],
        "points": [asdict(p) for p in found.points],
        "outputs": [asdict(o) | {"passed": o.passed} for o in found.outputs],
        "policies": [
            {
                "precision": s.policy.precision.value,
                "fp32": list(s.policy.fp32),
                "error": s.error,
                "ms": None if s.seconds is None else 1e3 * s.seconds,
                "bytes": s.nbytes,
            }
            for s in steps
        ],
    }


def _steps(
    model: str, feeds: Mapping[str, Array], settings: Mapping[str, Any], console: Console
) -> list[PrecisionStep]:
    asked = settings["precision"]
    if isinstance(asked, PrecisionPolicy):
        asked = asked.precision.value
    precision = Precision.FP16_FAST if asked == "fp16_fast" else Precision.FP16
    return precision_steps(model, feeds, device=settings["device"], memory=settings["memory"], precision=precision)


def _print(console: Console, found: Drift, other: Drift | None, show_all: bool) -> None:
    points = found.points
    if not show_all and len(points) > _SHOWN:
        shown = {p.index for p in found.sources(_SHOWN)} | ({found.start.index} if found.start else set())
        points = [p for p in points if p.index in shown]
    others = {} if other is None else {p.value: p for p in other.points}
    columns = [
        Column("#", right=True),
        Column("node", least=14),
        Column("operators", least=8, rank=2),
        Column("stored", rank=1),
        Column("SNR dB", right=True),
        *([] if other is None else [Column(f"{other.precision} dB", right=True)]),
        Column("error", right=True),
        Column("own", right=True),
        Column("min", right=True, rank=2),
        Column("max", right=True, rank=2),
        Column("near end", right=True, rank=4),
        Column("subnormal", right=True, rank=4),
        Column("kernel", rank=3),
    ]
    rows = []
    for p in points:
        beside = [] if other is None else [_decibels(others[p.value].snr_db) if p.value in others else ""]
        shares = (f"{100 * p.near_overflow:.2g} %", f"{100 * p.subnormal:.2g} %")
        name = p.nodes[0] if p.nodes else p.node
        row = (str(p.index), name, p.operators, p.stored, _decibels(p.snr_db), *beside)
        errors = (f"{p.relative:.1e}", f"{p.own:.1e}", f"{p.smallest:.3g}", f"{p.largest:.3g}")
        rows.append((*row, *errors, *shares, p.kernel))
    print_table(console, columns, rows)
    print_lines(console, _sentences(found, len(points)))


def _sentences(found: Drift, shown: int) -> list[str]:
    lines = [
        f"{len(found.points)} values of {found.precision} on {found.device} against float64; errors are shares of the "
        "largest value, own is what the node itself adds"
    ]
    if shown < len(found.points):
        lines.append(f"these {shown} add most; --all lists every value")
    start = found.start
    if start is None:
        lines.append(f"no value is off by more than {found.allowed:.2g}")
    else:
        lines.append(
            f"drift passes {found.allowed:.2g} first at {start.node} ('{start.value}'): {start.relative:.2g}, of which "
            f"it adds {start.own:.2g} and inherits {start.inherited:.2g}"
        )
        if start.relative > _AMPLIFIED * (start.own + start.inherited):
            lines.append(
                "this node enlarges the errors of its inputs, as a difference of close numbers does: the nodes before "
                "it are those to keep in fp32"
            )
    for what, share in (("lost", "are not finite"), ("near_overflow", "lie within a factor of 4 of half's largest")):
        own = [p for p in found.points if getattr(p, what)]
        if own:
            lines.append(f"numbers of {len(own)} values {share}, first at {own[0].node} ('{own[0].value}')")
    for o in found.outputs:
        state = "within" if o.passed else "beyond"
        lines.append(
            f"output '{o.name}': off by {o.relative:.2g}, {state} {o.allowed:.2g}; {_signal(o.snr_db, o.relative)}"
        )
    return lines


def _signal(value: float | None, relative: float) -> str:
    return "exact" if relative == 0 else f"SNR {_decibels(value)} dB"


def _decibels(value: float | None) -> str:
    return "exact" if value is None else f"{value:.1f}"


def _print_steps(console: Console, steps: Sequence[PrecisionStep]) -> None:
    if not steps:
        return
    columns = [Column("nodes in fp32", right=True), *(Column(t, right=True) for t in ("error", "est. ms", "MB"))]
    rows = []
    for s in steps:
        count = "all" if s.policy.precision is Precision.FP32 else str(len(s.policy.fp32))
        ms = "" if s.seconds is None else f"{1e3 * s.seconds:.3f}"
        rows.append((count, f"{s.error:.1e}", ms, "" if s.nbytes is None else f"{s.nbytes / 1e6:.2f}"))
    console.print()
    print_table(console, columns, rows)
    console.print("Errors of outputs against fp32; verify --write-policy FILE.json --tolerance SHARE writes a policy.")
