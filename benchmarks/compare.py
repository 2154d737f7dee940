"""Measures engines against each other on well-known models or on files.

    python -m benchmarks.compare mobilenet_v2 resnet18 --engines opalite,onnxruntime,openvino --threads 2
    python -m benchmarks.compare model.onnx --json results.json --plot results.png
    python -m benchmarks.compare model.tflite --engines litert,opalite

A JSON file that is there already keeps the models that are not measured now, so that a long list can be measured in
several calls; `python -m benchmarks.table results.json` prints it as one table. The first engine is the baseline of the
ratios. How it measures: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

import onnx
from opalite.bench.compare import Comparison, Measured, Plan, compare
from opalite.bench.report import as_json, milliseconds
from opalite.errors import OpaliteError
from opalite.importer import load_model

from .models import NAMES, build
from .models.feeds import declared_feeds, random_feeds, stored_feeds
from .table import merge

COLUMNS = ("engine", "one run", "ratio", "slices", "load", "first", "differs")


def parse_options() -> argparse.Namespace:
    """The command line."""
    defaults = Plan()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names (--list) or files, such as .onnx and .tflite")
    parser.add_argument("--list", action="store_true", help="print the names of the built-in models and stop")
    parser.add_argument("--engines", default="opalite,onnxruntime", help="names or dotted modules, with commas")
    parser.add_argument("--set", action="append", default=[], metavar="ENGINE.KEY=VALUE", help="an engine's option")
    parser.add_argument("--threads", type=int, default=defaults.threads)
    parser.add_argument("--rounds", type=int, default=defaults.rounds)
    parser.add_argument("--slice", type=float, default=defaults.slice_s, help="seconds of a slice")
    parser.add_argument("--batch", type=int, default=1, help="of built-in models")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and of the order of slices")
    parser.add_argument("--json", type=Path, help="file for everything that was measured; others' records in it stay")
    parser.add_argument("--plot", type=Path, help="PNG of the ratios; needs matplotlib")
    return parser.parse_args()


def table_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row of texts per engine under COLUMNS: milliseconds, and ratios to the first engine (above 1: slower).

    Each is a median with its quartiles.
    """
    return [_row(comparison, m) for m in comparison.engines]


def _row(comparison: Comparison, m: Measured) -> tuple[str, ...]:
    run, ratio = m.run_s, comparison.ratio(m, comparison.engines[0])
    is_baseline = m is comparison.engines[0]
    return (
        m.engine,
        f"{milliseconds(run.median)} ({milliseconds(run.low)}..{milliseconds(run.high)})",
        "1" if is_baseline else "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f}..{ratio.high:.2f})",
        f"{len(m.accepted)}/{len(m.slices)}",
        milliseconds(m.load_s),
        milliseconds(m.first_s),
        "" if is_baseline else f"{m.difference:.0e}",
    )


def engine_options(items: list[str]) -> dict[str, dict[str, str]]:
    """`opalite.device=gpu` as {"opalite": {"device": "gpu"}}, with its precision; engine names may contain dots."""
    options: dict[str, dict[str, str]] = {"opalite": {"precision": "fp32"}}
    for item in items:
        left, equals, value = item.partition("=")
        engine, dot, key = left.rpartition(".")
        if not equals or not dot:
            raise SystemExit(f"--set {item}: write ENGINE.KEY=VALUE, for example opalite.device=gpu")
        options.setdefault(engine, {})[key] = value
    return options


def measure(name: str, options: argparse.Namespace, console: Console) -> Comparison:
    """One model by all engines."""
    plan = Plan(options.threads, options.rounds, options.slice, seed=options.seed)
    with TemporaryDirectory() as folder, console.status(name) as status:
        if name in NAMES:
            model, path = build(name, options.batch), Path(folder) / f"{name}.onnx"
            onnx.save(model, path)
        else:
            model, path = None, Path(name)
        feeds = stored_feeds(path)
        if not feeds and model is None and path.suffix != ".onnx":
            feeds = declared_feeds(load_model(path).inputs, options.seed)
        elif not feeds:
            feeds = random_feeds(model or onnx.load(path, load_external_data=False), seed=options.seed)
        engines = options.engines.split(",")
        extra = engine_options(options.set)
        return compare(path, feeds, engines, plan, extra, lambda line: status.update(f"{name}: {line}"))


def show(comparison: Comparison, console: Console) -> None:
    """The table of one model."""
    first = comparison.engines[0].engine
    title = f"{Path(comparison.model).stem}: milliseconds and ratios to {first}, {comparison.plan.threads} threads"
    table = Table(title=title, box=None, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "engine" else "right", no_wrap=True)
    for row in table_rows(comparison):
        table.add_row(*row)
    console.print(table)
    for m in comparison.engines:
        console.print(f" {m.engine} {m.version} on {m.device}", markup=False, highlight=False)
    for engine, reason in comparison.failed.items():
        console.print(f"{engine} is missing: {reason}", markup=False)


def main() -> int:
    """Exit status 1 if a model could not be measured by any engine."""
    options = parse_options()
    if options.list or not options.models:
        print("\n".join(NAMES))
        return 0
    console = Console()
    records: list[dict[str, Any]] = []
    status = 0
    for name in options.models:
        if name not in NAMES and not Path(name).is_file():
            raise SystemExit(f"{name} is neither a file nor a built-in model; --list names those")
        try:
            comparison = measure(name, options, console)
        except OpaliteError as e:
            console.print(f"{name}: {e}", markup=False)
            status = 1
            continue
        show(comparison, console)
        records.append(as_json(comparison))
        if options.json is not None:
            merge(options.json, records)
    if options.plot is not None and records:
        from .plot import plot

        plot(records, options.plot)
    return status


if __name__ == "__main__":
    sys.exit(main())
