"""Compares Opalite with PyTorch on one GPU: same weights and inputs, answers checked against float64, times.

    python -m benchmarks.gpu --batch 1,8,32 --precision fp16,fp32 --json benchmarks/results/h200.json
    python -m benchmarks.gpu --networks all --precision fp16 --parallel 12 --budget 150 --json all.json --resume

Each run gets another input, which is on the device. `io` is run_with_iobinding, whose outputs stay there, `run` takes
and returns arrays, `opalite` repeats the launches alone (replay). PyTorch runs eagerly, as a CUDA graph, by
torch.compile (reduce-overhead) and as a compiled and then captured graph, in its best memory format; a graph's input is
copied into its buffer. All ways alternate in one process; milliseconds are medians until the device has finished.
`ratio` is `io` over PyTorch's best; geometric means end the table. `error` is the norm of the difference from float64
over its norm. Without PyTorch the networks of `benchmarks.models` are measured alone and compared with Opalite's own
fp32. Each row has its own process, since the state of PyTorch's compiler would disturb the next row. Rows are ordered
by importance, and the file is written after each, so that `--budget` may end the work anywhere and `--resume` goes on.
`--parallel N` prepares N rows in parallel and then times them one at a time. `--without` measures each row a second
time without those kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import opalite
from opalite.cl.runtime import find_runtime
from opalite.run.report.measure_peaks import measure_peaks
from opalite.run.report.profile import Peaks

from .gpu_child import READY, Child, Row
from .gpu_problem import difference, problem
from .gpu_ways import best_peer, inputs_like, opalite_ways, run_until_linked, summary, times_in_turn

NETWORKS = ("mobilenet_v2", "resnet50", "squeezenet1_1", "vgg16", "vit_b_16")
"""Those with a target; benchmarks/torch_models.py has more."""
FIRST = (
    ("resnet50", 32, "fp16"),
    ("vit_b_16", 1, "fp16"),
    ("vgg16", 1, "fp16"),
    ("mobilenet_v2", 32, "fp16"),
    ("resnet50", 1, "fp16"),
    ("mobilenet_v2", 1, "fp16"),
    ("squeezenet1_1", 1, "fp16"),
    ("mobilenet_v2", 1, "fp32"),
    ("resnet50", 1, "fp32"),
)
"""The rows with a target; others follow."""
ERROR = {"fp32": 1e-4, "fp16": 1e-2}
COLUMNS = (
    "network",
    "batch",
    "precision",
    "error",
    "torch_error",
    "launches",
    "opalite",
    "io",
    "run",
    "without",
    "device_ms",
    "eager",
    "graph",
    "compile",
    "compiled_graph",
    "ratio",
    "tinygrad",
)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks",
        default=",".join(NETWORKS),
        help="names (benchmarks/torch_models.py: `find`), or `all` of NETWORKS there",
    )
    parser.add_argument("--batch", default="1")
    parser.add_argument("--precision", default="fp16,fp32")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes a minute a row")
    parser.add_argument("--no-torch-times", action="store_true", help="PyTorch gives weights and reference only")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="list the N dearest launches of each run")
    parser.add_argument("--budget", type=float, help="seconds after which no row begins; by default none")
    parser.add_argument("--row-limit", type=float, metavar="SECONDS", help="leave out peers that are not ready by then")
    parser.add_argument("--resume", action="store_true", help="keep the rows that --json has, and measure the others")
    parser.add_argument("--symbolic-batch", action="store_true", help="export with an open batch, as programs often do")
    parser.add_argument("--exports", type=Path, help="folder that keeps exported networks for later calls")
    parser.add_argument("--without", default="", help="kernels to leave out in a second measurement of every row")
    parser.add_argument("--warm", type=float, metavar="SECONDS", help="compile in one process for each row first")
    parser.add_argument(
        "--parallel", type=int, default=1, help="rows that are prepared in parallel, then timed in turn"
    )
    parser.add_argument("--warm-row", default="", help=argparse.SUPPRESS)
    parser.add_argument("--row", default="", help=argparse.SUPPRESS)
    parser.add_argument("--problems", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peaks", default="", help=argparse.SUPPRESS)
    parser.add_argument(
        "--tinygrad", default="", help="networks to time with tinygrad's OpenCL, too, at batch 1 in fp32"
    )
    parser.add_argument("--commit", default="", help="what to record as measured; by default what git says")
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    return parser.parse_args()


def rows(options: argparse.Namespace) -> list[Row]:
    """(network, batch, precision) of everything requested, most important first."""
    batches, precisions = [int(b) for b in options.batch.split(",")], options.precision.split(",")
    networks = options.networks.split(",")
    if networks == ["all"]:
        from .torch_models import NETWORKS as KNOWN

        networks = list(KNOWN)
    asked = [(n, b, p) for b in batches for n in networks for p in precisions]
    return sorted(asked, key=lambda row: FIRST.index(row) if row in FIRST else len(FIRST))


def warm(options: argparse.Namespace) -> None:
    """Compiles the programs of the rows into the cache, in parallel processes, one per core.

    Drivers may compile only one program at a time per process.
    """
    until = time.monotonic() + options.warm
    jobs = [(row, without) for row in rows(options) for without in sorted({"", options.without})]

    def compile_row(job: tuple[Row, str]) -> None:
        row, without = job
        command = [sys.executable, "-m", "benchmarks.gpu", "--device", options.device]
        command += ["--warm-row", ",".join(map(str, row)), "--problems", str(options.problems)]
        with suppress(subprocess.TimeoutExpired):
            left = max(0.1, until - time.monotonic())
            subprocess.run(command, env={**os.environ, "OPALITE_EXCLUDE_KERNELS": without}, timeout=left, check=False)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_row, jobs))


def warm_row(options: argparse.Namespace, row: str) -> None:
    """Compiles the programs of one row and their linked kernels."""
    name, batch, precision = row.split(",")
    data, x = problem(name, int(batch), options.problems, options.symbolic_batch)[:2]
    with opalite.InferenceSession(data, device=options.device, precision=precision) as session:
        for run in opalite_ways(session, inputs_like(x)).values():
            run_until_linked(session, run)


def measure_row(options: argparse.Namespace) -> None:
    """Measures the row that the parent requested, on its signal."""
    begun = time.monotonic()
    name, batch, precision = options.row.split(",")
    flops, bandwidth = map(float, options.peaks.split(","))
    stages: dict[str, Any] = {}

    def note(stage: str) -> None:
        stages[stage] = time.monotonic() - begun
        print(f"{stage} {stages[stage]:.1f}", file=sys.stderr, flush=True)  # seen if the row ends too late

    data, x, want, module = problem(name, int(batch), options.problems, options.symbolic_batch)
    note("exported_s")
    if options.parallel > 1:
        with suppress(Exception):  # errors are reported by the measurement
            warm_row(options, options.row)
    note("warm_s")
    until = None if options.row_limit is None else begun + options.row_limit
    peers, record = ({}, {}) if module is None else _peers(module, x, want, precision, options, until)
    note("ready_s")
    record |= stages
    print(READY, flush=True)
    sys.stdin.readline()
    record |= measure((name, int(batch), precision), data, x, want, peers, options, Peaks(flops, bandwidth))
    options.json.write_text(json.dumps(record))


def _peers(
    module: Any, x: Any, want: Any, precision: str, options: argparse.Namespace, until: float | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """PyTorch's ways, compiled and captured, and what is known of them."""
    import torch

    from .torch_times import error, torch_ways

    dtype = torch.float16 if precision == "fp16" else torch.float32
    record: dict[str, Any] = {}
    try:
        if not options.no_torch_times:
            inputs = [torch.from_numpy(a) for a in inputs_like(x)]
            peers, record["torch_refused"] = torch_ways(
                module, inputs, dtype, compiled=not options.no_compile, until=until
            )
        else:
            peers = {}
        record["torch_error"] = error(module, torch.from_numpy(x), dtype, want)
    except Exception as e:
        return {}, {"torch_failed": f"{type(e).__name__}: {e}"[:2000]}
    return peers, record


