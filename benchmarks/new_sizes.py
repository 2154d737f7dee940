"""Times new sizes: a list of sizes through one model, each twice, against onnxruntime.


    python -m benchmarks.new_sizes path/to/ppocr_det_v2.onnx path/to/yunet_dynamic.onnx
    python -m benchmarks.new_sizes model.onnx --sizes 4x3x224x224,3x3x224x224 --rounds 3 --json sizes.json
    python -m benchmarks.new_sizes model.onnx --count 500          # resident memory after 50 sizes and at the end
    python -m benchmarks.new_sizes decoder --count 200             # a cache that grows by one a token, built in code
    python -m benchmarks.new_sizes mobilenet_v2 densenet121        # 54 and 783 launches; batches and images are open

Each engine has its own process per round and cache state, in an order that changes. `empty` starts with an empty cache
folder, `warm` with that of a process that ran all sizes and built all programs. `total`: all runs, including the first
one and opening the session. `worst`: the longest run after the first. `new`: median of a size's first run minus its
second. `built`: programs built while the caller waited. `rss`: growth of resident memory from the 50th size to the
last. Figures are medians of the rounds, with minimum and maximum in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Shape = list[int]
SETTLED = 50  # sizes after which memory should not grow
FIGURES = ("open_s", "first_s", "total_s", "worst_ms", "new_ms", "second_ms", "built", "rss_mb")


def picture_sizes(count: int) -> list[Shape]:
    """Image sizes, multiples of 32 from 96 to 480, each once until all are used."""
    every = [[1, 3, h, w] for h in range(96, 481, 32) for w in range(96, 481, 32)]
    random.Random(7).shuffle(every)
    return [every[i % len(every)] for i in range(count)]


def batch_sizes(count: int) -> list[Shape]:
    """Two or three images of 64 to 160 pixels, small so that a run does not hide the cost of a new size."""
    every = [[n, 3, h, w] for n in (2, 3) for h in range(64, 161, 32) for w in range(64, 161, 32)]
    random.Random(7).shuffle(every)
    return [every[i % len(every)] for i in range(count)]


def make_decoder(path: Path, layers: int = 4, width: int = 256, heads: int = 4) -> None:
    """A single-token decoder: x [1, 1, width] and growing keys and values [1, heads, past, width/heads]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    size = width // heads
    nodes: list[Any] = []
    constants: dict[str, Any] = {
        "split": np.array([1, 1, heads, size]),
        "join": np.array([1, 1, width]),
        "scale": np.array(size**-0.5, np.float32),
    }
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, width])]
    results = []

    def add(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def product(x: str, name: str, columns: int) -> str:
        rows = 4 * width if name.endswith("down") else width
        constants[name] = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        return add("MatMul", [x, name], f"{name}.y")

    x = "x"
    for i in range(layers):
        parts = {}
        for part in "qkv":
            flat = product(x, f"{i}.{part}", width)
            rows = add("Reshape", [flat, "split"], f"{i}.{part}.rows")
            parts[part] = add("Transpose", [rows], f"{i}.{part}.heads", perm=[0, 2, 1, 3])
        for part in "kv":
            name = f"past.{i}.{part}"
            ports.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, heads, "past", size]))
            parts[part] = add("Concat", [name, parts[part]], f"present.{i}.{part}", axis=2)
            results.append(helper.make_tensor_value_info(parts[part], TensorProto.FLOAT, [1, heads, "total", size]))
        turned = add("Transpose", [parts["k"]], f"{i}.kt", perm=[0, 1, 3, 2])
        scores = add("Mul", [add("MatMul", [parts["q"], turned], f"{i}.qk"), "scale"], f"{i}.scores")
        seen = add("MatMul", [add("Softmax", [scores], f"{i}.weights", axis=-1), parts["v"]], f"{i}.seen")
        rows = add("Transpose", [seen], f"{i}.seen.rows", perm=[0, 2, 1, 3])
        x = add("Add", [x, product(add("Reshape", [rows, "join"], f"{i}.joined"), f"{i}.o", width)], f"{i}.attended")
        up = add("Relu", [product(x, f"{i}.up", 4 * width)], f"{i}.relu")
        x = add("Add", [x, product(up, f"{i}.down", width)], f"{i}.out")
    results.insert(0, helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 1, width]))
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "decoder", ports, results, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def resident_mb() -> float:
    """Resident memory of this process in MB; 0 if unknown."""
    try:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


def open_engine(name: str, model: str, threads: int) -> Any:
    """A session of engine `name`; all have onnxruntime's calls."""
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    import opalite

    return opalite.InferenceSession(model, device="cpu", precision="fp32")


def feeds_for(session: Any, shape: Shape) -> dict[str, Any]:
    """Inputs: `shape` for a model of one input; the decoder's past length is the first number."""
    args = session.get_inputs()
    rng = np.random.default_rng(sum(shape))
    if len(args) == 1:
        return {args[0].name: rng.random(shape, dtype=np.float32)}
    return {a.name: _past(a.name, [d if isinstance(d, int) else shape[0] for d in a.shape]) for a in args}


_pasts: dict[str, Any] = {}


def _past(name: str, shape: Sequence[int]) -> Any:
    """An array cut from a kept one: a loop that feeds outputs back allocates nothing between tokens either."""
    kept = _pasts.get(name)
    if kept is None or any(have < want for have, want in zip(kept.shape, shape, strict=True)):
        wide = [2 * n if axis == 2 else n for axis, n in enumerate(shape)]
        kept = _pasts[name] = np.random.default_rng(0).random(wide, dtype=np.float32)
    return np.ascontiguousarray(kept[tuple(slice(n) for n in shape)])


