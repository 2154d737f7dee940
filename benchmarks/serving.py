"""Throughput and latency of `opalite serve`, beside the bare session and beside onnxruntime behind the same server.

    python -m benchmarks.serving MODEL [--connections 16 64] [--seconds 30] [--rounds 2] [--against onnxruntime]

One worker process, one device. In each round the bare session runs in a process of its own, one run after the other,
and each server is under load from this process (http_load), which shares the cores with it; medians of the rounds
are compared. The requests are random inputs of the shapes that the model tells, batch 1, as binary data. Memory is that
of the server and its workers: at the end, relative to a quarter of the time. Last, a server gets a queue of four
requests and 64 connections: how long it takes to refuse, and whether the next request is answered.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .http_load import Load, request_for, run

BARE = """
import sys, time
import numpy as np
from benchmarks.serving import open_session
session = open_session(sys.argv[1], sys.argv[2], sys.argv[3])
rng = np.random.default_rng(0)
feeds = {}
for port in session.get_inputs():
    shape = [d if isinstance(d, int) else 1 for d in port.shape]
    feeds[port.name] = rng.random(shape).astype(np.float32 if port.type == "tensor(float)" else np.int64)
end = time.perf_counter() + 3.0
while time.perf_counter() < end:
    session.run(None, feeds)
if hasattr(session, "settle"):
    session.settle(30.0)
print("ready", flush=True)
for line in sys.stdin:
    count, started = 0, time.perf_counter()
    while (now := time.perf_counter()) < started + float(line):
        session.run(None, feeds)
        count += 1
    print(count / (now - started), flush=True)
"""
SERVER = """
import sys
from pathlib import Path
from opalite.serve.engine.config import ServerSettings
from opalite.serve.engine.server import Server
from opalite.serve.http.front import HttpFront, HttpSettings
from opalite.serve.launch import run
factory = "" if sys.argv[2] == "opalite" else "benchmarks.serving:onnxruntime_session"
settings = ServerSettings(
    models={"model": Path(sys.argv[1])}, devices=(sys.argv[3],), session_factory=factory,
    max_queue_size=int(sys.argv[4]), max_batch_size=int(sys.argv[5]),
)
run(lambda: Server(settings), [HttpFront(HttpSettings(port=0))], 10.0, lambda line: print(line, flush=True))
"""
ROOT = Path(__file__).parents[1]


def onnxruntime_session(path: str, **_: Any) -> Any:
    """What workers open in place of Opalite's session: its defaults, on all cores."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def open_session(engine: str, path: str, device: str) -> Any:
    """A session of an engine."""
    if engine == "onnxruntime":
        return onnxruntime_session(path)
    import opalite

    return opalite.InferenceSession(path, device=device)


@contextmanager
def bare(engine: str, model: str, device: str) -> Iterator[Callable[[float], float]]:
    """A session in a process of its own, without a server: runs a second, in so many seconds."""
    command = [sys.executable, "-c", BARE, engine, model, device]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        told, said = started.stdin, started.stdout
        if said.readline() != "ready\n":
            raise SystemExit(f"no session of {engine}")

        def rate(seconds: float) -> float:
            told.write(f"{seconds}\n")
            told.flush()
            return float(said.readline())

        yield rate
        told.close()


@contextmanager
def server(engine: str, model: str, device: str, queue: int, batch: int) -> Iterator[tuple[str, int]]:
    """Address and process id of a server."""
    command = [sys.executable, "-c", SERVER, model, engine, device, str(queue), str(batch)]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    try:
        line = started.stdout.readline()
        found = re.search(r"ready: model \(1\).*(http://\S+:\d+)", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line}")
        yield found[1], started.pid
        started.send_signal(signal.SIGTERM)
        started.wait(30)
    finally:
        started.kill()
        started.wait()


def family(pid: int) -> list[int]:
    """A process and those that it started, on Linux."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def load(address: str, pid: int, connections: int, seconds: float) -> Load:
    """The server under load."""
    parts = urlsplit(address)
    place = parts.hostname or "127.0.0.1", parts.port or 80
    return run(place, request_for(address, "model"), connections, seconds, family(pid))


def overload(model: str, device: str, seconds: float) -> dict[str, Any]:
    """A short queue and many connections: the time of refusals, and one request after."""
    with server("opalite", model, device, 4, 1) as (address, pid):
        full = load(address, pid, 64, seconds)
        after = load(address, pid, 1, 0.5)
    return {"under": full.to_raw(), "after": after.to_raw()}


def row(name: str, figures: list[Load], base: float) -> str:
    """A line of the table: medians over rounds, what went wrong in all, and by how much memory grew at most."""
    rate = statistics.median(f.throughput for f in figures)
    p50, p99 = (statistics.median(f.percentile(share) for f in figures) * 1e3 for share in (0.5, 0.99))
    wrong = sum(f.lost + f.statuses.total() - f.statuses[200] for f in figures)
    grown = max((f.memory[-1][1] / f.memory[len(f.memory) // 4][1] for f in figures if f.memory), default=float("nan"))
    told = f"{rate:8.1f}/s {rate / base:6.3f} {p50:8.1f} ms {p99:8.1f} ms {p99 / p50:5.2f} {wrong:6} {grown:7.3f}"
    return f"{name:28} {told}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--connections", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--against", choices=["", "onnxruntime"], default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=4, help="the largest batch that the server makes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engines = ["opalite", *([options.against] if options.against else [])]
    bares: dict[str, list[float]] = {engine: [] for engine in engines}
    loads: dict[tuple[str, int], list[Load]] = {(e, c): [] for e in engines for c in options.connections}
    with ExitStack() as stack:
        places = {e: stack.enter_context(server(e, options.model, options.device, 128, options.batch)) for e in engines}
        alone = {e: stack.enter_context(bare(e, options.model, options.device)) for e in engines}
        for _ in range(options.rounds):
            for engine in engines:
                bares[engine].append(alone[engine](options.seconds))
            for (engine, connections), found in loads.items():
                found.append(load(*places[engine], connections, options.seconds))
    base = statistics.median(bares["opalite"])
    print(f"{'':28} {'through':>10} {'bare':>6} {'p50':>11} {'p99':>11} {'ratio':>5} {'wrong':>6} {'memory':>7}")
    for engine in engines:
        rate = statistics.median(bares[engine])
        print(f"{engine + ', bare':28} {rate:8.1f}/s {rate / base:6.3f}")
    for (engine, connections), found in loads.items():
        print(row(f"{engine}, {connections} connections", found, base))
    over = overload(options.model, options.device, min(options.seconds, 5.0))
    refused = over["under"]
    print(
        f"overload: {refused['statuses']}, refused in {refused['refused_p99_ms'] or 0:.1f} ms (p99), "
        f"{refused['refused_max_ms'] or 0:.1f} ms at most; then {over['after']['statuses']}"
    )
    if options.json is not None:
        raw = {f"{e}/{c}": [f.to_raw() for f in found] for (e, c), found in loads.items()}
        options.json.write_text(json.dumps({"bare": bares, "loads": raw, "overload": over}, indent=1) + "\n")


if __name__ == "__main__":
    main()
