"""Kernels that are launched in another process first: what it finds, and who is asked again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from opalite.cache.binary_store import BinaryStore
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.programs import kernel_trials
from opalite.cl.programs.kernel_trials import KernelTrials, Trial
from opalite.cl.runtime import Runtime

HEAD = """struct A { ulong at[4]; };
typedef volatile global int *Numbers;
kernel void k(const struct A a) {
  Numbers x = (Numbers)a.at["""
WRITES = HEAD + "0];\n  x[get_global_id(0)] = 1;\n}"
READS_WHAT_IS_GIVEN = HEAD + "1];\n  if (x[0] != 7 || x[1] != 0) *(Numbers)a.at[2] = 1;\n}"
CRASHES = HEAD + "2];\n  x[get_global_id(0)] = 1;\n}"
HANGS = HEAD + "0];\n  while (x[0] == 0) {}\n}"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the process has found out: nothing yet."""
    found: dict[str, str] = {}
    monkeypatch.setattr(kernel_trials, "_known", found)
    return found


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine keeps a process from being started."""
    monkeypatch.setattr(kernel_trials, "may_start_processes", lambda: True)


def trial(rt: Runtime, text: str, **changes: Any) -> Trial:
    binary = rt.programs.binary(text, "")
    given: dict[str, Any] = {"sizes": (256, 8), "addresses": (0, 1, -1, 0), "contents": {1: struct.pack("<i", 7)}}
    return Trial(binary, "k", 32, 8, **(given | changes))


def made(
    rt: Runtime, device_id: str | None, store: BinaryStore | None = None, index: str | None = None
) -> KernelTrials:
    found = find_device(device_id or rt.info.id)
    return KernelTrials(found.index if index is None else index, rt.info, rt.fingerprint, store)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """What processes were started for."""
    found: list[Trial] = []
    run = KernelTrials._run
    monkeypatch.setattr(KernelTrials, "_run", lambda self, asked: (found.append(asked), run(self, asked))[1])
    return found


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("text", [WRITES, READS_WHAT_IS_GIVEN])
def test_what_runs_is_known_to_run(
    rt: Runtime, device_id: str | None, tmp_path: Path, known: dict[str, str], started: list[Trial], text: str
) -> None:
    store = BinaryStore(tmp_path, 1 << 20)
    tried = made(rt, device_id, store)
    assert [tried.fault(trial(rt, text)) for _ in range(2)] == ["", ""]
    known.clear()
    assert made(rt, device_id, store).fault(trial(rt, text)) == "", "another process asks the cache"
    assert len(started) == 1
    tried.record_failure(trial(rt, text).program, "it failed here")
    assert tried.fault(trial(rt, text)) == "it failed here"
    known.clear()
    assert made(rt, device_id, store).fault(trial(rt, text)) == "it failed here"


@pytest.mark.usefixtures("alone")
def test_what_crashes_ends_another_process(
    rt: Runtime, device_id: str | None, tmp_path: Path, known: dict[str, str], started: list[Trial]
) -> None:
    store = BinaryStore(tmp_path, 1 << 20)
    why = made(rt, device_id, store).fault(trial(rt, CRASHES))
    assert "does not survive its trial" in why
    known.clear()
    assert made(rt, device_id, store).fault(trial(rt, CRASHES)) == why
    assert len(started) == 1


@pytest.mark.usefixtures("alone")
def test_what_hangs_is_given_up(rt: Runtime, device_id: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_trials, "RUN_S", 0.5)
    assert "does not end" in made(rt, device_id).fault(trial(rt, HANGS))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("index", "changes", "why"),
    [
        ("", {}, "no background process may start"),
        ("77:0", {}, "the device is another one"),
        (None, {"sizes": (1 << 60, 8)}, "cannot be tried"),
    ],
)
def test_what_cannot_be_tried_is_not_held_against_it(
    rt: Runtime, device_id: str | None, tmp_path: Path, index: str | None, changes: dict[str, Any], why: str
) -> None:
    store = BinaryStore(tmp_path, 1 << 20)
    assert why in made(rt, device_id, store, index).fault(trial(rt, WRITES, **changes))
    assert made(rt, device_id, store).fault(trial(rt, WRITES)) == ""


def test_one_process_is_all_that_the_user_allows(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_BUILD_THREADS", "1")
    assert "no background process may start" in made(rt, None).fault(trial(rt, WRITES))