def measure(engine: str, model: str, sizes: Sequence[Shape], threads: int, settles: bool) -> dict[str, float]:
    """Figures of one engine, in this process."""
    started = time.perf_counter()
    session = open_engine(engine, model, threads)
    opened = time.perf_counter()
    firsts: list[float] = []
    seconds: list[float] = []
    settled_mb = 0.0
    tallies = getattr(session, "runtime", None)
    before = tallies.counters.snapshot() if tallies is not None else None
    for i, shape in enumerate(sizes):
        feeds = feeds_for(session, shape)
        for times in (firsts, seconds):
            begun = time.perf_counter()
            session.run(None, feeds)
            times.append(time.perf_counter() - begun)
        if i + 1 == SETTLED:
            settled_mb = resident_mb()
    grown = resident_mb() - settled_mb if len(sizes) > SETTLED else 0.0
    built = 0
    if tallies is not None:
        stats = session.stats().to_raw() if hasattr(session, "stats") else {}
        found = stats.get("programs_built")
        built = (tallies.counters.snapshot() - before).programs_built if found is None else found
    if settles and hasattr(session, "settle"):
        session.settle()
    rest = [*firsts[1:], *seconds]
    return {
        "open_s": opened - started,
        "first_s": firsts[0],
        "total_s": opened - started + sum(firsts) + sum(seconds),
        "worst_ms": 1e3 * max(rest),
        "new_ms": 1e3 * statistics.median([a - b for a, b in zip(firsts[1:], seconds[1:], strict=True)] or [0.0]),
        "second_ms": 1e3 * statistics.median(seconds),
        "built": built,
        "rss_mb": grown,
    }


def run_apart(
    options: argparse.Namespace, engine: str, model: str, sizes: Sequence[Shape], cache: str, settles: bool
) -> Any:
    """`measure` in its own process. engine: a name, or opalite@SRC for another checkout."""
    name, _, source = engine.partition("@")
    given = {"engine": name, "model": model, "sizes": list(sizes), "threads": options.threads, "settles": settles}
    env = {**os.environ, "OPALITE_CACHE_DIR": cache}
    if source:
        env["PYTHONPATH"] = source
    command = [sys.executable, "-m", "benchmarks.new_sizes", "--child", json.dumps(given)]
    if source:  # the module of this checkout on that one's package
        command[1:3] = [__file__]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def cell(found: dict[str, float]) -> str:
    """A figure of the table."""
    return f"{found['median']:.2f} [{found['least']:.2f} {found['most']:.2f}]"


def compare(options: argparse.Namespace, model: str) -> dict[str, Any]:
    """The figures of one model, by engine and state of the cache."""
    import onnx

    from .models import NAMES, build  # not at the top: children run this file alone
    from .models.opened import opened

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = model
        if model == "decoder":
            path = str(Path(folder) / "decoder.onnx")
            make_decoder(Path(path))
            sizes = [[16 + i] for i in range(options.count)]
        elif model in NAMES:
            path = str(Path(folder) / f"{model}.onnx")
            onnx.save(opened(build(model, "N")), path)
            sizes = options.sizes or batch_sizes(options.count)
        else:
            sizes = options.sizes or picture_sizes(options.count)
        states = [(e, c) for e in options.engines for c in (options.caches if e != "onnxruntime" else ["none"])]
        rows: dict[tuple[str, str], list[Any]] = {s: [] for s in states}
        for number in range(options.rounds):
            for engine, state in random.Random(number).sample(states, len(states)):
                cache = f"{folder}/{engine.replace('/', '_')}-warm"
                if state == "warm" and not Path(cache).exists():
                    Path(cache).mkdir()
                    run_apart(options, engine, path, sizes, cache, settles=True)
                if state == "empty":
                    cache = tempfile.mkdtemp(dir=folder)
                rows[engine, state].append(run_apart(options, engine, path, sizes, cache, settles=False))
    found = {}
    for (engine, state), rounds in rows.items():
        found[f"{engine} {state}"] = {f: spread([r[f] for r in rounds]) for f in FIGURES}
    return {"model": Path(model).name, "sizes": len(sizes), "rounds": options.rounds, "engines": found}


def show(record: dict[str, Any]) -> None:
    """Print one model's table."""
    print(f"\n{record['model']}, {record['sizes']} sizes twice, {record['rounds']} rounds")
    print(f"{'':28}" + "".join(f"{f:>24}" for f in FIGURES))
    for name, figures in record["engines"].items():
        print(f"{name:28}" + "".join(f"{cell(figures[f]):>24}" for f in FIGURES))


def parse_shapes(text: str) -> list[Shape]:
    """'1x3x96x128,1x3x64x64' as lists."""
    return [[int(n) for n in shape.split("x")] for shape in text.split(",")]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="files, names of benchmarks.models, or 'decoder'")
    parser.add_argument("--sizes", type=parse_shapes, help="shapes of the one input; default: pictures")
    parser.add_argument("--count", type=int, default=24, help="how many pictures or tokens")
    parser.add_argument("--engines", type=lambda t: t.split(","), default=["opalite", "onnxruntime"])
    parser.add_argument("--caches", type=lambda t: t.split(","), default=["warm", "empty"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        given = json.loads(options.child)
        print(json.dumps(measure(*(given[k] for k in ("engine", "model", "sizes", "threads", "settles")))))
        return
    records = []
    for model in options.models:
        records.append(compare(options, model))
        show(records[-1])
    if options.json is not None:
        options.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
