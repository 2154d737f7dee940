"""Compares the cost model's estimates of whole models with measured device times, on a device that is here.

    python -m benchmarks.prediction MODEL... [--device gpu] [--precision fp16] [--least 150]

The estimate is that of `opalite compare`: the sum over all nodes of a plan. The time is that of the launches of
profiled runs, without transfers, in the median of runs, or with --least in the shortest of so many, on a machine that
others use too; where a strategy joins launches, they are profiled one by one.
The last line has the geometric mean of estimate / time, and the factor within which two thirds of the models lie around
it.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import opalite
from opalite.cli.described_device import find_info
from opalite.run.report.device_plan import plan_for_device
from opalite.tune.measure_candidates import random_array

SETTLE_S = 120.0


def measured_seconds(model: str, device: str | None, precision: str, least: int) -> float:
    """Device seconds of a run in the example shapes, by profiled launches."""
    session = opalite.InferenceSession(model, device=device, precision=precision)
    rng = np.random.default_rng(0)
    shapes = {a.name: tuple(d if isinstance(d, int) else 1 for d in a.shape) for a in session.get_inputs()}
    plan = plan_for_device(model, session.device, precision=precision)
    feeds = {
        a.name: random_array(a.dtype, tuple(plan.assumed.get(a.name, shapes[a.name])), rng)
        for a in session.get_inputs()
        if a.dtype is not None
    }
    session.run(None, feeds)
    session.settle(SETTLE_S)
    if least:
        return min(session.profile(feeds, iterations=1).device_s for _ in range(least))
    return session.profile(feeds, iterations=20).device_s


@click.command(help=__doc__)
@click.argument("models", nargs=-1, required=True)
@click.option("--device", default=None, help="as of InferenceSession")
@click.option("--precision", default=None, help="fp32 or fp16; by default fp16 where halves are faster")
@click.option("--least", default=0, help="take the shortest of so many runs in place of the median of 20")
def main(models: tuple[str, ...], device: str | None, precision: str | None, least: int) -> None:
    info = find_info(device)
    used = precision or ("fp16" if info.fast_half else "fp32")
    table = Table("model", "estimate, ms", "measured, ms", "ratio", box=None)
    ratios = []
    for model in models:
        try:
            estimate = plan_for_device(model, info, precision=used).seconds
            seconds = measured_seconds(model, device, used, least)
        except opalite.OpaliteError as e:
            table.add_row(Path(model).stem, "", "", str(e)[:60])
            continue
        ratios.append(estimate / seconds)
        table.add_row(Path(model).stem, f"{1e3 * estimate:.3f}", f"{1e3 * seconds:.3f}", f"{ratios[-1]:.2f}")
    console = Console(markup=False, width=100)
    console.print(table)
    if ratios:
        logs = [math.log(r) for r in ratios]
        mean, spread = statistics.fmean(logs), statistics.pstdev(logs)
        console.print(
            f"{info.name}, {used}: estimate / time {math.exp(mean):.2f}, two thirds within a factor of "
            f"{math.exp(spread):.2f}, {len(ratios)} models"
        )


if __name__ == "__main__":
    main()
