"""Connections of a real port: limits of time and size, and clients that go away."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from opalite.serve.http.http_server import HealthFront, HttpFront, HttpSettings
from opalite.serve.run_servers import serving
from opalite.serve.wire.client_limits import HttpLimits
from opalite.serve.wire.listening_front import Key

from ....helpers.asgi import tensor
from ....helpers.serving import Double

LIMITS = HttpLimits(header_bytes=4096, connections=4, body_bytes=1 << 20)
HASTY = dataclasses.replace(LIMITS, header_s=0.3, body_s=0.4, idle_s=0.5)
PATIENCE_S = 60.0
SUM = json.dumps({"inputs": [tensor(n, "FP32", [1, 4], [1.0, 2, 3, 4]) for n in "ab"]}).encode()


@contextmanager
def running(double: Double, limits: HttpLimits = LIMITS) -> Iterator[Callable[[], socket.socket]]:
    front = HttpFront(HttpSettings(port=0, limits=limits))
    with serving(lambda: double, [front], grace_s=PATIENCE_S) as (address,):
        host, _, port = address.removeprefix("http://").partition(":")
        opened: list[socket.socket] = []

        def connect() -> socket.socket:
            opened.append(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            return opened[-1]

        yield connect
        for each in opened:
            each.close()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Double, Callable[[], socket.socket]]]:
    double = Double()
    with running(double) as connect:
        yield double, connect


@pytest.fixture(scope="module")
def hasty() -> Iterator[Callable[[], socket.socket]]:
    """Connections of a server that waits less than a second."""
    with running(Double(), HASTY) as connect:
        yield connect


def request(path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


def answer(s: socket.socket) -> tuple[int, Any]:
    """Status and JSON of the next answer."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = s.recv(1)
        assert piece, f"the connection ended after {head!r}"
        head += piece
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = b""
    length = int(lengths[0].split(b":")[1])
    while len(body) < length:
        body += s.recv(length - len(body))
    return int(head.split()[1]), json.loads(body or b"null")


def is_closed(s: socket.socket) -> bool:
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_one_connection_serves_many_requests(server: Any) -> None:
    _, connect = server
    s = connect()
    big = SUM[:-1] + b', "parameters": {"pad": "' + b"x" * 400_000 + b'"}}'
    for body in (SUM, big, SUM, big):
        s.sendall(request("/v2/models/sums/infer", body))
        status, told = answer(s)
        assert (status, told["outputs"][0]["data"]) == (200, [2.0, 4.0, 6.0, 8.0])
    s.sendall(request("/v2/models/sums/infer", big) * 3)
    assert [answer(s)[0] for _ in range(3)] == [200] * 3, "requests that come before the last one's answer"
    s.close()


def test_bodies_come_in_pieces(server: Any) -> None:
    _, connect = server
    s = connect()
    big = request("/v2/models/sums/infer", SUM + b" " * 100_000)
    for at in range(0, len(big), 9973):
        s.sendall(big[at : at + 9973])
        time.sleep(0.001)
    assert answer(s)[0] == 200
    s.close()


