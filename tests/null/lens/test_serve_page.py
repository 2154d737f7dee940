"""The page is served to this machine alone."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from threading import Thread

import pytest

from opalite.lens.serve_page import make_server

PAGE = "<!doctype html><title>é</title>"


@pytest.fixture
def port() -> Iterator[int]:
    with make_server(PAGE, 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def get(port: int, path: str = "/", host: str = "") -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    return connection.getresponse()


def test_a_browser_here_gets_the_page(port: int) -> None:
    found = get(port)
    assert found.status == 200
    assert found.getheader("Content-Type") == "text/html; charset=utf-8"
    assert found.read().decode() == PAGE
    assert get(port, host=f"localhost:{port}").status == 200
    assert get(port, "/other").status == 404


def test_a_foreign_name_that_leads_here_gets_nothing(port: int) -> None:
    found = get(port, host=f"evil.example:{port}")
    assert found.status == 403
    assert PAGE not in found.read().decode()


def test_it_listens_on_the_loopback_alone() -> None:
    with make_server(PAGE, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
