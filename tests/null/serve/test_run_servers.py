"""Starting and stopping: signals, ports that are taken, certificates, what is said."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opalite.errors import InputError
from opalite.serve.http.http_server import HttpFront, HttpSettings
from opalite.serve.run_servers import serving
from opalite.serve.wire.listening_front import Key

from ...helpers.asgi import tensor
from ...helpers.certificate import make_certificate
from ...helpers.serving import Double

SUM = json.dumps({"inputs": [tensor(n, "FP32", [1, 4], [1.0, 2, 3, 4]) for n in "ab"]}).encode()
PATIENCE_S = 60.0
ROOT = Path(__file__).parents[3]
CODE = """
import sys
from opalite.serve.http.http_server import HttpFront, HttpSettings
from opalite.serve.run_servers import run
from tests.helpers.serving import Double
class Telling(Double):
    async def _wait(self):
        print("begun", flush=True)
        await super()._wait()
double = Telling(slow_s=float(sys.argv[1]))
run(lambda: double, [HttpFront(HttpSettings(port=0))], 5.0, lambda line: print(line, flush=True))
"""


@contextmanager
def process(slow_s: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves, and its port."""
    command = [sys.executable, "-c", CODE, str(slow_s)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert started.stdout is not None
    try:
        line = started.stdout.readline()
        assert line.startswith("ready: counts (1), "), line
        assert " on functions at HTTP http://127.0.0.1:" in line
        yield started, int(line.strip().rpartition(":")[2])
    finally:
        started.kill()
        started.wait()


def next_line(served: subprocess.Popen[str]) -> str:
    assert served.stdout is not None
    return served.stdout.readline().strip()


def begin(served: subprocess.Popen[str], port: int) -> http.client.HTTPConnection:
    """A connection with a request that is being answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("POST", "/v2/models/sums/infer", SUM)
    assert next_line(served) == "begun"
    return connection


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_what_was_accepted(number: signal.Signals) -> None:
    with process(0.4) as (served, port):
        connection = begin(served, port)
        served.send_signal(number)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["outputs"][0]["data"]) == (200, [2.0, 4.0, 6.0, 8.0])
        assert served.wait(PATIENCE_S) == 0
        assert next_line(served).startswith("stopping within 5 seconds")


def test_a_second_signal_ends_it_at_once() -> None:
    with process(60.0) as (served, port):
        connection = begin(served, port)
        served.send_signal(signal.SIGTERM)
        assert next_line(served).startswith("stopping within 5 seconds")
        assert served.poll() is None
        served.send_signal(signal.SIGTERM)
        assert served.wait(PATIENCE_S) == 128 + signal.SIGTERM
        connection.close()


def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 is in use"):
            HttpFront(HttpSettings(port=port))
    with pytest.raises(InputError, match="no address"):
        HttpFront(HttpSettings(host="no.such.host.invalid"))


def test_it_warns_where_strangers_may_ask() -> None:
    assert HttpFront(HttpSettings(host="0.0.0.0", port=0)).is_open
    assert not HttpFront(HttpSettings(host="0.0.0.0", port=0, key=Key("a-long-secret"))).is_open
    assert not HttpFront(HttpSettings(port=0)).is_open


def test_a_failure_to_start_gives_the_port_back() -> None:
    class Broken(Double):
        async def start(self) -> None:
            raise InputError("no model")

    front = HttpFront(HttpSettings(port=0))
    with pytest.raises(InputError, match="no model"), serving(Broken, [front]):
        pass
    socket.create_server(("127.0.0.1", int(front.address.rpartition(":")[2]))).close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    front = HttpFront(HttpSettings(port=0, tls_cert=str(certificate), tls_key=str(key)))
    with serving(Double, [front]) as (address,):
        assert address.startswith("https://")
        context = ssl.create_default_context(cafile=certificate)
        place = "127.0.0.1", int(address.rpartition(":")[2])
        connection = http.client.HTTPSConnection(*place, context=context, timeout=10)
        connection.request("POST", "/v2/models/sums/infer", SUM + b" " * 300_000)
        assert connection.getresponse().status == 200
        connection.close()
    broken = HttpFront(HttpSettings(port=0, tls_cert=str(key), tls_key=str(key)))
    with pytest.raises(InputError, match="certificate"), serving(Double, [broken]):
        pass


@pytest.mark.parametrize("most,warned", [(64, True), (4096, False)])
def test_files_are_allowed_or_their_lack_is_told(most: int, warned: bool) -> None:
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (32, {most}));"
        "from opalite.serve.run_servers import raise_file_limit; print(list(raise_file_limit(1000)));"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, reached = done.stdout.splitlines()
    assert ("need 1256 descriptors, and this process may open 64" in said) == warned
    assert int(reached) == min(most, 1256)