def measure(
    row: Row, data: bytes, x: Any, want: Any, peers: dict[str, Any], options: argparse.Namespace, peaks: Peaks
) -> dict[str, Any]:
    """The record of one row. peers: PyTorch's ways."""
    name, batch, precision = row
    record: dict[str, Any] = {"network": name, "batch": batch, "precision": precision, "kernels": [], "nodes": []}
    ways = dict(peers)
    with ExitStack() as stack:
        session = None
        try:
            session = stack.enter_context(opalite.InferenceSession(data, device=options.device, precision=precision))
            feeds = {session.get_inputs()[0].name: x}
            record["error"] = difference(session.run(None, feeds)[0], want)
            own = opalite_ways(session, inputs_like(x))
            for run in own.values():
                run_until_linked(session, run)
            record["strategy"] = session.last_timing.strategy
            ways |= own
        except Exception as e:
            session = None
            record |= {"failed": f"{type(e).__name__}: {e}"[:2000], "error": float("nan")}
        times = times_in_turn(ways, options.repeats)
        if peers:
            from .torch_times import best_formats

            times = best_formats(times)
        record |= times
        if session is not None:
            record |= _profile(session, feeds, options, peaks)
    if (best := best_peer(record)) is not None and "io" in record:
        record["ratio"] = record["io"] / best
    if options.without:
        record |= _without(data, x, want, precision, options)
    if name in options.tinygrad.split(",") and row[1:] == (1, "fp32"):
        record["tinygrad"] = tinygrad_ms(data, x, options.repeats)
    return record


