"""Functions that run in a process of their own: results, errors, limits, ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import numpy as np
import pytest

from opalite.serve.engine.helper_process import HelperProcess
from opalite.serve.wire.client_limits import HttpLimits
from opalite.serve.wire.serve_errors import Invalid, TooLarge, WorkerLost

ENCODE, DECODE = (f"opalite.serve.http.json_beside_loop:{name}" for name in ("encode", "decode"))
LIMITS = asdict(HttpLimits())


def helped(test: Callable[[HelperProcess], Awaitable[None]]) -> None:
    async def run() -> None:
        helper = HelperProcess()
        try:
            await test(helper)
        finally:
            helper.close()

    asyncio.run(run())


async def encoded(helper: HelperProcess, count: int) -> list[float]:
    x = np.arange(count, dtype=np.float32)
    _, (text,) = await helper.call(ENCODE, [x.data], ["output 'y'", "FP32", count])
    return list(json.loads(bytes(text)))


def test_calls_are_answered_and_their_errors_told() -> None:
    async def test(helper: HelperProcess) -> None:
        answers = await asyncio.gather(*(encoded(helper, n) for n in (100_000, 3, 70_000)))
        assert [a == list(range(n)) for a, n in zip(answers, (100_000, 3, 70_000), strict=True)] == [True] * 3
        with pytest.raises(Invalid, match="is no JSON"):
            await helper.call(DECODE, [b"{"], LIMITS)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(encoded(helper, 300_000), 0.001)
        assert await encoded(helper, 2) == [0, 1]

    helped(test)


def test_small_calls_go_first() -> None:
    async def test(helper: HelperProcess) -> None:
        done: list[int] = []

        async def one(count: int) -> None:
            await encoded(helper, count)
            done.append(count)

        await asyncio.gather(*(one(n) for n in (1, 90_000, 80_000, 2)))
        assert done == [1, 2, 80_000, 90_000]

    helped(test)


def test_a_process_that_ends_is_replaced() -> None:
    async def test(helper: HelperProcess) -> None:
        held = asyncio.create_task(encoded(helper, 500_000))
        waiting = asyncio.create_task(encoded(helper, 600_000))
        await asyncio.sleep(0)
        assert helper._process is not None
        helper._process.kill()
        with pytest.raises(WorkerLost, match="send binary data"):
            await held
        assert len(await waiting) == 600_000

    helped(test)


def test_memory_is_limited() -> None:
    """Empty objects take twenty times the bytes of their text."""
    text = b'{"inputs": [' + b"{}," * 9_000_000 + b"{}]}"

    async def test(helper: HelperProcess) -> None:
        with pytest.raises(TooLarge, match="more memory"):
            await helper.call(DECODE, [text], LIMITS)
        with pytest.raises(TooLarge, match="besides the elements of inputs"):
            await helper.call(DECODE, [json.dumps({"id": "x" * 2_000_000}).encode()], LIMITS)
        assert await encoded(helper, 2) == [0, 1]

    helped(test)
