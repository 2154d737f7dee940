"""Times process start to first token, with empty and warm caches, against onnxruntime.


    python -m benchmarks.first_token                                  # a decoder of 110 M in float32 and in 4 bits
    python -m benchmarks.first_token --bits 4 --prompt 128 --rounds 8 --json first_token.json

Models are built in code with external weights. Each start is a new process; engines alternate in each round, and the
median counts. The time includes interpreter, imports, session, state and the prompt's run. Byte code is cached, as for
an installed package. `second` is the time of the second token.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .models.llama import LLAMA_110M, QWEN2_0_5B, Shape, decoder, save

SHAPES: Mapping[str, Shape] = {"llama_110m": LLAMA_110M, "qwen2_0.5b": QWEN2_0_5B}
_FEEDS = """
import sys, time
import numpy as np
path, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def feeds(ids, held):
    n = len(ids)
    mask = np.ones((1, held + n), np.int64)
    return {"input_ids": np.array([ids]), "attention_mask": mask, "position_ids": np.arange(held, held + n)[None]}
prompt = list(range(1, count + 1))
"""
_OPALITE = (
    _FEEDS
    + """
import opalite
session = opalite.InferenceSession(path, device="cpu", precision="fp32")
state = session.state()
token = int(state.run(feeds(prompt, 0))[0][0, -1].argmax())
print(token, flush=True)
started = time.perf_counter()
state.run(feeds([token], count))
print(time.perf_counter() - started, flush=True)
session.settle()
"""
)
_ONNXRUNTIME = (
    _FEEDS
    + """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
past = {a.name: np.zeros((1, a.shape[1], 0, a.shape[3]), np.float32) for a in session.get_inputs() if "past" in a.name}
logits, *caches = session.run(None, {**feeds(prompt, 0), **past})
token = int(logits[0, -1].argmax())
print(token, flush=True)
started = time.perf_counter()
session.run(None, {**feeds([token], count), **dict(zip(past, caches))})
print(time.perf_counter() - started, flush=True)
"""
)


def start(code: str, path: Path, prompt: int, threads: int, environment: Mapping[str, str]) -> tuple[float, float, int]:
    """(seconds to the first token, seconds of the second, the token) of one process."""
    command = [sys.executable, "-c", code, str(path), str(prompt), str(threads)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(environment)) as process:
        assert process.stdout is not None
        token = int(process.stdout.readline())
        first = time.perf_counter() - started
        second = float(process.stdout.readline())
    if process.returncode:
        raise RuntimeError(f"a process ended with {process.returncode}")
    return first, second, token


def measure(shape: Shape, bits: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Figures of one model."""
    path = save(decoder(shape, bits=bits, accuracy=options.accuracy_level), folder / "model.onnx")
    environment = {**os.environ, "POCL_MAX_PTHREAD_COUNT": str(options.threads)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"OPALITE_CACHE_DIR": str(folder / "cache"), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    engines = {"opalite": _OPALITE, "onnxruntime": _ONNXRUNTIME}
    cold = {name: start(code, path, options.prompt, options.threads, environment) for name, code in engines.items()}
    times: dict[str, list[tuple[float, float, int]]] = {name: [] for name in engines}
    for turn in range(options.rounds):
        for name in list(engines)[:: 1 if turn % 2 else -1]:
            times[name].append(start(engines[name], path, options.prompt, options.threads, environment))
    first, second = ({n: statistics.median(t[i] for t in found) for n, found in times.items()} for i in (0, 1))
    return {
        "bits": bits or 32,
        "prompt": options.prompt,
        "same_token": len({t[2] for found in times.values() for t in found}) == 1,
        "opalite_s": first["opalite"],
        "onnxruntime_s": first["onnxruntime"],
        "ratio": first["opalite"] / first["onnxruntime"],
        "opalite_second_ms": 1e3 * second["opalite"],
        "onnxruntime_second_ms": 1e3 * second["onnxruntime"],
        "opalite_cold_s": cold["opalite"][0],
    }


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="llama_110m")
    parser.add_argument("--bits", type=int, nargs="+", default=[0, 4], help="of the weights; 0 for float32")
    parser.add_argument("--accuracy-level", type=int, default=0, help="of MatMulNBits")
    parser.add_argument("--prompt", type=int, default=16, help="tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for bits in options.bits:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(SHAPES[options.model], bits, options, Path(folder)))
        told = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in rows[-1].items())
        print("  ".join(told), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
