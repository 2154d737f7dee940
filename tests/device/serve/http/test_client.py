"""Triton's client from PyPI and malformed requests, against a process of `opalite serve`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ....fuzz.requests import run
from ....helpers import triton_calls


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = triton_calls.make_models(tmp_path_factory.mktemp("serve") / "models")
    command = [sys.executable, "-m", "opalite", "serve", "--repository", str(folder), "--port", "0"]
    device = os.environ.get("OPALITE_DEVICE", "cpu")
    served = subprocess.Popen([*command, "--device", device], stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        line = served.stdout.readline()
        assert line.startswith("ready: counts (1), flags (1), half (1), sums (1) "), line
        yield line[line.index("http://") :].split()[0]
        served.send_signal(signal.SIGTERM)
        assert served.wait(30) == 0
    finally:
        served.kill()
        served.wait()


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[triton_calls.Client]:
    with triton_calls.triton.InferenceServerClient(address.removeprefix("http://"), concurrency=4) as client:
        yield client


@pytest.mark.parametrize("call", triton_calls.CALLS, ids=lambda call: call.__name__)
def test_a_call(client: triton_calls.Client, call: Callable[[triton_calls.Client], None]) -> None:
    call(client)


def test_it_answers_after_malformed_requests(address: str) -> None:
    _, wrong = run(("127.0.0.1", int(address.rpartition(":")[2])), range(1000, 1100))
    assert not wrong
