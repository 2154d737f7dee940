"""Shows the plans of one model for many devices, none of which must be present.


    python -m benchmarks.plans_by_device MODEL [FOLDER] [--shape NAME:1x3x224x224]

FOLDER holds DeviceInfo JSON files (`opalite devices --json` prints them); tests/fixtures/devices by default.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from opalite.cli.shared_options import parse_shapes
from opalite.ir import DeviceInfo
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.tensor_type import TensorType
from opalite.plan import planner
from opalite.plan.program import LaunchStep, Program
from opalite.run.model.imported_model import ImportedModel
from opalite.run.model.model_inputs_outputs import example_shapes

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures" / "devices"


def plan(source: ImportedModel, shapes: dict[str, tuple[int, ...]], device: DeviceInfo) -> Program:
    """The Program of a session on `device`: in fp16 if halves pay (`fast_half`), else in fp32."""
    types = {a.name: TensorType(a.dtype, shapes[a.name]) for a in source.inputs if a.dtype is not None}
    graph = source.only_segment(types).graph
    source.reset()
    policy = PrecisionPolicy(Precision.FP16 if device.fast_half else Precision.FP32)
    return planner.plan(graph, planner.PlanOptions(policy), planner.Knowledge(device)).program


@click.command(help=__doc__)
@click.argument("model")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=FIXTURES)
@click.option("--shape", "given", multiple=True)
def main(model: str, folder: Path, given: tuple[str, ...]) -> None:
    source = ImportedModel(model)
    shapes = example_shapes(source.inputs) | parse_shapes(given)
    table = Table(box=None)
    for title in ("device", "generation", "storage", "in images", "launches", "arena MB", "images MB", "planned in"):
        table.add_column(title, justify="left" if title in ("device", "generation", "storage") else "right")
    table.add_column("kernels")
    for path in sorted(folder.glob("*.json")):
        device = DeviceInfo.from_json(path.read_text())
        started = time.perf_counter()
        program = plan(source, shapes, device)
        seconds = time.perf_counter() - started
        launches = [s for s in program.steps if isinstance(s, LaunchStep)]
        kernels = Counter(s.kernel for s in launches).most_common(4)
        images = sum(r.places[0].endswith("IMAGE2D") for r in program.placement if r.places)
        table.add_row(
            device.name,
            f"{device.family} {device.generation}",
            "half" if device.fast_half else "float",
            f"{images} of {len(program.placement)}",
            str(len(launches)),
            f"{program.arena_bytes / 1e6:.2f}",
            f"{program.memory.images / 1e6:.2f}",
            f"{seconds:.2f} s",
            ", ".join(f"{n} {k}" for k, n in kernels),
        )
    Console(width=None if Console().is_terminal else 200).print(table)


if __name__ == "__main__":
    main()
