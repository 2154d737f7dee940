"""What files beside a model contain, and when a digest that was kept is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opalite.errors import ModelFormatError
from opalite.run.model.plans import external_data_files
from opalite.run.model.plans.external_data_files import ExternalDataFiles, read_names, store_names


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_kept_digest_is_of_this_very_state(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    ExternalDataFiles(tmp_path, ["a.bin"])
    assert not list(cache.glob("contents/*")), "it may change within the clock's next tick"
    monkeypatch.setattr(external_data_files, "SETTLED_S", -1.0)
    first = ExternalDataFiles(tmp_path, ["a.bin"])
    assert len(list(cache.glob("contents/*.json"))) == 1
    read: list[Path] = []
    summed = external_data_files._sum
    monkeypatch.setattr(external_data_files, "_sum", lambda p: (read.append(p), summed(p))[1])
    assert ExternalDataFiles(tmp_path, ["a.bin"]).key == first.key
    assert not read
    before = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ExternalDataFiles(tmp_path, ["a.bin"]).key != first.key
    assert len(read) == 1
    with pytest.raises(ModelFormatError, match=r"a\.bin' has changed"):
        first.check()
    path.write_bytes(b"one")
    first.check()
    (tmp_path / "b.bin").write_bytes(b"one")
    assert ExternalDataFiles(tmp_path, ["b.bin"]).key != first.key
    path.unlink()
    with pytest.raises(OSError, match=r"a\.bin"):
        ExternalDataFiles(tmp_path, ["a.bin"])
    with pytest.raises(ModelFormatError, match="changed"):
        first.check()


def test_a_long_file_counts_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_data_files, "_PIECE", 1000)
    path = tmp_path / "a.bin"
    keys = set()
    for at in (None, 0, 999, 1000, 2499):
        raw = bytearray(2500)
        if at is not None:
            raw[at] = 1
        path.write_bytes(raw)
        keys.add(ExternalDataFiles(tmp_path, ["a.bin"]).key)
    path.write_bytes(bytes(2501))
    keys.add(ExternalDataFiles(tmp_path, ["a.bin"]).key)
    assert len(keys) == 6


def test_names_are_kept(tmp_path: Path) -> None:
    assert read_names(tmp_path / "none") == []
    store_names(tmp_path / "plans", ["a.bin", "b/c.bin"])
    assert read_names(tmp_path / "plans") == ["a.bin", "b/c.bin"]
    (tmp_path / "plans/files.json").write_text("{}")
    assert read_names(tmp_path / "plans") == []
