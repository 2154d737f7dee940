"""How many threads a CPU's driver is told to start, and where they stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opalite.pocl import core_affinity
from opalite.pocl import cpu_workarounds as pocl

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity of threads")


def write(groups: Path, name: str, text: str) -> None:
    path = groups / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.mark.parametrize(
    ("allowed", "files", "expected"),
    [
        (8, {}, None),
        (2, {}, 2),
        (8, {"cpu.max": "max 100000"}, None),
        (8, {"cpu.max": "250000 100000"}, 3),
        (2, {"cpu.max": "250000 100000"}, 2),
        (8, {"cpu.max": "1000 100000"}, 1),
        (8, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        (8, {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        (8, {"cpu.max": "a few"}, None),
    ],
)
def test_threads_are_limited_by_affinity_and_quota(
    allowed: int, files: dict[str, str], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_affinity.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(core_affinity.os, "sched_getaffinity", lambda pid: set(range(allowed)))
    for name, text in files.items():
        write(tmp_path, name, text)
    assert core_affinity.core_limit(tmp_path) == expected


@pytest.mark.parametrize(("limit", "mine", "during"), [(2, None, "2"), (2, "5", "5"), (None, None, None)])
def test_pocl_is_told_the_limit_and_other_processes_are_not(
    limit: int | None, mine: str | None, during: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "POCL_MAX_PTHREAD_COUNT"
    monkeypatch.setenv(name, mine or "")
    if mine is None:
        monkeypatch.delenv(name)
    monkeypatch.setattr(pocl, "_folder", None)
    monkeypatch.setenv("POCL_CACHE_DIR", "/mine")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(pocl.process_limits, "core_limit", lambda: limit)
    pocl.prepare_environment(None)
    assert os.environ.get(name) == during
    pocl.restore_environment()
    assert os.environ.get(name) == mine


@pytest.mark.parametrize(
    ("started", "allowed", "expected"),
    [({7, 5}, [2, 6], {5: {2}, 7: {6}}), ({5}, [2, 6], {}), ({5, 6, 7}, [2, 6], {}), (set(), [0], {})],
)
def test_each_thread_stays_on_a_core_where_they_are_as_many(
    started: set[int], allowed: list[int], expected: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, set[int]] = {}
    monkeypatch.setattr(core_affinity.os, "sched_setaffinity", lambda task, mask: found.update({task: mask}))
    assert core_affinity.pin(started, allowed) == bool(expected)
    assert found == expected


@pytest.mark.parametrize(
    ("platform", "setting", "expected"), [(pocl.PLATFORM, "", 1), (pocl.PLATFORM, "0", 0), ("NVIDIA CUDA", "", 0)]
)
def test_only_threads_of_pocl_are_pinned(
    platform: str, setting: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(pocl.core_affinity, "pin", lambda started, allowed: calls.append(started))
    monkeypatch.setenv("POCL_AFFINITY", setting)
    pocl.pin_threads(platform, {1})
    assert len(calls) == expected
