"""Priority and timeout of a request."""

from __future__ import annotations

import pytest

from opalite.serve.wire import serve_errors
from opalite.serve.wire.infer_messages import InferRequest
from opalite.serve.wire.serve_errors import Busy, Invalid, ServeError


def test_priority_and_time() -> None:
    request = InferRequest("m", (), parameters={"priority": 2, "timeout": "1500"})
    assert request.priority == 2
    assert request.timeout_s == pytest.approx(0.0015)
    assert InferRequest("m", ()).priority == 0
    assert InferRequest("m", ()).timeout_s == 0


@pytest.mark.parametrize("value", [-1, True, 1.5, "soon", "", "9" * 30, 1 << 64])
def test_values_that_are_no_numbers(value: object) -> None:
    with pytest.raises(Invalid, match="'priority' is a whole number"):
        _ = InferRequest("m", (), parameters={"priority": value}).priority  # type: ignore[dict-item]


def test_every_failure_has_its_codes() -> None:
    kinds = [k for k in vars(serve_errors).values() if isinstance(k, type) and issubclass(k, ServeError)]
    assert all(f"{k.status} {k.code}" in (serve_errors.__doc__ or "") for k in kinds)
    assert Busy("full", 2.5).retry_after_s == 2.5
    assert Invalid("x").kind == "Invalid"