@pytest.mark.parametrize("size", [100, 20_000, 400_000])
def test_a_body_that_nobody_wants_is_answered_before_it_comes(server: Any, size: int) -> None:
    double, connect = server
    body = SUM + b" " * size
    whole = request("/v2/models/sums/infer", body)
    s = connect()
    double.refusing.add("sums")
    for came in (len(whole) - len(body), len(whole) - len(body) // 2, len(whole)):
        s.sendall(whole[:came])
        status, told = answer(s)
        assert (status, "wait for the model" in told["error"]) == (503, True)
        s.sendall(whole[came:])
    double.refusing.clear()
    s.sendall(whole)
    assert answer(s)[0] == 200, "the connection goes on behind bodies that were thrown away"
    s.close()


def test_a_head_and_its_body_are_told_apart_wherever_they_are_cut(server: Any) -> None:
    _, connect = server
    s = connect()
    whole = request("/v2/models/sums/infer", SUM + b" " * 16_300)
    assert len(whole) > 16 * 1024
    head = len(whole) - len(SUM) - 16_300
    for cut in (head - 1, head, head + 1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, len(whole) - 1):
        s.sendall(whole[:cut])
        time.sleep(0.01)
        s.sendall(whole[cut:] + whole)  # the next request comes behind it at once
        assert [answer(s)[0] for _ in range(2)] == [200, 200]
    s.close()


@pytest.mark.parametrize("first", [b"", b"POST /v2 HTTP/1.1\r\nhost: x\r\n", b"GET /v2 HTTP/1.1\r\nx: "])
def test_headers_have_to_come_in_time(hasty: Any, first: bytes) -> None:
    s = hasty()
    s.sendall(first)
    started = time.monotonic()
    assert answer(s)[0] == 408
    assert is_closed(s)
    assert time.monotonic() - started > 0.2


@pytest.mark.parametrize("headers", [b"x: " + b"y" * 300_000, b"x: y\r\n" * 2000, b"x" * 300_000])
def test_headers_have_a_size(server: Any, headers: bytes) -> None:
    _, connect = server
    s = connect()
    try:
        s.sendall(b"GET /v2 HTTP/1.1\r\n")
        for at in range(0, len(headers), 1000):
            s.sendall(headers[at : at + 1000])
        s.sendall(b"\r\n\r\n")
        status, _ = answer(s)
        assert status in (400, 431)
    except (BrokenPipeError, ConnectionResetError):
        return  # it was closed while this was still sending
    assert is_closed(s)


def test_bodies_have_to_come_in_time(hasty: Any) -> None:
    for size in (500, 50_000):
        s = hasty()
        s.sendall(request("/v2/models/sums/infer", SUM + b" " * size)[:-size])
        assert answer(s)[0] == 408
        assert is_closed(s), "what is left of the body does not come either"


def test_idle_connections_are_closed(hasty: Any) -> None:
    s = hasty()
    started = time.monotonic()
    s.sendall(request("/v2/models/sums/infer", SUM))
    assert answer(s)[0] == 200
    assert is_closed(s)
    assert time.monotonic() - started > 0.3


def test_there_are_only_so_many_in_use() -> None:
    double = Double(slow_s=60)
    with running(double) as connect:
        for _ in range(LIMITS.connections):
            connect().sendall(request("/v2/models/sums/infer", SUM))
        assert eventually(lambda: len(double.requests) == LIMITS.connections)
        status, told = answer(connect())
        assert (status, "4 connections" in told["error"]) == (503, True)


@pytest.mark.parametrize(
    "garbage",
    [b"\0\1\2\3\r\n\r\n", b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
     b"POST /v2 HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
     b"POST /v2 HTTP/1.1\r\ncontent-length: x\r\n\r\n",
     b"POST /v2/models/sums/infer HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"],
)  # fmt: skip
def test_what_is_no_request_is_refused(server: Any, garbage: bytes) -> None:
    _, connect = server
    s = connect()
    s.sendall(garbage)
    status, told = answer(s)
    assert (status, "error" in told) == (400, True)
    s.close()
    test_one_connection_serves_many_requests(server)


def test_a_client_that_leaves_takes_its_request_along() -> None:
    double = Double(slow_s=PATIENCE_S)
    with running(double) as connect:
        s = connect()
        s.sendall(request("/v2/models/sums/infer", SUM))
        assert eventually(lambda: bool(double.requests))
        s.close()
        assert eventually(lambda: double.cancelled == 1)
        assert double.finished == 0


def test_a_client_that_leaves_ends_the_text() -> None:
    double = Double(slow_s=0.01)
    with running(double) as connect:
        s = connect()
        body = b'{"text_input": "one two three", "max_tokens": 1000}'
        s.sendall(request("/v2/models/writer/generate_stream", body))
        while double.pieces < 5:
            s.recv(4096)
        s.close()
        assert eventually(lambda: double.cancelled == 1)
        assert double.pieces < 3000


def test_stopping_finishes_what_was_accepted() -> None:
    double = Double(slow_s=0.3)
    front = HttpFront(HttpSettings(port=0, limits=LIMITS))
    with serving(lambda: double, [front], grace_s=PATIENCE_S) as (address,):
        place = "127.0.0.1", int(address.rpartition(":")[2])
        s, idle = (socket.create_connection(place, timeout=PATIENCE_S) for _ in range(2))
        s.sendall(request("/v2/models/sums/infer", SUM))
        assert eventually(lambda: bool(double.requests))
    assert double.finished == 1
    assert answer(s)[0] == 200
    assert is_closed(s)
    assert is_closed(idle)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, timeout=PATIENCE_S)
    s.close()
    idle.close()


def test_what_takes_longer_than_the_grace_is_told() -> None:
    double = Double(slow_s=30)
    front = HttpFront(HttpSettings(port=0, limits=LIMITS))
    with serving(lambda: double, [front], grace_s=0.2) as (address,):
        s = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE_S)
        s.sendall(request("/v2/models/sums/infer", SUM))
        assert eventually(lambda: bool(double.requests))
    assert answer(s) == (503, {"error": "the server stops; the request was not finished in time"})
    s.close()


