"""Requests to an ASGI application without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def object(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert self.headers["content-type"] == "application/json"
        return self.object["error"]


async def ask(
    app: Any,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] = b"",
    headers: Mapping[str, str] | None = None,
    hang: bool = False,
) -> Reply:
    """body: in one piece with its length, or in several without one. hang: the body does not end."""
    sent = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
    if isinstance(body, bytes):
        pieces = [body]
        if method == "POST":
            sent.setdefault(b"content-length", b"%d" % len(body))
    else:
        pieces = list(body)
        sent.setdefault(b"transfer-encoding", b"chunked")
    messages = [{"type": "http.request", "body": p, "more_body": True} for p in pieces]
    if not hang:
        messages[-1]["more_body"] = False
    answers: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        return await asyncio.Future()

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": list(sent.items()), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    assert not answers[-1].get("more_body", False)
    found = {name.decode(): value.decode() for name, value in answers[0]["headers"]}
    whole = b"".join(a["body"] for a in answers[1:])
    if "content-length" in found:
        assert int(found["content-length"]) == len(whole)
    return Reply(answers[0]["status"], found, whole)


def get(app: Any, path: str, **headers: str) -> Reply:
    return asyncio.run(ask(app, "GET", path, headers=headers))


def post(app: Any, path: str, body: Any = b"", headers: Mapping[str, str] | None = None, **how: Any) -> Reply:
    """body: bytes, pieces of bytes, or an object to send as JSON."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    return asyncio.run(ask(app, "POST", path, body, headers, **how))


def tensor(name: str, datatype: str, shape: list[int], data: Any = None, **parameters: Any) -> dict[str, Any]:
    """An input as JSON has it."""
    told: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if data is not None:
        told["data"] = data
    if parameters:
        told["parameters"] = parameters
    return told


def binary(head: Any, *arrays: np.ndarray | bytes) -> tuple[bytes, dict[str, str]]:
    """A body with tensors behind its JSON, and the header that tells where they begin."""
    text = json.dumps(head).encode()
    behind = [a if isinstance(a, bytes) else a.tobytes() for a in arrays]
    return b"".join((text, *behind)), {"Inference-Header-Content-Length": str(len(text))}
