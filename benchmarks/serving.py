"""Throughput and latency of `opalite serve`, against the bare session and onnxruntime behind the same server.


    python -m benchmarks.serving MODEL [--connections 16 64] [--seconds 30] [--grpc] [--against onnxruntime]

One worker process, one device. In each round the bare session runs in its own process, with one and with two threads.
Each server is then under load from this process (http_load), which shares its cores. Medians of the rounds are compared
with those of the bare session with one thread. `client`: client time in core milliseconds per answer. `left`:
throughput relative to the cores that the client leaves. Requests are random inputs, batch 1, as binary data. Memory is
that of the server and its workers: at the end relative to a quarter of the time. Finally a server with a queue of four
requests gets 64 connections: time to refuse, and whether the next request is answered.
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
import sys, threading, time
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
def repeat(end, counts):
    while time.perf_counter() < end:
        session.run(None, feeds)
        counts.append(1)
for line in sys.stdin:
    seconds, callers = line.split()
    counts, started = [], time.perf_counter()
    threads = [threading.Thread(target=repeat, args=(started + float(seconds), counts)) for _ in range(int(callers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(counts) / (time.perf_counter() - started), flush=True)
"""
SERVER = """
import sys
from pathlib import Path
from opalite.serve.engine.model_config import ServerSettings
from opalite.serve.engine.inference_server import Server
from opalite.serve.grpc.grpc_server import GrpcFront, GrpcSettings
from opalite.serve.http.http_server import HttpFront, HttpSettings
from opalite.serve.run_servers import run
factory = "" if sys.argv[2] == "opalite" else "benchmarks.serving:onnxruntime_session"
settings = ServerSettings(
    models={"model": Path(sys.argv[1])}, devices=(sys.argv[3],), session_factory=factory,
    max_queue_size=int(sys.argv[4]), max_batch_size=int(sys.argv[5]) if sys.argv[5] else None,
)
fronts = [HttpFront(HttpSettings(port=0)), GrpcFront(GrpcSettings(port=0))]
run(lambda: Server(settings), fronts, 10.0, lambda line: print(line, flush=True))
"""
ROOT = Path(__file__).parents[1]


def onnxruntime_session(path: str, **_: Any) -> Any:
    """The session of the workers for onnxruntime: its defaults, on all cores."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def open_session(engine: str, path: str, device: str) -> Any:
    """A session of an engine."""
    if engine == "onnxruntime":
        return onnxruntime_session(path)
    import opalite

    return opalite.InferenceSession(path, device=device)


@contextmanager
def bare(engine: str, model: str, device: str) -> Iterator[Callable[[float, int], float]]:
    """A session in its own process without a server: runs per second, for each number of callers."""
    command = [sys.executable, "-c", BARE, engine, model, device]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        told, said = started.stdin, started.stdout
        if said.readline() != "ready\n":
            raise SystemExit(f"no session of {engine}")

        def rate(seconds: float, callers: int) -> float:
            told.write(f"{seconds} {callers}\n")
            told.flush()
            return float(said.readline())

        yield rate
        told.close()


@contextmanager
def server(engine: str, model: str, device: str, queue: int, batch: str) -> Iterator[tuple[str, str, int]]:
    """Addresses for HTTP and gRPC, and process id, of a server."""
    command = [sys.executable, "-c", SERVER, model, engine, device, str(queue), batch]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    try:
        line = started.stdout.readline()
        found = re.search(r"ready: model \(1\).*(http://\S+:\d+).*grpc://(\S+:\d+)", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line}")
        yield found[1], found[2], started.pid
        started.send_signal(signal.SIGTERM)
        started.wait(30)
    finally:
        started.kill()
        started.wait()


def family(pid: int) -> list[int]:
    """A process and its children, on Linux."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def load(address: str, grpc: str, pid: int, connections: int, seconds: float, by_grpc: bool = False) -> Load:
    """The server under load."""
    if by_grpc:
        from . import grpc_load

        return grpc_load.run(grpc, grpc_load.request_for(address, "model"), connections, seconds, family(pid))
    parts = urlsplit(address)
    place = parts.hostname or "127.0.0.1", parts.port or 80
    return run(place, request_for(address, "model"), connections, seconds, family(pid))


