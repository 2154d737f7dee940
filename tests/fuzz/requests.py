"""Malformed requests to a server of the Open Inference Protocol, after which it has to answer as before.

    python -m tests.fuzz.requests [--count 1000] [--seed 0] [--address http://127.0.0.1:8000]

Without an address a server of this process answers, whose models are functions. Another one has to serve `sums`, as
tests.helpers.triton_calls writes it. Each request is made from a sound one by one damage, which its seed draws: lengths
that lie, huge and negative shapes, values of other types, deep JSON, broken compression, bytes changed at random.
What is wrong: no answer in time, an answer that is no HTTP or no JSON, status 500, a sound request that fails after.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np

PATH = "/v2/models/sums/infer"
Place = tuple[str, int]


@dataclass
class Request:
    """A request as parts that can be damaged. declared: what Content-Length says, None for what is right."""

    head: Any
    behind: bytes = b""
    method: str = "POST"
    path: str = PATH
    header_length: int | None = None
    declared: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None
    raw: bytes | None = None
    cut: int | None = None

    def text(self) -> bytes:
        """The JSON part."""
        return self.head if isinstance(self.head, bytes) else json.dumps(self.head).encode()

    def encode(self) -> bytes:
        """All bytes of it."""
        if self.raw is not None:
            return self.raw
        text = self.text()
        body = text + self.behind if self.body is None else self.body
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: fuzz"]
        if self.behind:
            length = len(text) if self.header_length is None else self.header_length
            lines.append(f"Inference-Header-Content-Length: {length}")
        lines.append(f"Content-Length: {len(body) if self.declared is None else self.declared}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        whole = "\r\n".join((*lines, "", "")).encode("latin-1", "replace") + body
        return whole if self.cut is None else whole[: self.cut]


def sound(rng: random.Random) -> Request:
    """One that is right: both inputs as JSON, as binary data, or one of each."""
    a = np.array([rng.uniform(-9, 9) for _ in range(4)], np.float32)
    inputs, behind = [], b""
    for name in "ab":
        told: dict[str, Any] = {"name": name, "shape": [1, 4], "datatype": "FP32"}
        if rng.random() < 0.5:
            inputs.append({**told, "data": a.tolist()})
        else:
            inputs.append({**told, "parameters": {"binary_data_size": 16}})
            behind += a.tobytes()
    return Request({"inputs": inputs, "outputs": [{"name": "sum"}], "id": "fuzz"}, behind)


def _length(r: Request, rng: random.Random) -> None:
    r.declared = rng.choice([0, 1, len(r.text()) // 2, 10**9, 10**15, 10**40, len(r.text()) + len(r.behind) + 7, -5])


def _header_length(r: Request, rng: random.Random) -> None:
    r.behind = r.behind or b"\0" * 16
    r.header_length = rng.choice([0, 1, -1, 10**9, 10**40, len(r.text()) - 3, len(r.text()) + 3, len(r.text()) + 16])


def _shape(r: Request, rng: random.Random) -> None:
    shapes = [[-1, 4], [1, -4], [2**62, 2**62], [2**31, 2**31, 2**31], [0, 4], [4], [], [1] * 1000, [1.5, 4], ["1", 4],
              None, "1x4", {"0": 1}, [True, 4], [10**40], [[1, 4]], [1, 4, 1], [0, 2**63], [2**28, 4]]  # fmt: skip
    rng.choice(r.head["inputs"])["shape"] = rng.choice(shapes)


def _datatype(r: Request, rng: random.Random) -> None:
    names = ["FP64", "INT32", "BYTES", "BOOL", "FP16", "BF16", "fp32", "", None, 7, [], "FP32" * 1000, "UINT8", "\0"]
    rng.choice(r.head["inputs"])["datatype"] = rng.choice(names)


def _data(r: Request, rng: random.Random) -> None:
    datas = [[], [1, 2, 3], [1] * 5, [[1, 2], [3, 4]], [[1, 2], [3]], ["1"] * 4, [None] * 4, [True] * 4, {}, "1234", 5,
             [1e400] * 4, [float("nan")] * 4, [10**400] * 4, [[[[[1]]]]], [1, 2, 3, "x" * 10000], [{}] * 4]  # fmt: skip
    one = rng.choice(r.head["inputs"])
    one["data"] = rng.choice(datas)
    if rng.random() < 0.5:
        one.pop("parameters", None)


def _size(r: Request, rng: random.Random) -> None:
    one = rng.choice(r.head["inputs"])
    one["parameters"] = {"binary_data_size": rng.choice([0, 1, 15, 17, 32, -16, 2**40, 2**64, "16", 16.0, None, True])}


def _parameters(r: Request, rng: random.Random) -> None:
    values = [
        None, [], {"a": []}, {"timeout": -1}, {"priority": "x"}, {"timeout": 2**70}, {"binary_data_output": "no"},
        {"classification": 3}, {"shared_memory_region": "/etc/passwd"}, {"sequence_id": 5}, {"x" * 9999: 1},
    ]  # fmt: skip
    rng.choice([r.head, *r.head["inputs"], *r.head["outputs"]])["parameters"] = rng.choice(values)


def _names(r: Request, rng: random.Random) -> None:
    one = rng.choice([*r.head["inputs"], *r.head["outputs"]])
    one["name"] = rng.choice(["", None, 5, "../../etc/passwd", "x" * 5000, "a\0", "\ud800", [], "b"])


def _outputs(r: Request, rng: random.Random) -> None:
    classes = [{"name": "sum", "parameters": {"classification": n}} for n in (-1, 0, 10**9, 2**70, "2", True)]
    r.head["outputs"] = rng.choice(
        [{}, [{}], [None], [{"name": "sum"}] * 2, [{"name": "product"}], 5, *([c] for c in classes)]
    )


def _top(r: Request, rng: random.Random) -> None:
    r.head = rng.choice([[], None, 5, "x", {}, {"inputs": None}, {"inputs": []}, {"inputs": [5]}, {**r.head, "id": 5}])


def _deep(r: Request, rng: random.Random) -> None:
    depth = rng.choice([50, 1000, 100_000])
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    r.head = b'{"inputs": ' + opening * depth + b"1" + closing * rng.choice([0, depth]) + b"}"


def _numbers(r: Request, rng: random.Random) -> None:
    text = r.text()
    r.head = text.replace(b"1", rng.choice([b"1e999", b"-", b"1" * 5000, b"0x1", b"NaN", b"-Infinity", b"1e-999"]), 2)


def _bytes(r: Request, rng: random.Random) -> None:
    body = bytearray(r.text() + r.behind)
    for _ in range(rng.choice([1, 3, 30])):
        body[rng.randrange(len(body))] = rng.randrange(256)
    r.body = bytes(body)


def _cut_body(r: Request, rng: random.Random) -> None:
    r.body = (r.text() + r.behind)[: rng.randrange(len(r.text()))]


def _cut(r: Request, rng: random.Random) -> None:
    r.cut = rng.randrange(1, len(r.encode()))


def _raw(r: Request, rng: random.Random) -> None:
    whole = bytearray(r.encode())
    for _ in range(rng.choice([1, 3, 30])):
        at = rng.randrange(len(whole))
        if rng.random() < 0.3:
            del whole[at]
        else:
            whole[at] = rng.randrange(256)
    r.raw = bytes(whole)


def _noise(r: Request, rng: random.Random) -> None:
    r.raw = rng.randbytes(rng.choice([1, 100, 10_000])) + b"\r\n\r\n"


def _compressed(r: Request, rng: random.Random) -> None:
    packed = bytearray(
        gzip.compress(rng.choice([r.text() + r.behind, b"\0" * 200_000_000 if rng.random() < 0.02 else b""]))
    )
    if packed and rng.random() < 0.7:
        packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    r.body = bytes(packed)
    r.headers.append(("Content-Encoding", rng.choice(["gzip", "deflate", "br", "gzip, deflate", "\x01"])))


def _path(r: Request, rng: random.Random) -> None:
    names = [
        "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "a" * 5000, "%00", "sums/versions/99", "sums/versions/-1", "%ff",
        "sums/versions/" + "9" * 400, "sums%2f..", "~root", "C:\\x", "nothing", "sums/versions/1.5", "%",
    ]  # fmt: skip
    r.path = rng.choice([f"/v2/models/{rng.choice(names)}/infer", "/", "//", "/v2/../..", "*", "/v2/models//infer"])


def _method(r: Request, rng: random.Random) -> None:
    r.method = rng.choice(["GET", "PUT", "DELETE", "HEAD", "TRACE", "CONNECT", "X" * 300, "post", ""])


def _headers(r: Request, rng: random.Random) -> None:
    r.headers += rng.choice([
        [("Transfer-Encoding", "chunked")], [("Content-Length", "3")], [("X" * 50_000, "1")], [("X", "y" * 100_000)],
        [("X", "y")] * 5000, [("Upgrade", "websocket"), ("Connection", "Upgrade")], [("Expect", "100-continue")],
        [("Accept-Encoding", "\xff")], [("Connection", "close")], [("Origin", "http://elsewhere")], [("A\x00", "b")],
        [("traceparent", "\xff" * 100)], [("Authorization", "Bearer \xff")], [("Content-Type", "text/xml")],
    ])  # fmt: skip


DAMAGES: Sequence[Callable[[Request, random.Random], None]] = (
    _length, _header_length, _shape, _datatype, _data, _size, _parameters, _names, _outputs, _top, _deep, _numbers,
    _bytes, _cut_body, _cut, _raw, _noise, _compressed, _path, _method, _headers,
)  # fmt: skip


def send(place: Place, data: bytes, patience_s: float, waits: bool = False) -> bytes:
    """All that the server answers until it closes. waits: it does so itself; who ends his side has left."""
    answer = b""
    with socket.create_connection(place, timeout=patience_s) as s:
        try:
            s.sendall(data)
            if not waits:
                with contextlib.suppress(OSError):  # the server has closed already
                    s.shutdown(socket.SHUT_WR)  # what is cut short is seen as that
            while piece := s.recv(65536):
                answer += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
    return answer


def judge(answer: bytes, is_head: bool) -> str:
    """What is wrong with an answer; '' for nothing."""
    if not answer:
        return ""  # a request that is cut short is no request
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end or not head.startswith(b"HTTP/1.1 "):
        return f"no HTTP: {answer[:80]!r}"
    status = int(head[9:12])
    if status == 100:
        return judge(body, is_head)
    if status == 500:
        return f"status 500: {body[:300]!r}"
    length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
    first = body[: int(length)] if length.isdigit() else body
    if status >= 400 and not is_head:
        try:
            json.loads(first)["error"]
        except (ValueError, KeyError, TypeError):
            return f"status {status} without an error: {first[:80]!r}"
    return ""


def is_well(place: Place) -> bool:
    """Whether a sound request is answered right."""
    request = sound(random.Random(1))
    request.headers.append(("Connection", "close"))
    answer = send(place, request.encode(), 10.0, waits=True)
    values = [i["data"] for i in request.head["inputs"] if "data" in i]
    values = values or [np.frombuffer(request.behind[:16], np.float32).tolist()]
    if not answer.startswith(b"HTTP/1.1 200 "):
        return False
    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    return bool(np.allclose(told["outputs"][0]["data"], np.array(values[0]) * 2))


def damaged(seed: int) -> tuple[str, Request]:
    """The request of a seed, and the damage's name."""
    rng = random.Random(seed)
    request = sound(rng)
    damage = rng.choice(DAMAGES)
    damage(request, rng)
    return damage.__name__.strip("_"), request


