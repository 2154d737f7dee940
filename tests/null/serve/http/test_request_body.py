"""Bodies are refused before they are held, and are counted as long as they are."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest

from opalite.serve.http.asgi_app import App
from opalite.serve.http.request_body import BodyReader, DisconnectedError
from opalite.serve.wire.client_limits import HttpLimits
from opalite.serve.wire.serve_errors import Busy

from ....helpers.asgi import Reply, ask, post
from ....helpers.serving import Double

PATH = "/v2/models/sums/infer"


def refused(body: Any, limits: HttpLimits, headers: dict[str, str] | None = None, **how: Any) -> Reply:
    return post(App(Double(), limits), PATH, body, headers, **how)


def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    reply = refused(b"", HttpLimits(body_bytes=100), {"Content-Length": "101"}, hang=True)
    assert (reply.status, "101 bytes, and 100" in reply.error) == (413, True)


def test_chunks_are_refused_where_they_pass_the_limit() -> None:
    taken = []

    def pieces() -> Any:
        for _ in range(11):
            taken.append(1)
            yield b"x" * 10

    assert refused(pieces(), HttpLimits(body_bytes=100)).status == 413
    assert refused([b'{"inputs"', b": []}"], HttpLimits()).status == 400, "chunks within it are joined"


@pytest.mark.parametrize("declared", ["5", "3000", "20000", "99999999999999999999", "-1", "1e3"])
def test_a_length_that_lies_is_refused(declared: str) -> None:
    assert refused(b"{} " * 100, HttpLimits(), {"Content-Length": declared}).status in (400, 413)


def test_a_length_is_wanted() -> None:
    async def run() -> Reply:
        return await ask(App(Double(), HttpLimits()), "POST", PATH, [b"{}"], {"Transfer-Encoding": "identity"})

    assert asyncio.run(run()).status == 411


def test_unknown_encodings_are_refused() -> None:
    for encoding in ("br", "gzip, gzip", "zstd"):
        reply = refused(b"{}", HttpLimits(), {"Content-Encoding": encoding})
        assert (reply.status, encoding in reply.error) == (415, True)


@pytest.mark.parametrize("size", [2_000_000, 200_000_000])
def test_what_inflates_beyond_the_limit_is_refused(size: int) -> None:
    bomb = gzip.compress(b"\0" * size)
    reply = refused(bomb, HttpLimits(body_bytes=1_000_000), {"Content-Encoding": "gzip"})
    assert (reply.status, "decompressed" in reply.error) == (413, True)


@pytest.mark.parametrize(
    "body",
    [b"no gzip", gzip.compress(b"{}")[:-4], gzip.compress(b"{}") + b"x", b"", zlib.compress(b"{}")[:-1]],
    ids=["not compressed", "cut", "longer", "empty", "zlib cut"],
)
def test_damaged_compressed_bodies_are_refused(body: bytes) -> None:
    reply = refused(body, HttpLimits(), {"Content-Encoding": "gzip"})
    assert (reply.status, "compressed" in reply.error) == (400, True)


def test_a_slow_body_is_given_up() -> None:
    reply = refused([b"{"], HttpLimits(body_s=0.05), hang=True)
    assert (reply.status, "0.05 seconds" in reply.error) == (408, True)


def test_all_bodies_together_have_a_limit() -> None:
    bodies = BodyReader(HttpLimits(held_bytes=100))

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 60, "more_body": False}

    async def run() -> None:
        headers = {b"content-length": b"60"}
        async with bodies.read({}, headers, receive) as body:
            assert (bytes(body), bodies.held) == (b"x" * 60, 60)
            with pytest.raises(Busy, match="memory"):
                async with bodies.read({}, headers, receive):
                    pass
            assert bodies.held == 60
        assert bodies.held == 0

    asyncio.run(run())


def test_a_client_that_leaves_frees_what_it_held() -> None:
    bodies = BodyReader(HttpLimits())
    messages: list[Any] = [{"type": "http.request", "body": b"x" * 60, "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def run() -> None:
        with pytest.raises(DisconnectedError):
            async with bodies.read({}, {b"content-length": b"100"}, receive):
                pass

    asyncio.run(run())
    assert bodies.held == 0


def test_a_client_has_a_share_of_the_memory() -> None:
    bodies = BodyReader(HttpLimits(held_bytes=100, body_bytes=40))

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 40, "more_body": False}

    async def run() -> None:
        headers = {b"content-length": b"40"}
        first, second = {"client": ("1.2.3.4", 5)}, {"client": ("1.2.3.5", 5)}
        async with bodies.read(first, headers, receive):
            with pytest.raises(Busy, match="this client's part"):
                async with bodies.read(first, headers, receive):
                    pass
            async with bodies.read(second, headers, receive):
                assert bodies.held == 80

    asyncio.run(run())
    assert (bodies.held, bodies._of_clients) == (0, {})
