"""Bodies are refused before they are held, and are counted as long as they are."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest

from opalite.serve.http.asgi_app import App
from opalite.serve.http.request_body import ACCOUNT, BodyReader, DisconnectedError
from opalite.serve.wire.client_limits import HttpLimits
from opalite.serve.wire.memory_budget import MemoryBudget
from opalite.serve.wire.serve_errors import MemoryFull

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


def test_a_body_is_counted_as_it_was_decompressed() -> None:
    budget = MemoryBudget(10_000)
    assert len(read(budget, [gzip.compress(b"\0" * 9000)], b"gzip")) == 9000
    with pytest.raises(MemoryFull, match="--request-memory-mb"):
        read(budget, [gzip.compress(b"\0" * 20_000)], b"gzip")
    assert budget.held == 0


def test_a_body_that_does_not_fit_is_refused_at_once() -> None:
    budget = MemoryBudget(100)
    other = budget.account("1.2.3.4")
    other.add(50)
    with pytest.raises(MemoryFull):
        read(budget, [b"x" * 60, b"never read"])
    assert (budget.held, read(budget, [b"x" * 50]).nbytes) == (50, 50)


def test_a_client_that_leaves_frees_what_it_held() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(DisconnectedError):
        read(budget, [b"x" * 60, None])
    assert budget.held == 0


def read(budget: MemoryBudget, pieces: list[bytes | None], encoding: bytes = b"identity") -> memoryview:
    """pieces: of the body; None where the client leaves."""

    async def receive() -> Any:
        piece = pieces.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    account = budget.account("1.2.3.5")
    headers = {b"transfer-encoding": b"chunked", b"content-encoding": encoding}
    try:
        return asyncio.run(BodyReader(HttpLimits()).read({ACCOUNT: account}, headers, receive))
    finally:
        account.close()
