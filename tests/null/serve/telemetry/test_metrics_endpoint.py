"""Metrics at the HTTP port and at a separate port."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from opalite.errors import InputError
from opalite.serve.engine.server_observer import RequestTrace
from opalite.serve.http.http_server import HttpFront, HttpSettings
from opalite.serve.run_servers import serving
from opalite.serve.telemetry.prometheus_metrics import Metrics, MetricsFront, metrics_route
from opalite.serve.wire.listening_front import Key

from ....helpers.serving import Double


def get(url: str, **headers: str) -> tuple[str, str]:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return answer.read().decode(), answer.headers["content-type"]


def test_metrics_are_a_path_of_http_behind_its_key_and_a_port_of_their_own() -> None:
    metrics = Metrics()
    metrics.finished(RequestTrace("net", "1", total_s=0.1))
    apart = MetricsFront(metrics, "127.0.0.1", 0)
    front = HttpFront(HttpSettings(port=0, key=Key("a-long-key")), [metrics_route(metrics)])
    with serving(Double, [front, apart]) as (http, other):
        text, kind = get(http + "/metrics", **{"x-api-key": "a-long-key"})
        assert 'opalite_requests_total{model="net",outcome="ok",version="1"} 1.0' in text
        assert kind.startswith("text/plain")
        with pytest.raises(urllib.error.HTTPError) as e:
            get(http + "/metrics")
        assert e.value.code == 401
        assert other.endswith("/metrics")
        assert "opalite_requests_total" in get(other)[0]
        openmetrics = "application/openmetrics-text; version=1.0.0"
        assert get(other, accept=openmetrics)[0].endswith("# EOF\n")
        with pytest.raises(InputError, match="cannot be used for metrics"):
            MetricsFront(metrics, "127.0.0.1", int(other.split(":")[2].split("/")[0]))
    with pytest.raises(urllib.error.URLError):
        get(other)
