"""Triton's client from PyPI, against a server that is a double."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from opalite.serve.http.http_server import HttpFront, HttpSettings
from opalite.serve.run_servers import serving
from opalite.serve.wire.listening_front import Key

from ....helpers import triton_calls
from ....helpers.serving import Double
from ....helpers.triton_both_calls import CALLS, Call

SECRET = "a-long-secret"


def connected(address: str) -> triton_calls.Client:
    return triton_calls.triton.InferenceServerClient(address.removeprefix("http://"), concurrency=4)


@pytest.fixture(scope="module")
def client() -> Iterator[triton_calls.Client]:
    with serving(Double, [HttpFront(HttpSettings(port=0))]) as (address,), connected(address) as client:
        yield client


@pytest.mark.parametrize("call", [*triton_calls.CALLS, *triton_calls.OF_TEXTS], ids=lambda call: call.__name__)
def test_a_call(client: triton_calls.Client, call: Callable[[triton_calls.Client], None]) -> None:
    call(client)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_call_of_both_protocols(client: triton_calls.Client, call: Call) -> None:
    call(triton_calls.triton, client)


def test_the_key_is_asked_for() -> None:
    front = HttpFront(HttpSettings(port=0, key=Key(SECRET)))
    with serving(Double, [front]) as (address,), connected(address) as client:
        assert client.is_server_ready(), "health stays open"
        triton_calls.fails(client.get_server_metadata, "401", "X-API-Key")
        triton_calls.fails(lambda: client.get_server_metadata(headers={"X-API-Key": "another-secret"}), "401")
        assert client.get_server_metadata(headers={"X-API-Key": SECRET})
        assert client.get_server_metadata(headers={"Authorization": f"Bearer {SECRET}"})
        triton_calls.sums(client, headers={"X-API-Key": SECRET})
    closed = HttpFront(HttpSettings(port=0, key=Key(SECRET), open_health=False))
    with serving(Double, [closed]) as (address,), connected(address) as client:
        assert not client.is_server_ready()
        assert client.is_server_ready(headers={"X-API-Key": SECRET})
