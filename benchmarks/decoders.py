"""Times text decoders at fixed lengths against onnxruntime: a token after a cache, and a prefill, by weight width.


    python -m benchmarks.decoders                                       # 110 M, float32, 8 and 4 bits
    python -m benchmarks.decoders --models qwen2_0.5b --bits 4 --json decoders.json
    python -m benchmarks.decoders --bits 0 --low                        # float32 weights, in 8 bits by memory="low"
    python -m benchmarks.decoders --lengths 0+128,0+512 --last          # prompts

Models are built in code (benchmarks/models/llama.py) with random weights, MatMulNBits in blocks of `--block`, external
weights, and logits as only output; with `--last` those of the last position. Engines alternate as in
benchmarks/compare.py. `read`: bytes of weights and cache per token. `GB/s`: those bytes over the token's time. `share`:
that rate over a read probe's right after. `memory`: peak memory of the process until its first run ended.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from opalite.bench.compare import Comparison, Plan, compare
from opalite.importer.proto.apply_edits import keep_last_position

from .models.llama import LLAMA_110M, QWEN2_0_5B, Shape, decoder, save, step_feeds

SHAPES: Mapping[str, Shape] = {"llama_110m": LLAMA_110M, "qwen2_0.5b": QWEN2_0_5B}
HEAD = """| model | bits | past | new | engine | ms of a run | ratio | read, MB | GB/s | share | memory, MB | differs |
| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


@dataclass(frozen=True)
class Case:
    """One model at one length."""

    name: str
    bits: int
    past: int
    new: int


def weight_bytes(shape: Shape, bits: int, block: int) -> float:
    """Bytes of the weights that products read per token, scales included."""
    rows = 2 * shape.heads * shape.head + 2 * shape.kv_heads * shape.head + 3 * shape.inner
    count = shape.layers * shape.width * rows + shape.width * shape.words
    return count * (bits / 8 + 4 / block if bits else 4.0)


def cache_bytes(shape: Shape, past: int) -> int:
    """Bytes of the keys and values of `past` tokens."""
    return 8 * shape.layers * shape.kv_heads * shape.head * past


def read_speed(threads: int, nbytes: int = 1 << 27) -> float:
    """Bytes per second that `threads` threads read from memory: the best of several attempts."""
    parts = np.array_split(np.ones(nbytes // 4, np.float32), threads)
    best = float("inf")
    for _ in range(8):
        workers = [threading.Thread(target=part.max) for part in parts]
        begun = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - begun)
    return nbytes / best


def measure(case: Case, path: Path, options: argparse.Namespace) -> tuple[Comparison, float]:
    """All engines on one case, and the read speed right after."""
    feeds = step_feeds(SHAPES[case.name], case.past, case.new)
    plan = Plan(options.threads, options.rounds, options.slice)
    own = {"device": options.device, "precision": options.precision, "memory": "low" if options.low else "normal"}
    found = compare(path, feeds, options.engines.split(","), plan, {"opalite": own})
    return found, read_speed(options.threads)


def rows(case: Case, found: Comparison, speed: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of each engine."""
    low = options.low and not case.bits
    made = []
    for m in found.engines:
        bits = 8 if low and m.engine == "opalite" else case.bits
        shape = SHAPES[case.name]
        needed = weight_bytes(shape, bits, 32 if low else options.block) + cache_bytes(shape, case.past)
        ratio, run = found.ratio(m, found.engines[0]), m.run_s
        row = {"model": case.name, "bits": bits, "past": case.past, "new": case.new, "engine": m.engine}
        row |= {"seconds": run.median, "quartiles": (run.low, run.high), "ratio": ratio.median if ratio else None}
        row |= {"needed": needed, "speed": needed / run.median, "read": speed, "memory": m.memory}
        made.append({**row, "differs": m.difference, "version": m.version})
    return made


def line(row: Mapping[str, Any]) -> str:
    """A row of the table."""
    low, high = row["quartiles"]
    one = row["new"] == 1
    cells = [row["model"], row["bits"] or "32", row["past"], row["new"], row["engine"]]
    cells.append(f"{1e3 * row['seconds']:.2f} ({1e3 * low:.2f} to {1e3 * high:.2f})")
    cells.append("" if row["ratio"] is None else f"{row['ratio']:.2f}")
    cells.append(f"{row['needed'] / 1e6:.0f}")
    cells += [f"{row['speed'] / 1e9:.1f}", f"{row['speed'] / row['read']:.0%}"] if one else ["", ""]
    cells += [f"{row['memory'] / 1e6:.0f}", f"{row['differs']:.1e}"]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="llama_110m", help=f"of {', '.join(SHAPES)}, with commas")
    parser.add_argument("--bits", default="0,8,4", help="of weights, with commas; 0 is float32")
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--accuracy-level", type=int, default=0, help="of MatMulNBits")
    parser.add_argument("--lengths", default="128+1,0+128", help="PAST+NEW, with commas")
    parser.add_argument("--engines", default="onnxruntime,opalite", help="ratios are to the first")
    parser.add_argument("--device", default="cpu", help="Opalite's")
    parser.add_argument("--precision", default="fp32", help="Opalite's")
    parser.add_argument("--low", action="store_true", help='Opalite keeps float weights in 8 bits (memory="low")')
    parser.add_argument("--last", action="store_true", help="models give the last position's logits")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--slice", type=float, default=0.5, help="seconds of a slice")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    everything: list[dict[str, Any]] = []
    print(HEAD, flush=True)
    for name in options.models.split(","):
        for bits in map(int, options.bits.split(",")):
            with TemporaryDirectory() as folder:
                model = decoder(SHAPES[name], bits=bits, block=options.block, accuracy=options.accuracy_level)
                del model.graph.output[1:]
                if options.last:
                    keep_last_position(model, ["logits"])
                path = save(model, Path(folder) / "model.onnx")
                del model
                for length in options.lengths.split(","):
                    past, new = map(int, length.split("+"))
                    case = Case(name, bits, past, new)
                    found, speed = measure(case, path, options)
                    for row in rows(case, found, speed, options):
                        everything.append(row)
                        print(line(row), flush=True)
                    for engine, reason in found.failed.items():
                        print(f"{engine} is missing: {reason}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
