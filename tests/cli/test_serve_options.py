"""Options of `opalite serve` for the gRPC front."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from opalite.cli import main
from opalite.cli.serve_options import grpc_settings, server_settings
from opalite.errors import InputError, OptionError
from opalite.serve.http.http_server import HttpSettings
from opalite.serve.wire.client_limits import HttpLimits
from opalite.serve.wire.listening_front import Key


def test_grpc_has_the_key_the_certificate_and_the_limits_of_http() -> None:
    key = Key("a-secret")
    http = HttpSettings("::1", 8000, key, False, "cert.pem", "key.pem", HttpLimits(body_bytes=1000, elements=7))
    found = grpc_settings(8001, None, http)
    assert found is not None
    assert (found.host, found.port, found.key, found.open_health) == ("::1", 8001, key, False)
    assert (found.tls_cert, found.tls_key) == ("cert.pem", "key.pem")
    assert (found.limits.message_bytes, found.limits.elements) == (1000, 7)
    other = grpc_settings(0, "0.0.0.0", http)
    assert other is not None
    assert other.host == "0.0.0.0"


def test_grpc_is_not_served_unless_a_port_is_given() -> None:
    assert grpc_settings(None, None, HttpSettings()) is None
    with pytest.raises(OptionError, match="give a port too"):
        grpc_settings(None, "127.0.0.1", HttpSettings())


@pytest.mark.parametrize("option", ["precision", "memory", "tune"])
def test_words_that_no_session_takes_are_told_at_the_start(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} 'nonsense' is not known; choose"):
        server_settings(("model.onnx",), None, {option: "nonsense"})


def test_windows_is_told_where_it_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    result = CliRunner().invoke(main, ["serve", "model.onnx"])
    assert result.exit_code == 1
    assert "serve from Linux or macOS" in result.output
