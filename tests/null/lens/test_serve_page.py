"""The page is served to this machine alone."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from threading import Thread

import pytest

from opalite.errors import InputError
from opalite.lens.serve_page import PageServer

PAGE = "<!doctype html><title>é</title>"


@pytest.fixture
def port() -> Iterator[int]:
    with PageServer(0, PAGE) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def get(port: int, path: str = "/", host: str = "", method: str = "GET") -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    return connection.getresponse()


def test_a_browser_here_gets_the_page(port: int) -> None:
    found = get(port)
    assert found.status == 200
    assert found.getheader("Content-Type") == "text/html; charset=utf-8"
    assert found.read().decode() == PAGE
    assert get(port, host=f"localhost:{port}").status == 200
    assert get(port, host="LOCALHOST").status == 200, "as a proxy at port 80 asks"
    head = get(port, method="HEAD")
    assert (head.status, head.getheader("Content-Length"), head.read()) == (200, str(len(PAGE.encode())), b"")
    assert get(port, "/other").status == 404


@pytest.mark.parametrize("host", ["evil.example:1", "127.0.0.1.evil.example", "evil@localhost.evil", "[", " "])
def test_a_foreign_name_that_leads_here_gets_nothing(port: int, host: str) -> None:
    found = get(port, host=host)
    assert found.status == 403
    assert PAGE not in found.read().decode()


def test_a_port_in_use_is_told_before_the_page_is_made(port: int) -> None:
    with pytest.raises(InputError, match=f"--serve {port}: the port is in use; --serve without a number"):
        PageServer(port)


def test_it_listens_on_the_loopback_alone() -> None:
    with PageServer(0, PAGE) as server:
        assert server.server_address[0] == "127.0.0.1"
