"""The plan cache of tests that look at it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, plans switched on; what other tests have registered is no part of keys."""
    monkeypatch.setattr("opalite.ir.plugins._listings", [])
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    return tmp_path / "cache"