def _profile(session: Any, feeds: dict[str, Any], options: argparse.Namespace, peaks: Peaks) -> dict[str, Any]:
    """Launches and kernels of a session, and seconds of transfers in its runs."""
    profile = session.profile(feeds, 5)
    session.run(None, feeds)
    timing, kernels = session.last_timing, profile.by_kernel()
    nodes = sorted(profile.by_node(), key=lambda r: -r.seconds)[: options.profile]
    return {
        "up": timing.upload_s * 1e3,
        "down": timing.download_s * 1e3,
        "launches": sum(r.launches for r in kernels),
        "device_ms": profile.device_s * 1e3,
        "kernels": [(r.name, r.launches, r.seconds * 1e6, r.gflops, r.gbytes) for r in kernels],
        "shares": {r.name: (r.gflops * 1e9 / peaks.flops, r.gbytes * 1e9 / peaks.bandwidth) for r in kernels},
        "nodes": [(r.name, r.seconds * 1e6, r.gflops, r.gbytes) for r in nodes],
    }


def _without(data: bytes, x: Any, want: Any, precision: str, options: argparse.Namespace) -> dict[str, float]:
    """Time and error without the named kernels."""
    before = os.environ.get("OPALITE_EXCLUDE_KERNELS", "")
    os.environ["OPALITE_EXCLUDE_KERNELS"] = options.without
    try:
        with opalite.InferenceSession(data, device=options.device, precision=precision) as session:
            error = difference(session.run(None, {session.get_inputs()[0].name: x})[0], want)
            ways = opalite_ways(session, inputs_like(x))
            for run in ways.values():
                run_until_linked(session, run)
            return {"without": times_in_turn(ways, options.repeats)["opalite"], "without_error": error}
    finally:
        os.environ["OPALITE_EXCLUDE_KERNELS"] = before


def tinygrad_ms(data: bytes, x: Any, repeats: int) -> float | None:
    """Median milliseconds of tinygrad's OpenCL with captured kernels; None if it is not installed."""
    if find_spec("tinygrad") is None:
        return None
    from .tinygrad_times import median_ms

    return median_ms(data, x, repeats)


