"""Shows that a change of the code changes no compiled program, or which ones and how.

    python -m benchmarks.programs --against ../before/src                   # this checkout beside another
    python -m benchmarks.programs --keep /tmp/before                        # record this checkout ...
    python -m benchmarks.programs --against /tmp/before mobilenet_v2        # ... and compare with it later

MODEL is a name (`python -m benchmarks.compare --list`), a file, or a folder of .onnx files; default: all built-in ones.
Each is planned for some described devices, none of which needs to be here, and for each precision. A
record holds launches (source, options, grid, work-group, arguments), copies, the memory plan and the sources. Names of
nodes and kernels are shown but not compared. Exit status 1 if programs differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from opalite.ir.device.device_descriptions import FOLDER

from ..models import NAMES
from .difference import compare
from .record import Job

ROOT = Path(__file__).parents[2]
DEVICES = "pocl_avx512,nvidia_h200,adreno_640,mali_g76,intel_uhd_630,amd_rx_6800"


@click.command(help=__doc__)
@click.argument("model", nargs=-1)
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="src folder, or record")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="folder that the record is written to")
@click.option("--devices", default=DEVICES, show_default=True, help="names of descriptions, or .json files")
@click.option("--precisions", default="fp32,fp16", show_default=True)
@click.option("--jobs", default=2, show_default=True, help="processes at once")
def main(
    model: tuple[str, ...], against: Path | None, keep: Path | None, devices: str, precisions: str, jobs: int
) -> None:
    if against is None and keep is None:
        raise click.UsageError("nothing to do: give --against another checkout's src or a record, or --keep FOLDER")
    if keep is not None and keep.is_dir() and any(keep.iterdir()):
        raise click.UsageError(f"{keep} holds something already; name a new folder")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        after = keep or scratch / "after"
        job = Job(find_models(model), _devices(devices), precisions.split(","), str(after))
        _run(job, ROOT / "src", jobs, scratch)
        if against is None:
            return
        before = against
        if (against / "opalite").is_dir():
            before = scratch / "before"
            _run(replace(job, folder=str(before)), against, jobs, scratch)
        found = compare(before, after)
    print(*found.lines, sep="\n")
    print(found.summary)
    sys.exit(1 if found.differing else 0)


def find_models(given: Sequence[str]) -> list[str]:
    """Names of built-in models and paths of files that `given` names, in folders too; by default all built-in ones."""
    found: list[str] = []
    for name in given or NAMES:
        path = Path(name)
        if name not in NAMES and not path.exists():
            raise click.UsageError(f"{name} is neither a file, a folder nor a built-in model: {', '.join(NAMES)}")
        files = sorted(path.resolve().glob("*.onnx")) if path.is_dir() else [path.resolve()]
        found += [name] if name in NAMES else map(str, files)
    return found


def _devices(given: str) -> list[str]:
    paths = [Path(n) if n.endswith(".json") else FOLDER / f"{n}.json" for n in given.split(",")]
    for path in paths:
        if not path.is_file():
            raise click.UsageError(f"device {path.stem}: there is no file {path}")
    return [str(p.resolve()) for p in paths]


def _run(job: Job, source: Path, jobs: int, scratch: Path) -> None:
    """Carry out `job` with the package of folder `source`, by the recorder of its checkout if there is one."""
    started = time.perf_counter()
    there = source.resolve().parent
    home = there if (there / "benchmarks" / "programs" / "record.py").is_file() else ROOT
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(source.resolve()), str(home)]),
        "OPALITE_CACHE_DIR": str(scratch / "cache"),  # what this machine was tuned to is no part of the comparison
    }
    workers: list[subprocess.Popen[str]] = []
    for i in range(min(jobs, len(job.models))):
        worker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.programs.record"],
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            env=environment,
            cwd=home,
            text=True,
        )
        assert worker.stdin is not None
        worker.stdin.write(replace(job, models=job.models[i::jobs]).to_json())
        worker.stdin.close()
        workers.append(worker)
    statuses = [worker.wait() for worker in workers]
    if any(statuses):
        raise click.ClickException(f"the recorder of {home} failed with the package of {source}")
    print(f"recorded {source} in {time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
