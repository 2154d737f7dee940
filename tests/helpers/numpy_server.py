"""A server with real worker processes whose sessions are NumPy's, for tests of what it does with requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

from opalite.serve.engine.inference_server import Server
from opalite.serve.engine.model_config import ServerSettings
from opalite.serve.engine.server_observer import ServerObservers
from opalite.serve.wire.infer_messages import InferRequest, InferResponse, Tensor

from .serve_sessions import HELD, Gates

FACTORY = "tests.helpers.serve_sessions:doubler"


class Seen:
    """An observer that records all events."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *told: self.calls.append((name, told))

    def of(self, name: str) -> list[Any]:
        return [told for called, told in self.calls if called == name]


def settings_of(folder: Path, **more: Any) -> ServerSettings:
    return ServerSettings(**{"repository": folder, "session_factory": FACTORY, **more})


def write(folder: Path, factor: str = "2", name: str = "m", version: int = 1) -> None:
    path = folder / name / str(version) / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(factor)


def request(*first: float, rows: int = 1, second: float = 0.0, **more: Any) -> InferRequest:
    x = np.array([[f, second, i] for f in first or (0.0,) for i in range(rows)], np.float32)
    return InferRequest("m", (Tensor("x", "FP32", x),), **more)


def gates(folder: Path) -> Gates:
    return Gates(folder / "m" / "1")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


async def hold(server: Server, seen: Seen, gate: Gates, number: int = 0) -> list[asyncio.Task[InferResponse]]:
    """Two requests: the worker runs one, which waits at the gate, and holds the other ahead."""
    held = [asyncio.create_task(server.infer(request(HELD, second=number)))]
    await until(lambda: gate.waiting(number) == 1)
    held.append(asyncio.create_task(server.infer(request(HELD, second=number))))
    before = len(seen.of("queued"))
    await until(lambda: len(seen.of("queued")) > before and seen.of("queued")[-1][2] == 0)
    return held


def found(response: InferResponse, name: str) -> Any:
    return next(t.array for t in response.outputs if t.name == name).tolist()


def served(folder: Path, test: Callable[[Server, Seen], Awaitable[None]], started: bool = True, **more: Any) -> Seen:
    seen = Seen()

    async def run() -> None:
        server = Server(settings_of(folder, **more))
        server.observers = ServerObservers([seen])  # type: ignore[list-item]
        try:
            await server.start()
            assert server.ready == started, server.index()
            await test(server, seen)
        finally:
            await server.close(2)

    asyncio.run(asyncio.wait_for(run(), 60))
    return seen
