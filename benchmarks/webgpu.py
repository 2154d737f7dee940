"""Compares Opalite on a GPU with onnxruntime's WebGPU provider, which runs on Vulkan: arrays in, arrays out.

    python -m benchmarks.webgpu mobilenet_v2 resnet50 path/to/model.onnx [--device gpu] [--json FILE]

Needs the packages onnxruntime and onnxruntime-ep-webgpu, and a Vulkan loader with the GPU's driver. Both engines have
the same file and inputs, in float32; runs alternate in short stretches within one process, each with another input.
`first` is a new process from its start to the first answer, with warm caches (its second start). `differs` is the
largest difference of the answers over the largest of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import onnx
import opalite

from .gpu_ways import inputs_like, run_until_linked, times_in_turn
from .infer_queue import model_bytes
from .models.feeds import random_feeds

STARTS = {
    "opalite": "import sys, numpy as np, opalite\n"
    "s = opalite.InferenceSession(sys.argv[1], device=sys.argv[2] or None, precision='fp32')\n",
    "webgpu": "import sys, numpy as np\nfrom benchmarks.webgpu import webgpu_session\n"
    "s = webgpu_session(sys.argv[1])\n",
}
RUN = "s.run(None, dict(np.load(sys.argv[3])))\n"


def webgpu_session(model: str | bytes) -> Any:
    """A session of onnxruntime on the first WebGPU device. RuntimeError if there is none."""
    import onnxruntime
    import onnxruntime_ep_webgpu as plugin

    name = plugin.get_ep_name()
    if not any(d.ep_name == name for d in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library("webgpu", plugin.get_library_path())
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == name]
    if not devices:
        raise RuntimeError(f"onnxruntime finds no device for {name}: is a Vulkan driver there? (`vulkaninfo`)")
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices[:1], {})
    session = onnxruntime.InferenceSession(model, options)
    if name not in session.get_providers():
        raise RuntimeError(f"the session has {session.get_providers()}, not {name}")
    return session


def first_seconds(path: Path, feeds: dict[str, Any], device: str | None) -> dict[str, float]:
    """Seconds of a process that answers once, by engine: the least of two after one that fills caches."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "feeds.npz"
        np.savez(saved, **feeds)
        for engine, code in STARTS.items():
            command = [sys.executable, "-c", code + RUN, str(path), device or "", str(saved)]
            times = []
            for _ in range(3):
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                times.append(time.perf_counter() - started)
            found[f"{engine}_first_s"] = min(times[1:])
    return found


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one model."""
    data = model_bytes(model)
    feeds = random_feeds(onnx.load_from_string(data), seed=1)
    many = {name: inputs_like(x) for name, x in feeds.items()}
    peer = webgpu_session(data)
    with (
        opalite.InferenceSession(data, device=options.device, precision="fp32") as session,
        tempfile.TemporaryDirectory() as folder,
    ):
        ours, theirs = session.run(None, feeds), peer.run(None, feeds)
        differs = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, theirs, strict=True))

        def given(i: int) -> dict[str, Any]:
            return {name: arrays[i % len(arrays)] for name, arrays in many.items()}

        ways = {"opalite": lambda i: session.run(None, given(i)), "webgpu": lambda i: peer.run(None, given(i))}
        run_until_linked(session, ways["opalite"])
        record: dict[str, Any] = {"model": Path(model).stem, "differs": differs}
        record |= times_in_turn(ways, options.repeats)
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        if options.starts:
            record |= first_seconds(path, feeds, options.device)
    return record | {"ratio": record["opalite"] / record["webgpu"]}


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="files, or names of benchmarks.models")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--starts", action="store_true", help="time new processes, too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    records = []
    for model in options.models:
        records.append(measure(model, options))
        print(
            "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v:20}" for k, v in records[-1].items()), flush=True
        )
        if options.json:
            options.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
