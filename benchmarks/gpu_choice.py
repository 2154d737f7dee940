"""Compares untuned choices of the cost models with the measurements of benchmarks/gpu_kernels.py; needs no GPU.


    python -m benchmarks.gpu_choice kernels.jsonl [--device nvidia_h200]

For each layer: the chosen kernel and tile with its time, and the best measured one. If the chosen tile was not
measured, the least time of the kernel's measured tiles is used, marked by ~. The difference of the sums is what better
models could save.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_MMA
from opalite.kernels.kernel import kernels_for

from .gpu_kernels import LAYERS, Layer


def choose(layer: Layer, device: DeviceInfo, measured: set[str]) -> tuple[str, dict[str, Any]]:
    """The kernel among `measured` that is expected to take the least time, and its untuned parameters."""
    node, _ = layer.node(layer.batch, filled=False)
    cost = node.cost()
    kernels = [k for k in kernels_for(node.op.name) if k.name in measured and k.refuse(k.problem(node, device)) is None]
    kernel = min(kernels, key=lambda k: k.seconds(k.problem(node, device), cost))
    return kernel.name, kernel.defaults(kernel.problem(node, device))


def main() -> int:
    """Exit status 1 if no layer was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="kernels.jsonl")
    parser.add_argument("--device", default="nvidia_h200", help="description of the measured device")
    options = parser.parse_args()
    device = read_description(options.device)
    device = replace(device, quirks=tuple({*device.quirks, PTX_MMA}))
    records = defaultdict(list)
    for line in options.measured.read_text().splitlines():
        record = json.loads(line)
        if "us" in record:
            records[record["layer"]].append(record)
    layers = [layer for layer in LAYERS if layer.name in records]
    sums = [0.0, 0.0]
    for layer in layers:
        found = records[layer.name]
        name, params = choose(layer, device, {r["kernel"] for r in found})
        same = [r for r in found if r["kernel"] == name]
        exact = [r["us"] for r in same if r["params"] == params]
        taken, best = min(exact or [r["us"] for r in same]), min(found, key=lambda r: r["us"])
        sums = [sums[0] + taken, sums[1] + best["us"]]
        chosen = f"{name} {_text(params)} {' ' if exact else '~'}{taken:.1f}"
        print(f"{layer.name:28} {chosen:44} best {best['kernel']} {_text(best['params'])} {best['us']:.1f}")
    print(f"chosen {sums[0]:.1f} us, best {sums[1]:.1f} us, regret {sums[0] - sums[1]:.1f} us in {len(layers)} layers")
    return int(not layers)


def _text(params: dict[str, Any]) -> str:
    return ",".join(map(str, params.values()))


if __name__ == "__main__":
    sys.exit(main())
