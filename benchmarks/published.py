"""Compares estimates for phones that are not here with times that others published for the same chips.

    python -m benchmarks.published

The times are those of other engines on the GPU, tuned where the engine tunes, in halves. The estimate is that of
`opalite compare` in fp16, for a network of the same name built in code. Nobody ran Opalite on any of these chips. The
last lines have, by family, the geometric mean of estimate / time, and the factor within which two thirds of the rows
lie around it: `cost/adreno.toml` and `cost/mali.toml`. Whether such a factor says anything about rows that it was not
made of is shown by a test: it is fitted on the first, third, ... row and applied to the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

import click
from rich.console import Console
from rich.table import Table

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import read_description
from opalite.run.model.imported_model import ImportedModel
from opalite.run.report.device_plan import plan_for_device

from .models import build


@dataclass(frozen=True)
class Chip:
    """A chip by the description that is nearest, and its number of compute units where that differs."""

    description: str
    compute_units: int = 0

    def device(self) -> DeviceInfo:
        found = read_description(self.description)
        return replace(found, compute_units=self.compute_units or found.compute_units)


CHIPS = {
    "Snapdragon 855, Adreno 640": Chip("adreno_640"),
    "Snapdragon 625, Adreno 506": Chip("adreno_506"),
    "Kirin 980, Mali-G76 of 10 cores": Chip("mali_g76", 10),
    "Kirin 990, Mali-G76 of 16 cores": Chip("mali_g76", 16),
    "RK3399, Mali-T860 of 4 cores": Chip("mali_t860", 4),
}


@dataclass(frozen=True)
class Source:
    """A published table: the engine, its address, and milliseconds by chip and network."""

    engine: str
    address: str
    times: Mapping[str, Mapping[str, float]]


NETWORKS = ("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "resnet50")
SOURCES = (
    Source(
        "Paddle-Lite 2.11, OpenCL, tuned",
        "https://github.com/PaddlePaddle/Paddle-Lite/blob/develop/docs/performance/benchmark.md",
        {
            "Snapdragon 855, Adreno 640": dict(zip(NETWORKS, (6.41, 8.07, 9.30, 6.79, 29.70), strict=True)),
            "Snapdragon 625, Adreno 506": dict(zip(NETWORKS, (56.04, 43.65, 40.58, 19.12, 337.10), strict=True)),
            "Kirin 980, Mali-G76 of 10 cores": dict(zip(NETWORKS, (15.28, 15.83, 14.89, 7.69, 55.54), strict=True)),
            "Kirin 990, Mali-G76 of 16 cores": dict(zip(NETWORKS, (8.18, 9.07, 9.43, 6.59, 36.90), strict=True)),
            "RK3399, Mali-T860 of 4 cores": dict(zip(NETWORKS, (45.94, 37.67, 32.57, 18.63, 237.41), strict=True)),
        },
    ),
    Source(
        "TensorFlow Lite, GPU delegate, Pixel 4",
        "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/g3doc/performance/benchmarks.md",
        {"Snapdragon 855, Adreno 640": {"mobilenet_v1": 9.0}},
    ),
    Source(
        "ncnn, Vulkan, OnePlus 7T",
        "https://github.com/Tencent/ncnn/blob/master/benchmark/README.md",
        {
            "Snapdragon 855, Adreno 640": {
                "mobilenet_v1": 13.23,
                "mobilenet_v2": 11.06,
                "squeezenet1_1": 9.43,
                "resnet18": 25.31,
                "resnet50": 59.98,
                "vgg16": 170.15,
            }
        },
    ),
)


@click.command(help=__doc__)
def main() -> None:
    table = Table("chip", "network", "estimate, ms", "published, ms", "ratio", "engine", box=None)
    ratios: dict[str, list[float]] = {}
    estimates: dict[tuple[str, str], float] = {}
    models: dict[str, ImportedModel] = {}
    for source in SOURCES:
        for chip, times in source.times.items():
            device = CHIPS[chip].device()
            for name, ms in times.items():
                if name not in models:
                    models[name] = ImportedModel(build(name).SerializeToString(deterministic=True))
                if (chip, name) not in estimates:
                    estimates[chip, name] = 1e3 * plan_for_device(models[name], device, precision="fp16").seconds
                estimate = estimates[chip, name]
                ratios.setdefault(device.family, []).append(estimate / ms)
                table.add_row(chip, name, f"{estimate:.2f}", f"{ms:.2f}", f"{estimate / ms:.2f}", source.engine)
    console = Console(markup=False, width=130)
    console.print(table)
    for family, found in ratios.items():
        logs = [math.log(r) for r in found]
        console.print(f"{family}: estimate / time {_spread(logs)}")
        fitted = statistics.fmean(logs[::2])
        others = [r - fitted for r in logs[1::2]]
        console.print(f"  divided by the {math.exp(fitted):.2f} of every other row, the others: {_spread(others)}")
    for source in SOURCES:
        console.print(f"{source.engine}: {source.address}")


def _spread(logs: list[float]) -> str:
    mean, factor = math.exp(statistics.fmean(logs)), math.exp(statistics.pstdev(logs))
    return f"{mean:.2f}, two thirds within a factor of {factor:.2f}, {len(logs)} rows"


if __name__ == "__main__":
    main()
