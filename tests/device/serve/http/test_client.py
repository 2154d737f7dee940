"""Triton's client from PyPI and malformed requests, against a process of `opalite serve`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from ....fuzz.requests import run
from ....helpers import triton_calls
from ....helpers.triton_both_calls import CALLS, OF_DEVICES, Call


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Where HTTP and gRPC answer."""
    folder = triton_calls.make_models(tmp_path_factory.mktemp("serve") / "models")
    ports = ["--port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "opalite", "serve", "--repository", str(folder), *ports]
    device = os.environ.get("OPALITE_DEVICE", "cpu")
    served = subprocess.Popen([*command, "--device", device], stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        line = served.stdout.readline()
        assert line.startswith("ready: counts (1), echo (1), flags (1), half (1), sums (1), types (1) "), line
        yield line[line.index("http://") :].split(",")[0], line[line.index("grpc://") + 7 :].split()[0]
        served.send_signal(signal.SIGTERM)
        assert served.wait(30) == 0
    finally:
        served.kill()
        served.wait()


@pytest.fixture(scope="module")
def client(addresses: tuple[str, str]) -> Iterator[triton_calls.Client]:
    address = addresses[0]
    with triton_calls.triton.InferenceServerClient(address.removeprefix("http://"), concurrency=4) as client:
        yield client


@pytest.mark.parametrize("call", triton_calls.CALLS, ids=lambda call: call.__name__)
def test_a_call(client: triton_calls.Client, call: Callable[[triton_calls.Client], None]) -> None:
    call(client)


@pytest.mark.parametrize("api", [triton_http, triton_grpc], ids=["http", "grpc"])
@pytest.mark.parametrize("call", [*CALLS, *OF_DEVICES], ids=lambda call: call.__name__)
def test_a_call_of_both_protocols(addresses: tuple[str, str], api: Any, call: Call) -> None:
    address = addresses[1] if api is triton_grpc else addresses[0].removeprefix("http://")
    with api.InferenceServerClient(address) as client:
        call(api, client)


def test_it_answers_after_malformed_requests(addresses: tuple[str, str]) -> None:
    address = addresses[0]
    _, wrong = run(("127.0.0.1", int(address.rpartition(":")[2])), range(1000, 1100))
    assert not wrong
