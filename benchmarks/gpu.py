"""Opalite beside PyTorch on one GPU: the same weights and images, answers checked against float64, times side by side.

    python -m benchmarks.gpu --batch 1,8,32 --precision fp16,fp32 --json benchmarks/results/h200.json

Every time is wall clock from the call until the device has finished, with the input on the device; transfers are given
apart. `error` is the norm of the difference to float64 over its norm. Without PyTorch the networks of
`benchmarks.models` are measured alone, and their answers compared with Opalite's own fp32.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import opalite

NETWORKS = ("mobilenet_v2", "resnet50", "squeezenet1_1", "vgg16", "vit_b_16")
ERROR = {"fp32": 1e-4, "fp16": 1e-2}
COLUMNS = (
    "network",
    "batch",
    "precision",
    "error",
    "torch_error",
    "launches",
    "opalite",
    "device_ms",
    "up",
    "down",
    "eager",
    "graph",
    "compile",
)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--batch", default="1")
    parser.add_argument("--precision", default="fp16,fp32")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--compile", action="store_true", help="time torch.compile, too, which takes a minute each")
    parser.add_argument("--no-torch-times", action="store_true", help="PyTorch gives weights and reference only")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="list the N dearest launches of each run")
    parser.add_argument("--commit", default="", help="what to record as measured; by default what git says")
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    return parser.parse_args()


def opalite_times(session: Any, feeds: dict[str, Any], repeats: int) -> dict[str, float]:
    """Median milliseconds of the launches alone and of both transfers, in runs that finish one after the other."""
    runs = []
    for _ in range(5):
        session.run(None, feeds)
        runs.append(session.last_timing)
    for _ in range(10):
        session.replay()
    return {
        "opalite": median(session.replay() for _ in range(repeats)) * 1e3,
        "up": median(t.upload_s for t in runs) * 1e3,
        "down": median(t.download_s for t in runs) * 1e3,
    }


def problems(name: str, batch: int) -> tuple[bytes, Any, Any, Any]:
    """(ONNX file, images as NumPy, reference answer or None, PyTorch module or None)."""
    if find_spec("torch") is None:
        from .models import build
        from .models.feeds import random_feeds

        model = build({"vit_b_16": "vit_b16"}.get(name, name), batch)
        return model.SerializeToString(), next(iter(random_feeds(model, seed=1).values())), None, None
    from . import torch_models, torch_times

    module, x = torch_models.build(name), torch_models.images(batch)
    data = torch_models.export(module, batch)
    want = torch_times.reference(torch_models.build(name), x)
    return data, x.numpy(), want, module


def measure(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A record for each batch and precision."""
    for batch in map(int, options.batch.split(",")):
        data, x, want, module = problems(name, batch)
        for precision in options.precision.split(","):
            with opalite.InferenceSession(data, device=options.device, precision=precision) as session:
                feeds = {session.get_inputs()[0].name: x}
                got = session.run(None, feeds)[0].astype(np.float64)
                want = got if want is None else want
                record: dict[str, Any] = {"network": name, "batch": batch, "precision": precision}
                record["error"] = float(np.linalg.norm(got - want) / np.linalg.norm(want))
                record |= opalite_times(session, feeds, options.repeats)
                profile = session.profile(feeds, 5)
                record["launches"] = sum(r.launches for r in profile.by_kernel())
                record["device_ms"] = profile.device_s * 1e3
                record["kernels"] = [
                    (r.name, r.launches, r.seconds * 1e6, r.gflops, r.gbytes) for r in profile.by_kernel()
                ]
                nodes = sorted(profile.by_node(), key=lambda r: -r.seconds)[: options.profile]
                record["nodes"] = [(r.name, r.seconds * 1e6, r.gflops, r.gbytes) for r in nodes]
            if module is not None:
                record |= _torch_times(module, x, want, precision, options)
            yield record


def _torch_times(module: Any, x: Any, want: Any, precision: str, options: argparse.Namespace) -> dict[str, float]:
    import torch

    from . import torch_times

    dtype = torch.float16 if precision == "fp16" else torch.float32
    images, compiled = torch.from_numpy(x), options.compile and precision == "fp16"
    found = {"torch_error": torch_times.error(module, images, dtype, want)}
    if not options.no_torch_times:
        found |= torch_times.measure(module, images, dtype, compiled=compiled, repeats=options.repeats)
    return found


def is_wrong(record: dict[str, Any]) -> bool:
    """Whether the answer is off by more than its precision explains: the bound, or what PyTorch itself is off by.

    Deep networks of random weights amplify the rounding of half storage beyond the bound of a single layer.
    """
    allowed = max(ERROR[record["precision"]], 1.5 * record.get("torch_error", 0.0))
    return not record["error"] <= allowed


def show(record: dict[str, Any]) -> None:
    """One line of the table, then what was asked for of its launches."""

    def text(column: str) -> str:
        value = record.get(column, "-")
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1e}" if column.endswith("error") else f"{value:.3f}"

    print(" ".join(f"{text(c):>12.12}" for c in COLUMNS), flush=True)
    if is_wrong(record):
        print("  WRONG: the error exceeds what the precision explains", flush=True)
    for kernel, launches, us, gflops, gbytes in record["kernels"] if record["nodes"] else ():
        print(f"   {kernel:24} x{launches:<4}{us:9.1f} us {gflops:9.0f} GFLOP/s {gbytes:7.0f} GB/s", flush=True)
    for node, us, gflops, gbytes in record["nodes"]:
        print(f"      {node:44.44}{us:9.1f} us {gflops:9.0f} GFLOP/s {gbytes:7.0f} GB/s", flush=True)


def commit() -> str:
    """The commit of the working tree, or ''."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    """Exit status 1 if an answer was wrong."""
    options = parse_options()
    records = []
    print(" ".join(f"{c:>12}" for c in COLUMNS))
    for name in options.networks.split(","):
        for record in measure(name, options):
            show(record)
            records.append(record)
    if options.json is not None:
        info = next(d for d in opalite.devices() if d.kind == "gpu")
        measured = options.commit or commit()
        head = {"device": info.name, "driver": info.driver, "commit": measured, "times": "median milliseconds"}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(head | {"records": records}, indent=1) + "\n")
    return int(any(map(is_wrong, records)))


if __name__ == "__main__":
    sys.exit(main())
