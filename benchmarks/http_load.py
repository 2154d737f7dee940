"""Load on a server that speaks the Open Inference Protocol: several connections, each sends when it has its answer.

    python -m benchmarks.http_load http://127.0.0.1:8000 MODEL [--connections 16] [--seconds 30] [--json FILE]

The inputs are random, sent as binary data, and so are the answers. One process and one loop over ready sockets, for
client and server share the machine's cores: with 600 KB a request the client takes about 0.1 ms of CPU for each.
Throughput, latency in percentiles, statuses, and, with --pid, the resident memory of processes over the time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2",
    "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip


@dataclass
class Load:
    """The result of a load: latencies in seconds of answers with status 200, refused_s of those with 503.

    cpu_s: processor time of this client. memory: (seconds since the start, resident bytes) of processes.
    """

    connections: int
    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    lost: int = 0
    cpu_s: float = 0.0
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Answers with status 200 per second."""
        return self.statuses[200] / self.seconds

    def percentile(self, share: float) -> float:
        """The latency in seconds that `share` of the answers do not exceed."""
        return float(np.percentile(self.latencies, share * 100)) if self.latencies else float("nan")

    @property
    def client_share(self) -> float:
        """Share of the machine's cores that this client used."""
        return self.cpu_s / self.seconds / len(os.sched_getaffinity(0))

    def to_raw(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return {
            "connections": self.connections, "seconds": self.seconds, "throughput": self.throughput,
            "statuses": {str(k): v for k, v in self.statuses.items()}, "lost": self.lost,
            "p50_ms": self.percentile(0.5) * 1e3, "p90_ms": self.percentile(0.9) * 1e3,
            "p99_ms": self.percentile(0.99) * 1e3, "max_ms": self.percentile(1.0) * 1e3,
            "refused_p99_ms": float(np.percentile(self.refused_s, 99)) * 1e3 if self.refused_s else None,
            "refused_max_ms": max(self.refused_s) * 1e3 if self.refused_s else None,
            "client_cpu_s": self.cpu_s, "memory": self.memory,
        }  # fmt: skip


class Connection:
    """One connection: a request being sent, or an awaited answer."""

    def __init__(self, place: tuple[str, int], request: bytes) -> None:
        self.place, self.request = place, memoryview(request)
        self.open()

    def open(self) -> None:
        """Connects, again if the server has closed the connection."""
        self.socket = socket.create_connection(self.place, timeout=10)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.sent, self.answer = 0, b""

    def begin(self) -> None:
        """Starts a request."""
        self.sent, self.answer, self.began = 0, b"", time.perf_counter()
        self.send()

    def send(self) -> None:
        """Sends as much as the socket accepts."""
        try:
            while self.sent < len(self.request):
                self.sent += self.socket.send(self.request[self.sent :])
        except BlockingIOError:
            pass

    def receive(self) -> int | None:
        """The status, once the answer is complete; ConnectionError without an answer."""
        try:
            piece = self.socket.recv(1 << 18)
        except BlockingIOError:
            return None
        if not piece:
            raise ConnectionError("the server closed the connection")
        self.answer += piece
        head, end, rest = self.answer.partition(b"\r\n\r\n")
        if not end:
            return None
        _, _, after = head.lower().partition(b"content-length:")
        if len(rest) < int(after.split(b"\r\n", 1)[0]):
            return None
        return int(head[9:12])


def run(place: tuple[str, int], request: bytes, connections: int, seconds: float, pids: Sequence[int] = ()) -> Load:
    """Generates load for `seconds`; waits for the last answers. place: host and port; request: with headers."""
    load = Load(connections)
    selector = selectors.DefaultSelector()
    started = time.perf_counter()
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    next_look = started
    for _ in range(connections):
        one = Connection(place, request)
        one.begin()
        selector.register(one.socket, _wanted(one), one)
    open_ones = connections
    end = started + seconds
    while open_ones:
        now = time.perf_counter()
        if pids and now >= next_look:
            load.memory.append((now - started, sum(map(resident, pids))))
            next_look += 1.0
        for key, events in selector.select(1.0):
            one = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    one.send()
                status = one.receive() if events & selectors.EVENT_READ else None
            except ConnectionError:
                load.lost += 1
                selector.unregister(one.socket)
                one.socket.close()
                one.open()
                one.begin()
                selector.register(one.socket, _wanted(one), one)
                continue
            if status is not None:
                now = time.perf_counter()
                load.statuses[status] += 1
                if status == 200:
                    load.latencies.append(now - one.began)
                elif status == 503:
                    load.refused_s.append(now - one.began)
                if now >= end:
                    selector.unregister(one.socket)
                    one.socket.close()
                    open_ones -= 1
                    continue
                one.begin()
            wanted = _wanted(one)
            if wanted != key.events:
                selector.modify(one.socket, wanted, one)
    load.seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    load.cpu_s = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    return load


def _wanted(one: Connection) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if one.sent < len(one.request) else 0)


def inputs_for(
    address: str, model: str, key: str = "", batch: int = 1, seed: int = 0
) -> list[tuple[str, str, list[int], bytes]]:
    """Name, datatype, shape and bytes of random inputs of the shapes that the server reports.

    -1 is `batch` in the first dimension and 1 elsewhere.
    """
    parts = urlsplit(address)
    asked = http.client.HTTPConnection(parts.hostname or "", parts.port or 8000, timeout=30)
    asked.request("GET", f"/v2/models/{model}", headers={"X-API-Key": key} if key else {})
    metadata = json.loads(asked.getresponse().read())
    asked.close()
    rng = np.random.default_rng(seed)
    found = []
    for told in metadata["inputs"]:
        shape = [(batch if i == 0 else 1) if d < 0 else d for i, d in enumerate(told["shape"])]
        raw = np.asarray(rng.random(shape)).astype(NUMPY[told["datatype"]]).tobytes()
        found.append((told["name"], told["datatype"], shape, raw))
    return found


def request_for(address: str, model: str, key: str = "", batch: int = 1, seed: int = 0) -> bytes:
    """A request with `inputs_for`."""
    given = inputs_for(address, model, key, batch, seed)
    inputs = [
        {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(raw)}}
        for name, datatype, shape, raw in given
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", f"Host: {urlsplit(address).netloc}"]
    lines += [f"X-API-Key: {key}"] if key else []
    lines += [f"Inference-Header-Content-Length: {len(text)}"]
    lines += [f"Content-Length: {len(text) + sum(len(raw) for *_, raw in given)}", "", ""]
    return b"".join(("\r\n".join(lines).encode(), text, *(raw for *_, raw in given)))


def resident(pid: int) -> int:
    """Resident memory of a process in bytes, 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.http_load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", help="http://HOST:PORT")
    parser.add_argument("model")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--key", default="", help="name of the environment variable that has the key")
    parser.add_argument("--pid", type=int, action="append", default=[], help="a process whose memory to look at")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    parts = urlsplit(options.address)
    request = request_for(options.address, options.model, os.environ.get(options.key, ""), options.batch)
    place = parts.hostname or "127.0.0.1", parts.port or 8000
    load = run(place, request, options.connections, options.seconds, options.pid)
    raw = load.to_raw()
    print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in raw.items() if k != "memory"))
    if load.memory:
        first, half, last = (load.memory[i][1] / 1e6 for i in (0, len(load.memory) // 2, -1))
        print(f"memory {first:.1f} MB first, {half:.1f} MB halfway, {last:.1f} MB last")
    if options.json is not None:
        options.json.write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
