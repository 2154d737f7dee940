"""Times planning from ONNX bytes to Programs in warm processes, against another checkout.


    python -m benchmarks.planning ../shared/models/mobilenetv2_fp32.onnx --against ../before
    python -m benchmarks.planning mobilenet_v2 --profile 40                   # where the time goes
    python -m benchmarks.planning --stages FOLDER/*.onnx                      # by stage and device, once each

MODEL is a name (`python -m benchmarks.compare --list`) or a file. Each checkout has its own process, which plans the
model with its own package. The processes alternate and count processor time, so that other load affects both alike. No
cache is read or written. `import` is parsing and graph construction. A model of several segments evaluates the parts in
between there too, so only `plan` (passes, layout, emission) is compared.

With --stages, files are planned once for each of --devices in one process. Output: times of import, passes, layout,
weights, emission and memory planning, rule calls, the share of the budget (1 s for 1,000 nodes, 2 s for 3,000, without
weights), and times of other sizes if sizes are open. `python -m benchmarks.architectures FOLDER` exports sixty
architectures to plan.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, cast

import click

ROOT = Path(__file__).parents[1]
DEVICE = ROOT / "src" / "opalite" / "ir" / "device" / "descriptions" / "pocl_avx512.json"


class Planner:
    """A model that is planned repeatedly, with the package that this process imports."""

    def __init__(self, model: str, device: str, precision: str) -> None:
        import onnx
        from benchmarks.models import NAMES, build
        from benchmarks.models.feeds import random_feeds, stored_feeds
        from opalite.ir import DeviceInfo

        proto = build(model) if model in NAMES else onnx.load(model)
        self.feeds = (None if model in NAMES else stored_feeds(Path(model))) or random_feeds(proto)
        self.contents = proto.SerializeToString()
        self.device = DeviceInfo.from_json(Path(device).read_text())
        self.precision = precision

    def once(self) -> dict[str, float]:
        """Processor seconds of one import and of planning its segments, and the number of segments."""
        from benchmarks.programs.record import graphs_of, plan

        gc.collect()
        started = time.process_time()
        graphs = list(graphs_of(self.contents, self.feeds))
        imported = time.process_time()
        for graph in graphs:
            plan(graph, self.device, self.precision)
        return {"import": imported - started, "plan": time.process_time() - imported, "segments": len(graphs)}


class Worker:
    """A process that plans with the package of `checkout` on request."""

    def __init__(self, checkout: Path, model: str, device: Path, precision: str, cache: str) -> None:
        paths = os.pathsep.join([str(checkout / "src"), str(checkout)])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", model, str(device), precision],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "OPALITE_CACHE_DIR": cache},
            cwd=checkout,
            text=True,
        )

    def once(self) -> dict[str, float]:
        """The result of `Planner.once` in that process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException(f"planning failed in {self.process.args}")
        return cast(dict[str, float], json.loads(line))


@click.command(help=__doc__)
@click.argument("model", nargs=-1, required=True)
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="another checkout")
@click.option("--device", default=DEVICE, type=click.Path(exists=True, path_type=Path), help="a DeviceInfo as JSON")
@click.option("--precision", default="fp32", show_default=True)
@click.option("--rounds", default=9, show_default=True)
@click.option("--profile", default=0, help="print so many rows of a profile instead")
@click.option("--stages", is_flag=True, help="print what each stage takes instead")
@click.option("--devices", default="pocl_avx512,nvidia_h200,adreno_640", show_default=True, help="for --stages")
def main(
    model: tuple[str, ...],
    against: Path | None,
    device: Path,
    precision: str,
    rounds: int,
    profile: int,
    stages: bool,
    devices: str,
) -> None:
    if stages:
        from benchmarks.plan_stages import measure_all

        measure_all([Path(m) for m in model], [DEVICE.with_name(f"{d}.json") for d in devices.split(",")])
        return
    for name in model:
        name = str(Path(name).resolve()) if Path(name).is_file() else name
        if profile:
            _profile(Planner(name, str(device), precision), profile)
            continue
        checkouts = [ROOT] + ([against.resolve()] if against is not None else [])
        with TemporaryDirectory() as cache:
            workers = [Worker(c, name, device.resolve(), precision, cache) for c in checkouts]
            for worker in workers:
                worker.once()  # warms up
            times = [[worker.once() for worker in workers] for _ in range(rounds)]
            for worker in workers:
                assert worker.process.stdin is not None
                worker.process.stdin.close()
                worker.process.wait()
        _show(Path(name).stem, checkouts, times)


def _show(name: str, checkouts: list[Path], times: list[list[dict[str, float]]]) -> None:
    """A line per checkout, and the medians of the ratios within rounds."""
    for i, checkout in enumerate(checkouts):
        best = {k: 1e3 * min(t[i][k] for t in times) for k in ("import", "plan")}
        both = 1e3 * min(t[i]["import"] + t[i]["plan"] for t in times)
        print(f"{name}: import {best['import']:.0f} + plan {best['plan']:.0f} ms, together {both:.0f} ms  {checkout}")
    if len(checkouts) > 1:
        plan = median(a["plan"] / b["plan"] for a, b in times)
        if times[0][0]["segments"] == 1:
            together = median((a["import"] + a["plan"]) / (b["import"] + b["plan"]) for a, b in times)
            print(f"{name}: takes {together:.3f} of the other's time, plan alone {plan:.3f}")
        else:
            print(f"{name}: plan takes {plan:.3f} of the other's time ({times[0][0]['segments']:.0f} segments)")


def _profile(planner: Any, rows: int) -> None:
    import cProfile
    import pstats

    planner.once()
    print({k: round(v, 4) for k, v in planner.once().items()})
    profiler = cProfile.Profile()
    profiler.runcall(planner.once)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(rows).sort_stats("cumtime").print_stats(2 * rows)


def _serve(model: str, device: str, precision: str) -> None:
    planner = Planner(model, device, precision)
    for _ in sys.stdin:
        print(json.dumps(planner.once()), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        _serve(*sys.argv[2:])
    else:
        main()
