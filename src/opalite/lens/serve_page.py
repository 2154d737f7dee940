"""PageServer: serves one page to browsers on this machine."""

from __future__ import annotations

import errno
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ..errors import InputError

LOOPBACK = "127.0.0.1"
_PATIENCE_S = 10.0


class _Handler(BaseHTTPRequestHandler):
    """Answers / with the page, and anything else, or any other host's name, with an error."""

    server: PageServer
    timeout = _PATIENCE_S  # of a browser that sends nothing

    def do_GET(self) -> None:
        """Answer one request."""
        if self._accepts():
            self.wfile.write(self.server.page)

    def do_HEAD(self) -> None:
        """Answer with the headers alone."""
        self._accepts()

    def _accepts(self) -> bool:
        """Write the headers of the answer; whether the page is to follow."""
        if _host_name(self.headers.get("Host", "")) not in (LOOPBACK, "localhost"):
            # A foreign name that leads here (DNS rebinding).
            self.send_error(403, f"this page is served to {LOOPBACK} alone")
            return False
        if self.path.partition("?")[0] != "/":
            self.send_error(404)
            return False
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.server.page)))
        self.send_header("Cache-Control", "no-store")  # the next page at this port is another one
        self.end_headers()
        return True

    def log_message(self, *args: object) -> None:
        """Write no line for a request."""


class PageServer(ThreadingHTTPServer):
    """A server on 127.0.0.1 that answers with `page`. port: 0 for a free one. Raises InputError if it is taken.

    It holds the port from the beginning, so that a page whose port is taken is not made first.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, page: str = "") -> None:
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as e:
            reason = "is in use" if e.errno == errno.EADDRINUSE else f"cannot be opened: {e.strerror or e}"
            raise InputError(f"--serve {port}: the port {reason}; --serve without a number takes a free one") from e
        self.set_page(page)

    def set_page(self, page: str) -> None:
        """Answer with this page from now on."""
        self.page = page.encode("utf-8", "surrogateescape")

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing: a browser went away in the middle of an answer."""


def _host_name(host: str) -> str:
    """The name in a Host header, without the port; '' if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
