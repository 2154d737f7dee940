"""Counts the programs that callers wait for in first runs, with only the generic programs cached.


    python -m benchmarks.caller_builds                                  # models built in code
    python -m benchmarks.caller_builds ../shared/models/*.onnx lstm_tagger
    python -m benchmarks.caller_builds --graphs 300 --seed 1            # random graphs of tests/fuzz
    python -m benchmarks.caller_builds --caches empty ../shared/models/mnist_cntk.onnx

Each model runs in its own process, with a cache folder left by a small model's settled session. NAME.onnx takes its
inputs from NAME.npz ("in:..." arrays) if present; others are random. Random graphs share a process without background
builds. Exit status 1 if a caller waited for a program although all generic ones were cached.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import onnx

from .models import NAMES, build
from .models.feeds import random_feeds, stored_feeds

SETTLE_S = 120.0


def open_model(name: str) -> tuple[bytes, Mapping[str, Any]]:
    """A model's bytes, and its inputs."""
    if name.endswith(".onnx"):
        proto = onnx.load(name)
        return proto.SerializeToString(), stored_feeds(Path(name)) or random_feeds(proto, {})
    proto = build(name)
    return proto.SerializeToString(), random_feeds(proto, {})


def first_run(name: str) -> dict[str, Any]:
    """A session's statistics after its first run."""
    import opalite

    raw, feeds = open_model(name)
    started = time.perf_counter()
    session = opalite.InferenceSession(raw, precision="fp32")
    session.run(None, feeds)
    seconds = time.perf_counter() - started
    stats = session.stats().to_raw()
    return {"seconds": seconds, **{k: stats[k] for k in ("tier", "programs_built", "fallbacks")}}


def prepare() -> None:
    """Builds the generic programs: runs three convolutions and settles their session."""
    import opalite
    from opalite.plan.generic_programs import generic_programs

    shapes = {"a": (4, 3, 3, 3), "b": (4, 4, 1, 1), "c": (4, 1, 5, 5)}
    weights = [onnx.numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in shapes.items()]
    groups = {"a": 1, "b": 1, "c": 4}
    values = ("x", "u", "v", "y")
    nodes = [
        onnx.helper.make_node("Conv", [values[k], n], [values[k + 1]], group=groups[n]) for k, n in enumerate(shapes)
    ]
    ports = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (1, 3, 8, 8)), ("y", None))]
    graph = onnx.helper.make_graph(nodes, "convolutions", ports[:1], ports[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    session = opalite.InferenceSession(model.SerializeToString(), precision="fp32")
    session.run(None, {"x": np.ones((1, 3, 8, 8), np.float32)})
    session.settle(SETTLE_S)
    specs = [s.parts for s in generic_programs(session.runtime.info)]
    missing = len(session.runtime.programs.missing(specs))
    print(json.dumps({"generic": len(specs), "missing": missing}))


def random_graphs(seed: int, count: int) -> dict[str, Any]:
    """First runs of random graphs, each in a session that is closed at once."""
    from tests.fuzz.builder import make_case

    import opalite

    built: dict[int, int] = {}
    tiers: Counter[str] = Counter()
    fallbacks: Counter[str] = Counter()
    for number in range(seed, seed + count):
        case = make_case(number)
        if case is None:
            continue
        try:
            with opalite.InferenceSession(case.model.SerializeToString(), precision="fp32") as session:
                session.run(None, case.feeds[0])
                stats = session.stats()
        except opalite.errors.OpaliteError as e:
            print(f"seed {number}: {e}", file=sys.stderr)
            continue
        tiers[stats.tier] += 1
        fallbacks.update(dict.fromkeys(stats.fallbacks, 1))
        if stats.programs_built:
            built[number] = stats.programs_built
    return {"built": built, "tiers": tiers, "fallbacks": dict(fallbacks.most_common())}


def in_process(cache: Path, *arguments: str) -> dict[str, Any]:
    """The output of a process of this module with the given cache folder."""
    env = os.environ | {"OPALITE_CACHE_DIR": str(cache), "OPALITE_PLAN_CACHE": "0"}
    command = [sys.executable, "-m", "benchmarks.caller_builds", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sweep(models: Sequence[str], caches: str, graphs: int, seed: int) -> int:
    """Runs everything; returns the number of waiting callers."""
    waited = 0
    with tempfile.TemporaryDirectory() as folder:
        ready, own = Path(folder) / "ready", Path(folder) / "own"
        if caches == "generic":
            print("generic programs: {generic}, of which missing: {missing}".format(**in_process(ready, "--prepare")))
        for name in models:
            shutil.rmtree(own, ignore_errors=True)
            if ready.exists():
                shutil.copytree(ready, own)
            r = in_process(own, "--one", name)
            waited += bool(r["programs_built"])
            others = ", ".join(f"{k} ({n})" for k, n in r["fallbacks"].items())
            print(f"{Path(name).stem:24} {r['programs_built']:3} built  {r['seconds']:6.2f} s  {r['tier']:8} {others}")
        if graphs:
            r = in_process(ready, "--random", str(graphs), "--seed", str(seed))
            waited += len(r["built"])
            print(f"random graphs: {r['tiers']}; built for: {r['built']}; without general kernels: {r['fallbacks']}")
    return waited


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", help="files, or names of models built in code; all of those by default")
    p.add_argument("--caches", choices=("generic", "empty"), default="generic", help="what the cache folder has")
    p.add_argument("--graphs", type=int, default=0, help="how many random graphs, in place of the default models")
    p.add_argument("--seed", type=int, default=0, help="of the first random graph")
    p.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("--random", type=int, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.prepare:
        prepare()
        return 0
    if a.one or a.random:
        print(json.dumps(first_run(a.one) if a.one else random_graphs(a.seed, a.random)), flush=True)
        os._exit(0)  # nothing waits for what is built behind
    if missing := [m for m in a.models if m not in NAMES and not Path(m).is_file()]:
        p.error(f"neither files nor models built in code: {', '.join(missing)}")
    waited = sweep(a.models or ([] if a.graphs else NAMES), a.caches, a.graphs, a.seed)
    return int(waited > 0 and a.caches == "generic")


if __name__ == "__main__":
    sys.exit(main())