@pytest.mark.parametrize("size", [0, 50_000])
def test_an_offer_of_another_protocol_is_ignored(server: Any, size: int) -> None:
    """Java's client offers HTTP/2 with its first request."""
    _, connect = server
    s = connect()
    offer = {"connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAA"}
    for headers in (offer, {}, offer):
        s.sendall(request("/v2/models/sums/infer", SUM + b" " * size, **headers))
        status, told = answer(s)
        assert (status, told["outputs"][0]["data"]) == (200, [2.0, 4.0, 6.0, 8.0])
    s.close()


def test_bytes_are_held_when_they_have_come() -> None:
    """Sockets that declare bodies and send nothing take no memory from others."""
    limits = HttpLimits(body_bytes=1 << 20)
    body = SUM + b" " * 600_000
    whole = request("/v2/models/sums/infer", body)
    with running(Double(memory_bytes=1 << 20), limits) as connect:
        silent = [connect() for _ in range(8)]
        for s in silent:
            s.sendall(whole[: len(whole) - len(body)])
        s = connect()
        s.sendall(whole)
        assert answer(s)[0] == 200
        silent[0].sendall(body[:-1])
        # The rest of this one does not fit beside it; it is refused before its end.
        silent[1].sendall(body[:-1])
        assert {answer(silent[1])[0]} == {503}
        silent[0].sendall(body[-1:])
        assert answer(silent[0])[0] == 200
        s.sendall(whole)
        assert answer(s)[0] == 200


def test_a_request_on_its_way_when_the_server_stops_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opalite.serve.http.uvicorn_connection._LAST_REQUEST_S", 20.0)
    front = HttpFront(HttpSettings(port=0, limits=HttpLimits()))
    statuses: list[int] = []

    def send_late() -> None:
        with suppress(ConnectionError):
            while True:  # until the port is closed
                socket.create_connection(place, timeout=PATIENCE_S).close()
        s.sendall(request("/v2/models/sums/infer", SUM))
        statuses.append(answer(s)[0])

    with serving(Double, [front], grace_s=30.0) as (address,):
        place = "127.0.0.1", int(address.rpartition(":")[2])
        s = socket.create_connection(place, timeout=30)
        s.sendall(request("/v2/models/sums/infer", SUM))
        statuses.append(answer(s)[0])
        late = threading.Thread(target=send_late)
        late.start()
    late.join()
    assert statuses == [200, 200]
    assert is_closed(s)


@pytest.mark.parametrize("sent", [b"", b"GET /v2 HTTP/1.1\r\nx: "])
def test_idle_and_slow_connections_make_room(sent: bytes) -> None:
    limits = HttpLimits(connections=4)
    with running(Double(), limits) as connect:
        kept = connect()
        kept.sendall(request("/v2/models/sums/infer", SUM))
        assert answer(kept)[0] == 200
        others = []
        for _ in range(40):
            others.append(connect())
            others[-1].sendall(sent)
        for _ in range(3):
            s = connect()
            s.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            assert answer(s) == (200, {"live": True})
        assert is_closed(kept), "the longest idle one"


def test_slow_bodies_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opalite.serve.http.uvicorn_connection._BODY_S", 0.2)
    with running(Double(), HttpLimits(connections=4)) as connect:
        slow = [connect() for _ in range(4)]
        for s in slow:
            s.sendall(request("/v2/models/sums/infer", SUM)[:-10])
        assert eventually(lambda: _is_served(connect()))


def _is_served(s: socket.socket) -> bool:
    s.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
    with suppress(AssertionError, ConnectionError):
        return answer(s)[0] == 200
    return False


def test_health_has_a_port_of_its_own() -> None:
    front = HttpFront(HttpSettings(port=0, key=Key("a-secret-key"), limits=LIMITS))
    health = HealthFront("127.0.0.1", 0)
    assert not health.is_open
    with serving(Double, [front, health]) as addresses:
        place = "127.0.0.1", int(addresses[1].rpartition(":")[2])
        with socket.create_connection(place, timeout=PATIENCE_S) as s:
            for path, status in (("live", 200), ("ready", 200)):
                s.sendall(b"GET /v2/health/%s HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode())
                assert answer(s)[0] == status
            s.sendall(request("/v2/models/sums/infer", SUM))
            assert answer(s)[0] == 404
