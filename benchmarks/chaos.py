"""Chaos around honest clients: kills, stops, hangs, reloads, slow and greedy clients beside 16 that only ask.

    python -m benchmarks.chaos MODEL.onnx [--seconds 600] [--connections 16]

Starts a server with the model and one whose runs do not end. The honest clients wait for each answer before they ask
again. Their requests may fail only where a killed worker held them; the others' troubles must not reach them. Prints a
line a minute, and at the end failures, percentiles, the longest gap between two answers of health, and memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import onnx
from onnx import TensorProto, helper, numpy_helper

_MIB = 1 << 20
_HELD = "ended while it held the request"
_OTHERS = "127.0.0.2"
"""The address of the clients that are not honest, so that their share of the memory is theirs."""


@dataclass
class Seen:
    """What the honest clients saw. failures: reasons of requests that no killed worker explains."""

    seconds: list[float] = field(default_factory=list)
    held: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


class Clients:
    """The clients of one process. log: the server's standard error and output."""

    def __init__(self, pid: int, log: Path, shape: list[int], name: str) -> None:
        self.pid, self.log, self.seen = pid, log, Seen()
        found = re.search(r"HTTP http://127\.0\.0\.1:(\d+), health http://127\.0\.0\.1:(\d+)", log.read_text())
        assert found, log.read_text()
        self.port, self.health = int(found[1]), int(found[2])
        x = np.zeros(shape, np.float32)
        inputs = [{"name": name, "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": x.nbytes}}]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        self.request = _post(
            "/v2/models/m/infer", head + x.tobytes(), f"Inference-Header-Content-Length: {len(head)}\r\n"
        )

    async def ask_honestly(self, seconds: float, connections: int) -> None:
        """Ask for some time, and for health."""
        end = time.monotonic() + seconds
        tasks = [asyncio.create_task(self._probe()), asyncio.create_task(self._tell())]
        await asyncio.gather(*(self._honest(end) for _ in range(connections)))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def make_trouble(self) -> None:
        """Make trouble until this process is ended, and say what is made."""
        troubles: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
            ("kill", 20, lambda: self._signal(signal.SIGKILL)),
            ("stop", 47, lambda: self._signal(signal.SIGSTOP)),
            ("hang", 13, self._hang),
            ("reload", 61, lambda: self._ask(_post("/v2/repository/models/m/load", b"{}"))),
            ("slow", 5, self._slow),
            ("greedy", 3, lambda: self._ask(_post("/v2/models/m/infer", bytes(100 * _MIB)))),
            ("bomb", 7, lambda: self._ask(_post("/v2/models/m/infer", _BOMB, "Content-Encoding: gzip\r\n"))),
            ("json", 11, lambda: self._ask(_post("/v2/models/m/infer", _JSON))),
        ]
        await asyncio.gather(*(self._repeat(*trouble) for trouble in troubles))

    async def _honest(self, end: float) -> None:
        seen, streams = self.seen, None
        while time.monotonic() < end:
            started = time.monotonic()
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", self.port)
                status, body = await asyncio.wait_for(_exchange(*streams, self.request), 60)
            except (OSError, EOFError, TimeoutError) as e:
                seen.failures[f"{type(e).__name__}: {e}"] += 1
                streams = None
                continue
            if status == 200:
                seen.seconds.append(time.monotonic() - started)
            elif _HELD in body.decode(errors="replace"):
                seen.held += 1
            else:
                seen.failures[f"{status} {body[:120].decode(errors='replace')}"] += 1
        if streams is not None:
            streams[1].close()

    async def _repeat(self, name: str, every_s: float, trouble: Callable[[], Awaitable[object]]) -> None:
        waiting: set[asyncio.Task[object]] = set()
        while True:
            await asyncio.sleep(every_s * random.uniform(0.5, 1.5))
            print(f"  {name}", flush=True)
            waiting = {t for t in waiting if not t.done()}
            if len(waiting) < 8:
                waiting.add(asyncio.ensure_future(trouble()))

    async def _signal(self, number: signal.Signals) -> None:
        """Signal the newest worker of the model."""
        found = re.findall(r"worker ready model=m .*pid=(\d+)", self.log.read_text())
        with suppress(ProcessLookupError):
            os.kill(int(found[-1]), number)

    async def _hang(self) -> None:
        numbers = {"name": "n", "datatype": "INT64", "shape": [], "data": [10**12]}
        values = {"name": "v0", "datatype": "FP32", "shape": [4], "data": [0, 0, 0, 0]}
        await self._ask(_post("/v2/models/loop/infer", json.dumps({"inputs": [numbers, values]}).encode()))

    async def _slow(self) -> None:
        """Connections that do nothing, whose headers do not end, and whose bodies do not."""
        begun = (b"", b"GET /v2 HTTP/1.1\r\nx: ", self.request[: len(self.request) // 2])
        opened = []
        for data, _ in itertools.product(begun, range(20)):
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(_OTHERS, 0))
                writer.write(data)
                opened.append(writer)
        await asyncio.sleep(20)
        for writer in opened:
            writer.transport.abort()

    async def _ask(self, request: bytes) -> None:
        with suppress(OSError, EOFError, TimeoutError):
            streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(_OTHERS, 0))
            try:
                await asyncio.wait_for(_exchange(*streams, request), 60)
            finally:
                streams[1].transport.abort()

    async def _probe(self) -> None:
        """Ask for health ten times a second, each time over a new connection."""
        last = time.monotonic()
        while True:
            streams = await asyncio.open_connection("127.0.0.1", self.health)
            status, _ = await _exchange(*streams, b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            streams[1].close()
            now = time.monotonic()
            self.seen.gaps.append(now - last if status == 200 else 1e9)
            last = now
            await asyncio.sleep(0.1)

    async def _tell(self) -> None:
        seen = self.seen
        for minute in itertools.count(1):
            before = len(seen.seconds)
            await asyncio.sleep(60)
            seen.memory.append(_resident(self.pid))
            p50, p99 = np.percentile(seen.seconds[before:] or [float("nan")], (50, 99)) * 1e3
            print(
                f"{minute} min: {len(seen.seconds) - before} answers, p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
                f"{seen.held} held by killed workers, {sum(seen.failures.values())} failures, "
                f"server {seen.memory[-1] // _MIB} MiB",
                flush=True,
            )

    def result(self) -> bool:
        """Print the result; whether it is good."""
        seen = self.seen
        p50, p99 = np.percentile(seen.seconds, (50, 99)) * 1e3
        times, longest = p99 / p50, max(seen.seconds)
        print(f"{len(seen.seconds)} answers, p50 {p50:.0f} ms, p99 {times:.1f} times this, at most {longest:.1f} s")
        print(f"{seen.held} requests were held by killed workers; other failures: {dict(seen.failures) or 'none'}")
        print(f"health: {len(seen.gaps)} answers, longest gap {max(seen.gaps):.2f} s")
        print(f"server's memory by minutes: {[m // _MIB for m in seen.memory]} MiB")
        return not seen.failures


_BOMB = gzip.compress(bytes(1 << 30))
_JSON = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": [' + b"1," * 5_000_000 + b"1]}]}"