def is_wrong(record: dict[str, Any]) -> bool:
    """Whether the error exceeds the precision's bound and PyTorch's own error."""
    allowed = max(ERROR[record["precision"]], 1.5 * record.get("torch_error", 0.0))
    return not record["error"] <= allowed


def show(record: dict[str, Any]) -> None:
    """Prints one line of the table, then the requested launches."""

    def text(column: str) -> str:
        value = record.get(column, "-")
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1e}" if column.endswith("error") else f"{value:.3f}"

    print(" ".join(f"{text(c):>12.12}" for c in COLUMNS), flush=True)
    if "failed" in record:
        print("  " + record["failed"][:400].replace("\n", " "), flush=True)
    elif is_wrong(record):
        print("  WRONG: the error exceeds what the precision explains", flush=True)
    for kernel, launches, us, gflops, gbytes in record["kernels"] if record["nodes"] else ():
        print(f"   {kernel:24} x{launches:<4}{us:9.1f} us {gflops:9.0f} GFLOP/s {gbytes:7.0f} GB/s", flush=True)
    for node, us, gflops, gbytes in record["nodes"]:
        print(f"      {node:44.44}{us:9.1f} us {gflops:9.0f} GFLOP/s {gbytes:7.0f} GB/s", flush=True)


def commit() -> str:
    """The commit of the working tree, or ''."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write(path: Path, options: argparse.Namespace, peaks: Peaks, records: list[dict[str, Any]]) -> None:
    """Writes everything so far, atomically."""
    info = next(d for d in opalite.devices() if d.kind == "gpu" or options.device != "gpu")
    head = {"device": info.name, "driver": info.driver, "commit": options.commit or commit()}
    head |= {"times": "median milliseconds", "peak_gflops": peaks.flops * 1e-9, "peak_gbytes": peaks.bandwidth * 1e-9}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(head | {"records": records}, indent=1) + "\n")
    part.replace(path)


def main() -> int:
    """Exit status 1 if an answer was wrong or a row failed."""
    options = parse_options()
    started = time.monotonic()
    if options.warm_row:
        warm_row(options, options.warm_row)
        return 0
    if options.row:
        measure_row(options)
        return 0
    with TemporaryDirectory() as folder:
        options.problems = options.exports or Path(folder)
        options.problems.mkdir(parents=True, exist_ok=True)
        return measure_all(options, started)


def measure_all(options: argparse.Namespace, started: float) -> int:
    """Measures all rows, each in its own process; returns 1 if an answer was wrong. started: time of the start."""
    if options.warm:
        warm(options)
        print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)
    records = json.loads(options.json.read_text())["records"] if options.resume and options.json.exists() else []
    done = {(r["network"], r["batch"], r["precision"]) for r in records if "failed" not in r}
    failed = False
    peaks = measure_peaks(find_runtime(options.device))
    print(f"{peaks.flops * 1e-12:.1f} TFLOP/s float32, {peaks.bandwidth * 1e-9:.0f} GB/s measured")
    print(" ".join(f"{c:>12}" for c in COLUMNS))
    left = [row for row in rows(options) if row not in done]
    while left:
        if options.budget is not None and time.monotonic() - started > options.budget:
            print(f"left out from {left[0]} on: the budget is spent")
            break
        now, left = left[: options.parallel], left[options.parallel :]
        children = [Child(row, peaks, options.problems, len(now)) for row in now]
        for child in children:
            child.wait(options.row_limit and 1.3 * options.row_limit)
        for child in children:
            try:
                records.append(child.record())
                show(records[-1])
            except Exception:
                failed = True
                print(f"{child.row} failed:", flush=True)
                traceback.print_exc(file=sys.stdout)
            if options.json is not None:
                write(options.json, options, peaks, records)
    for line in summary(records):
        print(line)
    return int(failed or any(map(is_wrong, records)))


if __name__ == "__main__":
    sys.exit(main())