def overload(model: str, device: str, seconds: float) -> dict[str, Any]:
    """A short queue and many connections: the time of refusals, and one request after."""
    with server("opalite", model, device, 4, "") as place:
        full = load(*place, 64, seconds)
        after = load(*place, 1, 0.5)
    return {"under": full.to_raw(), "after": after.to_raw()}


def row(name: str, figures: list[Load], base: float) -> str:
    """A line of the table: medians over rounds, all errors, the largest memory growth."""
    rate = statistics.median(f.throughput for f in figures)
    p50, p99 = (statistics.median(f.percentile(share) for f in figures) * 1e3 for share in (0.5, 0.99))
    wrong = sum(f.lost + f.statuses.total() - f.statuses[200] for f in figures)
    grown = max((f.memory[-1][1] / f.memory[len(f.memory) // 4][1] for f in figures if f.memory), default=float("nan"))
    left = statistics.median(f.throughput / (1 - f.client_share) for f in figures) / base
    client = statistics.median(f.cpu_s / f.statuses.total() for f in figures) * 1e3
    times = f"{p50:8.1f} ms {p99:8.1f} ms {p99 / p50:5.2f}"
    return f"{name:30} {rate:8.1f}/s {rate / base:6.3f} {left:6.3f} {times} {wrong:6} {grown:7.3f} {client:6.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--connections", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--against", choices=["", "onnxruntime"], default="")
    parser.add_argument("--grpc", action="store_true", help="also by gRPC")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", default="", help="as opalite serve's --max-batch-size")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engines = ["opalite", *([options.against] if options.against else [])]
    ways = [False, True] if options.grpc else [False]
    bares: dict[tuple[str, int], list[float]] = {(e, callers): [] for e in engines for callers in (1, 2)}
    loads: dict[tuple[str, int, bool], list[Load]] = {
        (e, c, way): [] for e in engines for way in ways for c in options.connections
    }
    with ExitStack() as stack:
        places = {e: stack.enter_context(server(e, options.model, options.device, 128, options.batch)) for e in engines}
        alone = {e: stack.enter_context(bare(e, options.model, options.device)) for e in engines}
        for _ in range(options.rounds):
            for (engine, callers), rates in bares.items():
                rates.append(alone[engine](options.seconds, callers))
            for (engine, connections, by_grpc), found in loads.items():
                found.append(load(*places[engine], connections, options.seconds, by_grpc))
    base = statistics.median(bares["opalite", 1])
    names = ("through", 10), ("bare", 6), ("left", 6), ("p50", 11), ("p99", 11), ("ratio", 5), ("wrong", 6)
    print(" " * 30, *(f"{name:>{width}}" for name, width in (*names, ("memory", 7), ("client", 6))))
    for (engine, callers), rates in bares.items():
        rate = statistics.median(rates)
        print(f"{f'{engine}, bare, {callers} at once':30} {rate:8.1f}/s {rate / base:6.3f}")
    for (engine, connections, by_grpc), found in loads.items():
        print(row(f"{engine}, {connections} by {'gRPC' if by_grpc else 'HTTP'}", found, base))
    over = overload(options.model, options.device, min(options.seconds, 5.0))
    refused = over["under"]
    print(
        f"overload: {refused['statuses']}, refused in {refused['refused_p99_ms'] or 0:.1f} ms (p99), "
        f"{refused['refused_max_ms'] or 0:.1f} ms at most; then {over['after']['statuses']}"
    )
    if options.json is not None:
        raw = {
            f"{e}/{c}/{'grpc' if way else 'http'}": [f.to_raw() for f in found] for (e, c, way), found in loads.items()
        }
        told = {f"{e}/{callers}": rates for (e, callers), rates in bares.items()}
        options.json.write_text(json.dumps({"bare": told, "loads": raw, "overload": over}, indent=1) + "\n")


if __name__ == "__main__":
    main()
