"""Settings of logs and traces that clients change, and those that they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.serve.engine.telemetry_settings import TelemetrySettings
from opalite.serve.wire.serve_errors import Invalid, ServeError, Unsupported


@pytest.mark.parametrize(
    "changes, kind, words",
    [
        ({"log_infos": True}, Invalid, "did you mean 'log_info'"),
        ({"log_info": "yes"}, Invalid, "true or false"),
        ({"log_warning": 1}, Invalid, "true or false"),
        ({"log_warning": False}, Unsupported, "always logged"),
        ({"log_verbose_level": True}, Invalid, "from 0 on"),
        ({"log_file": "/etc/passwd"}, Unsupported, "set at the start"),
        ({"log_format": "ISO8601"}, Unsupported, "--log-format"),
    ],
)
def test_log_settings_that_are_refused(changes: dict[str, Any], kind: type[ServeError], words: str) -> None:
    settings = TelemetrySettings(True, "json")
    before = settings.log()
    with pytest.raises(kind, match=words):
        settings.update_log({"log_verbose_level": 0, **changes})
    assert settings.log() == before
    settings.update_log(before)
    assert settings.log() == before


@pytest.mark.parametrize(
    "changes, kind, words",
    [
        ({"rate": 1}, Invalid, "no trace setting 'rate'"),
        ({"trace_rate": 0}, Invalid, "from 1 on"),
        ({"trace_rate": "1.5"}, Invalid, "from 1 on"),
        ({"trace_count": "-2"}, Invalid, "from -1 on"),
        ({"trace_count": [1]}, Invalid, "from -1 on"),
        ({"trace_level": ["MAX"]}, Unsupported, "OFF or TIMESTAMPS"),
        ({"trace_level": []}, Unsupported, "OFF or TIMESTAMPS"),
        ({"trace_level": ["TIMESTAMPS"]}, Unsupported, "no tracer is installed"),
        ({"trace_mode": "triton"}, Unsupported, "exporter"),
        ({"log_frequency": "5"}, Unsupported, "exporter"),
    ],
)
def test_trace_settings_that_are_refused(changes: dict[str, Any], kind: type[ServeError], words: str) -> None:
    settings = TelemetrySettings()
    before = settings.tracing()
    assert before["trace_level"] == ["OFF"]
    with pytest.raises(kind, match=words):
        settings.update_tracing({"trace_rate": 5, **changes})
    assert settings.tracing() == before
    settings.update_tracing(before)
    assert settings.tracing() == before
