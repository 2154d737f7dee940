"""Device tests run on every OpenCL device found."""

from __future__ import annotations

import pytest

from opalite.cl.runtime import Runtime, find_runtime


@pytest.fixture(scope="session")
def rt() -> Runtime:
    return find_runtime()