def _post(path: str, body: bytes, headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    """Send a request; status and body of its answer, which may come before the request's end."""
    if len(request) < _MIB:
        writer.write(request)
    else:
        sending = asyncio.create_task(_send(writer, request))
        sending.add_done_callback(lambda task: task.exception())
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split()[1]), body


async def _send(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send a large request in parts: a transport moves all that it holds with each part that it sends."""
    for at in range(0, len(request), _MIB // 4):
        writer.write(request[at : at + _MIB // 4])
        await writer.drain()


def _resident(pid: int) -> int:
    """Resident bytes of a process, without the memory that it shares."""
    _, resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _endless() -> onnx.ModelProto:
    """A loop of `n` iterations."""
    value = helper.make_tensor_value_info
    ends = [value("co", TensorProto.BOOL, []), value("vo", TensorProto.FLOAT, [4])]
    starts = [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, [4])]
    nodes = [helper.make_node("Identity", ["c"], ["co"]), helper.make_node("Add", ["v", "one"], ["vo"])]
    body = helper.make_graph(nodes, "body", starts, ends, [numpy_helper.from_array(np.float32(1), "one")])
    inputs = [value("n", TensorProto.INT64, []), value("v0", TensorProto.FLOAT, [4])]
    loop = helper.make_node("Loop", ["n", "", "v0"], ["w"], body=body)
    graph = helper.make_graph([loop], "loop", inputs, [value("w", TensorProto.FLOAT, [4])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@contextmanager
def served(model: Path, log: Path | None) -> Iterator[tuple[int, Path]]:
    """Serve the model as `m`, and the loop; yields the server's process and its log."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("m", "loop"):
            (root / "models" / name / "1").mkdir(parents=True)
        (root / "models" / "m" / "1" / "model.onnx").write_bytes(model.read_bytes())
        onnx.save(_endless(), root / "models" / "loop" / "1" / "model.onnx")
        log = log or root / "log"
        command = [sys.executable, "-m", "opalite", "serve", "--repository", str(root / "models"), "--port", "0"]
        command += ["--health-port", "0", "--run-timeout", "5"]
        with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
            try:
                while "ready:" not in log.read_text():
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.2)
                yield process.pid, log
            finally:
                process.terminate()


def make_trouble(pid: int, log: Path, shape: list[int], name: str) -> None:
    """The main function of the process of the other clients."""
    asyncio.run(Clients(pid, log, shape, name).make_trouble())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="of one float input")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--log", type=Path, help="file for the server's output")
    asked = parser.parse_args()
    given = onnx.load(asked.model, load_external_data=False).graph.input[0]
    shape = [d.dim_value or 1 for d in given.type.tensor_type.shape.dim]
    with served(asked.model, asked.log) as (pid, log):
        clients = Clients(pid, log, shape, given.name)
        others = multiprocessing.get_context("spawn").Process(target=make_trouble, args=(pid, log, shape, given.name))
        others.start()
        try:
            asyncio.run(clients.ask_honestly(asked.seconds, asked.connections))
        finally:
            others.kill()
            others.join()
        good = clients.result()
    sys.exit(not good)


if __name__ == "__main__":
    main()
