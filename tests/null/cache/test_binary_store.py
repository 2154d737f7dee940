"""The on-disk store of program binaries: damage, foreign entries, eviction, folders that cannot be written."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from opalite.cache.binary_store import BinaryStore
from opalite.cache.cache_folder import cache_entries, cache_folder, clear, trim
from opalite.cache.cache_keys import digest
from opalite.pocl.program_folder import open_folder

KEY, OTHER = digest("a", "bc"), digest("ab", "c")
MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> BinaryStore:
    return BinaryStore(tmp_path / "cache", 64 * MIB)


def test_keys_know_the_borders_of_their_parts() -> None:
    assert KEY != OTHER
    assert digest("a", "bc") == KEY
    assert len(KEY) == 64


def test_what_was_put_is_got_also_by_another_store(store: BinaryStore) -> None:
    assert store.get(KEY) is None
    assert store.put(KEY, b"binary")
    assert store.get(KEY) == b"binary"
    assert BinaryStore(store.folder, MIB).get(KEY) == b"binary"
    assert store.get(OTHER) is None


def test_an_empty_binary_is_kept(store: BinaryStore) -> None:
    store.put(KEY, b"")
    assert store.get(KEY) == b""


def damage(path: Path, how: str, other: Path) -> None:
    raw = path.read_bytes()
    changed = {
        "empty": b"",
        "header cut": raw[:20],
        "binary cut": raw[:-1],
        "longer": raw + b"x",
        "bit flipped": raw[:-1] + bytes([raw[-1] ^ 1]),
        "foreign file": b"\x7fELF" + bytes(200),
        "other format": raw[:8] + b"\xff" + raw[9:],
        "other key": other.read_bytes(),
    }
    path.write_bytes(changed[how])


@pytest.mark.parametrize(
    "how",
    ["empty", "header cut", "binary cut", "longer", "bit flipped", "foreign file", "other format", "other key"],
)
def test_a_damaged_entry_heals_with_one_log_line(
    store: BinaryStore, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(KEY, b"binary")
    store.put(OTHER, b"another")
    damage(store.path(KEY), how, store.path(OTHER))
    with caplog.at_level(logging.WARNING):
        assert store.get(KEY) is None
    assert len(caplog.records) == 1
    assert not store.path(KEY).exists()
    assert store.healed == 1
    assert store.put(KEY, b"binary")
    assert store.get(KEY) == b"binary"
    assert store.get(OTHER) == b"another"


def test_the_first_of_two_processes_that_build_a_program_is_kept(store: BinaryStore) -> None:
    """PoCL writes random names into binaries: who asks for it later gets the same bytes, whoever built it, too."""
    other = BinaryStore(store.folder, store.cap_bytes)
    key = digest("program")
    assert store.put(key, b"one")
    assert other.put(key, b"another")
    assert store.get(key) == other.get(key) == b"one"
    store.discard(key, "a fault")
    assert other.put(key, b"another")
    assert store.get(key) == b"another"


def test_no_temporary_file_stays(store: BinaryStore) -> None:
    for i in range(20):
        store.put(digest(str(i)), bytes(100))
    assert not list(store.folder.rglob(".tmp-*"))


def test_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    store = BinaryStore(tmp_path, 1 << 40)
    keys = [digest(str(i)) for i in range(10)]
    now = time.time()
    for age, key in enumerate(keys):
        store.put(key, bytes(1000))
        os.utime(store.path(key), (now - age * 60, now - age * 60))
    assert store.get(keys[9]) is not None  # used just now
    freed = trim(tmp_path, 6000)
    left = [k for k in keys if store.path(k).exists()]
    assert keys[9] in left
    assert keys[0] in left
    assert keys[8] not in left
    assert sum(u.nbytes for u in cache_entries(tmp_path)) <= 6000
    assert freed >= 4000


def test_writing_keeps_the_folder_below_its_cap(tmp_path: Path) -> None:
    store = BinaryStore(tmp_path, MIB)
    for i in range(40):
        store.put(digest(str(i)), bytes(MIB // 10))
    assert sum(u.nbytes for u in cache_entries(tmp_path)) <= MIB * 5 // 4


def make_pocl_folder(folder: Path, number: int, nbytes: int) -> Path:
    path = folder / "pocl" / str(number)
    (path / "AB" / "CD" / "conv" / "0-0-0").mkdir(parents=True)
    (path / "AB" / "CD" / "conv" / "0-0-0" / "conv.so").write_bytes(bytes(nbytes))
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="folders are locked by flock")
def test_pocl_folders_go_whole_and_not_while_in_use(tmp_path: Path) -> None:
    used = open_folder(tmp_path / "pocl")
    (used.path / "file").write_bytes(bytes(30000))
    old = make_pocl_folder(tmp_path, 1, 30000)
    trim(tmp_path, 1000)
    assert not old.exists()
    assert (used.path / "file").exists()
    clear(tmp_path)
    assert (used.path / "file").exists()
    assert used.lock is not None
    os.close(used.lock)
    assert clear(tmp_path) == 30000
    assert not list(cache_entries(tmp_path))


def test_left_over_temporary_files_go_after_an_hour(tmp_path: Path) -> None:
    folder = tmp_path / "programs" / "ab"
    folder.mkdir(parents=True)
    old, new = folder / ".tmp-1-x", folder / ".tmp-2-y"
    for file in (old, new):
        file.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    trim(tmp_path, MIB)
    assert not old.exists()
    assert new.exists()


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    store = BinaryStore(tmp_path / "file", MIB)
    with caplog.at_level(logging.WARNING):
        assert not store.put(KEY, b"x")
        assert not store.put(OTHER, b"x")
        assert store.get(KEY) is None
    assert len(caplog.records) == 1
    assert "OPALITE_CACHE_DIR" in caplog.text


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_still_serves(store: BinaryStore) -> None:
    store.put(KEY, b"binary")
    folder = store.path(KEY).parent
    folder.chmod(0o500)
    try:
        assert store.get(KEY) == b"binary"
        assert not store.put(digest("new"), b"x") or not store.path(digest("new")).is_relative_to(folder)
    finally:
        folder.chmod(0o700)


def test_threads_that_write_and_read_one_key_see_whole_entries(store: BinaryStore) -> None:
    contents = [bytes([i]) * 50_000 for i in range(4)]
    wrong: list[object] = []

    def work(i: int) -> None:
        for _ in range(30):
            store.put(KEY, contents[i])
            got = store.get(KEY)
            if got not in contents:
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert store.healed == 0


def test_the_folder_is_the_setting_else_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("OPALITE_CACHE_DIR")
    assert cache_folder().name == "opalite"


def test_folders_that_vanish_while_they_are_listed_are_passed_over(tmp_path: Path) -> None:
    """Another process may trim the same cache."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for i in range(20):
                deep = tmp_path / "pocl" / f"{i}" / "1-1-1"
                deep.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(tmp_path / "pocl" / f"{i}", ignore_errors=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(100):
            assert trim(tmp_path, 0) == sum(u.nbytes for u in cache_entries(tmp_path)) == 0
    finally:
        stop.set()
        thread.join()
