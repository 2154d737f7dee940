"""Shows the share of a model's work outside images on a device with textures, which need not be present.


    python -m benchmarks.image_coverage MODEL ... [--device adreno_640] [--precision fp16]

MODEL is a name (`python -m benchmarks.compare --list`), a file, or a folder of .onnx files. A launch counts as outside
if its kernel neither reads nor writes images, nor reads constants as texels of a buffer; layout casts are counted
separately. FLOPs and bytes are those of the operators, without casts, in equal parts for each launch of a node. Views,
such as a Reshape's, are no launches and do not count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from opalite.ir.device.device_descriptions import read_description
from opalite.kernels import kernels_for
from opalite.kernels.data_movement.layout_cast import PlaceCastStream
from opalite.plan.program import LaunchStep, Program, SlotArg

from .programs.__main__ import find_models
from .programs.record import graphs_of, load, plan


@dataclass
class Share:
    """Launches, casts that change the layout, FLOPs and bytes; `outside` those that touch no image."""

    launches: int = 0
    casts: int = 0
    outside: int = 0
    flops: float = 0.0
    flops_outside: float = 0.0
    nbytes: float = 0.0
    bytes_outside: float = 0.0

    def add(self, program: Program) -> None:
        """Count the nodes of a plan."""
        texels = Counter(s.node for s in program.steps if isinstance(s, LaunchStep) and _reads_texels(program, s))
        for r in program.placement:
            self.launches += r.launches
            if r.op == "PlaceCast":
                self.casts += r.launches if r.kernel != PlaceCastStream.__name__ else 0
                continue
            if not r.launches:
                continue
            self.flops += r.flops
            self.nbytes += r.nbytes
            on_images = any(kernel.name == r.kernel and kernel.images_only for kernel in kernels_for(r.op))
            if not on_images and not any(place.endswith("IMAGE2D") for place in r.places):
                outside = r.launches - texels[f"{r.origin} node {r.name!r}"]
                self.outside += outside
                self.flops_outside += r.flops * outside / r.launches
                self.bytes_outside += r.nbytes * outside / r.launches


def _reads_texels(program: Program, step: LaunchStep) -> bool:
    """Whether a launch reads constants as texels, of their buffer or of an image."""
    held = (program.slots[a.slot].image for a in step.args if isinstance(a, SlotArg))
    return any(held) or "-DTEXELS=1" in program.sources[step.source].options


@click.command(help=__doc__)
@click.argument("models", nargs=-1, required=True)
@click.option("--device", "device_name", default="adreno_640", show_default=True, help="the name of a description")
@click.option("--precision", default="fp16", show_default=True)
def main(models: tuple[str, ...], device_name: str, precision: str) -> None:
    device = read_description(device_name)
    table = Table(box=None)
    for title in ("model", "launches", "casts", "outside", "FLOPs outside", "bytes outside"):
        table.add_column(title, justify="left" if title == "model" else "right")
    for name in find_models(models):
        proto, feeds = load(name)
        share = Share()
        for graph in graphs_of(proto.SerializeToString(deterministic=True), feeds):
            share.add(plan(graph, device, precision))
        table.add_row(
            Path(name).stem,
            str(share.launches),
            str(share.casts),
            str(share.outside),
            f"{_percent(share.flops_outside, share.flops)} %",
            f"{_percent(share.bytes_outside, share.nbytes)} %",
        )
    Console(width=None if Console().is_terminal else 120).print(table)


def _percent(part: float, whole: float) -> int:
    return round(100 * part / whole) if whole else 0


if __name__ == "__main__":
    main()
