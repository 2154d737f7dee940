"""One heir at a time builds what a will lists, for those who wait for it, and leaves nothing but programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opalite.cache.store import BinaryStore
from opalite.cl import heir as heir_module
from opalite.cl.heir import LASTS_S, Heir, fulfil, write_will

KEYS = [c * 64 for c in "abc"]


@pytest.fixture
def heir(tmp_path: Path) -> Heir:
    return Heir(tmp_path / "cache" / "programs" / "xy" / "general.heir")


@pytest.fixture
def store(tmp_path: Path) -> BinaryStore:
    return BinaryStore(tmp_path / "cache", 1 << 30)


@pytest.fixture
def no_alarm(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    asked: list[int] = []
    monkeypatch.setattr(signal, "alarm", asked.append, raising=False)
    here = os.getcwd()
    yield asked
    os.chdir(here)


def test_there_is_one_at_a_time(heir: Heir) -> None:
    assert not heir.is_alive
    assert heir.claim(os.getpid(), KEYS)
    assert heir.is_alive
    assert not heir.claim(os.getpid(), KEYS)


def test_one_that_has_ended_or_is_old_is_none(heir: Heir) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert heir.claim(ended.pid, KEYS)
    assert not heir.is_alive
    assert heir.claim(os.getpid(), KEYS)
    then = time.time() - LASTS_S - 1
    os.utime(heir.path, (then, then))
    assert not heir.is_alive, "another process may have its number now"
    heir.path.write_text("what is this")
    assert not heir.is_alive


def test_none_where_the_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not Heir(tmp_path / "file" / "general.heir").claim(os.getpid(), KEYS)


def test_who_needs_a_program_waits_for_it_while_somebody_builds(heir: Heir, monkeypatch: pytest.MonkeyPatch) -> None:
    there = threading.Event()
    heir.claim(os.getpid(), KEYS)
    threading.Timer(0.05, there.set).start()
    heir.wait(KEYS[:1], lambda key: there.is_set())
    assert there.is_set()
    monkeypatch.setattr(heir_module, "WAITS_S", 0.05)
    started = time.monotonic()
    heir.wait(KEYS, lambda key: False)
    assert 0.05 <= time.monotonic() - started < 1
    monkeypatch.setattr(heir_module, "WAITS_S", 60)
    threading.Timer(0.05, heir.path.unlink).start()
    heir.wait(KEYS, lambda key: False)  # until it has ended


def test_nobody_waits_for_what_it_does_not_build(heir: Heir) -> None:
    heir.claim(os.getpid(), KEYS[:1])
    asked: list[str] = []
    heir.wait(KEYS, lambda key: not asked.append(key))  # type: ignore[func-returns-value]
    assert asked == KEYS[:1]
    assert list(heir.wishes()) == KEYS[:1]


def test_what_somebody_waits_for_comes_next(
    heir: Heir, store: BinaryStore, tmp_path: Path, no_alarm: list[int]
) -> None:
    folder = tmp_path / "build-1"
    folder.mkdir()
    write_will(folder / "will", store, heir, [(key, "", key[0]) for key in KEYS])
    heir.claim(os.getpid(), KEYS)
    built: list[str] = []

    def build(options: str, text: str) -> bytes:
        if not built:  # another process needs the last one while the first is being built
            heir.wait(KEYS[2:], lambda key: True)
        built.append(text)
        return b"built"

    fulfil(folder / "will", build, {})
    assert built == ["a", "c", "b"]
    assert list(heir.path.parent.iterdir()) == []


def test_it_builds_what_is_missing(heir: Heir, store: BinaryStore, tmp_path: Path, no_alarm: list[int]) -> None:
    store.put(KEYS[0], b"there")
    heir.claim(os.getpid(), KEYS)
    folder = tmp_path / "build-1"
    folder.mkdir()
    keys = [*KEYS, "d" * 64]
    write_will(folder / "will", store, heir, [(key, "-w", f"text {i}") for i, key in enumerate(keys)])
    asked = []

    def build(options: str, text: str) -> bytes:
        asked.append((options, text))
        return b"" if text == "text 1" else text.encode()

    fulfil(folder / "will", build, {("-w", "text 3"): b"built"})
    assert asked == [("-w", "text 1"), ("-w", "text 2")]
    assert [store.get(key) for key in keys] == [b"there", None, b"text 2", b"built"]
    assert no_alarm == [LASTS_S]
    assert not heir.path.exists()
    assert not folder.exists()


def test_it_does_not_bring_back_a_cache_that_was_removed(
    heir: Heir, store: BinaryStore, tmp_path: Path, no_alarm: list[int]
) -> None:
    folder = tmp_path / "build-1"
    folder.mkdir()
    write_will(folder / "will", store, heir, [(key, "", "text") for key in KEYS])
    fulfil(folder / "will", lambda options, text: pytest.fail("nobody wants it"), {})
    assert not store.folder.exists()
    assert not folder.exists()
