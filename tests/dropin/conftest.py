"""What idioms change for the whole process is as it was after each."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _the_default_severity_stays() -> Iterator[None]:
    log = logging.getLogger("opalite")
    level = log.level
    yield
    log.setLevel(level)
