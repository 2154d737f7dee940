"""serve_page: serves one page to browsers on this machine."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOPBACK = "127.0.0.1"


def serve_page(page: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve `page` on 127.0.0.1 until Ctrl-C. port: 0 for a free one. on_ready: called with the page's address.

    OSError if the port is taken.
    """
    with make_server(page, port) as server:
        on_ready(f"http://{LOOPBACK}:{server.server_port}/")
        server.serve_forever()


def make_server(page: str, port: int) -> ThreadingHTTPServer:
    """A server that answers / with `page`, and anything else, or any other host's name, with an error."""
    body = page.encode("utf-8", "surrogateescape")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer one request."""
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (LOOPBACK, "localhost"):  # a foreign name that leads here (DNS rebinding)
                self.send_error(403, f"this page is served to {LOOPBACK} alone")
                return
            if self.path.partition("?")[0] != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Write no line for a request."""

    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    server.daemon_threads = True
    return server