def run(place: Place, seeds: Sequence[int], patience_s: float = 10.0) -> tuple[Counter[str], list[str]]:
    """Answers by status, and what was wrong."""
    statuses: Counter[str] = Counter()
    wrong = []
    for number, seed in enumerate(seeds):
        name, request = damaged(seed)
        try:
            answer = send(place, request.encode(), patience_s)
            statuses[answer[9:12].decode("latin-1") or "closed"] += 1
            problem = judge(answer, request.method == "HEAD")
        except OSError as e:
            problem = f"{type(e).__name__}: {e}"
        if problem:
            wrong.append(f"seed {seed} ({name}): {problem}")
        if number % 50 == 49 and not is_well(place):
            wrong.append(f"after seed {seed} a sound request fails")
    if not is_well(place):
        wrong.append("a sound request fails in the end")
    return statuses, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.requests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--address", help="http://HOST:PORT of a server")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    started = time.perf_counter()
    if options.address:
        parts = urlsplit(options.address)
        statuses, wrong = run((parts.hostname or "127.0.0.1", parts.port or 8000), seeds)
    else:
        statuses, wrong = run_here(seeds)
    told = ", ".join(f"{n} x {status}" for status, n in sorted(statuses.items()))
    print(f"{options.count} requests in {time.perf_counter() - started:.1f} s: {told}; {len(wrong)} wrong")
    print("\n".join(wrong[:20]))
    return 1 if wrong else 0


def run_here(seeds: Sequence[int]) -> tuple[Counter[str], list[str]]:
    """The same against a server of this process."""
    from opalite.serve.http.http_server import HttpFront, HttpSettings
    from opalite.serve.run_servers import serving
    from opalite.serve.wire.client_limits import HttpLimits

    from ..helpers.serving import Double

    limits = HttpLimits(body_bytes=1 << 24, header_s=2.0, body_s=2.0)
    with serving(Double, [HttpFront(HttpSettings(port=0, limits=limits))]) as (address,):
        return run(("127.0.0.1", int(address.rpartition(":")[2])), seeds)


if __name__ == "__main__":
    sys.exit(main())
