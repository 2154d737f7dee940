"""Folders that a process may make, and those that it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from opalite.cache.cache_folder import cache_folder
from opalite.cache.temporary_folders import user_folder, write_fault


def test_no_home_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("OPALITE_CACHE_DIR", "~/cache")
    for folder in (user_folder("opalite"), home / "a" / "b", home, cache_folder()):
        assert write_fault(folder) == "this user has no home folder"
    assert not home.exists()
    assert write_fault(tmp_path / "homes" / "a") is None
    home.mkdir()
    assert write_fault(cache_folder()) is None
    assert cache_folder().is_dir()
