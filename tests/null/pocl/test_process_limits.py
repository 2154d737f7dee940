"""Limits of a process that PoCL does not survive, as sentences."""

from __future__ import annotations

import errno
import os

import pytest

from opalite.cl.device.doctor_checks import check_open_files
from opalite.errors import DeviceError
from opalite.pocl import process_limits


def test_open_files_are_counted_below_the_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_limits, "_limit", {"RLIMIT_NOFILE": 12}.get)
    monkeypatch.setattr(os, "listdir", lambda _: ["0", "1", "2", "3", "255"])  # one is the listed folder's
    assert process_limits.free_files() == (9, 12)
    process_limits.check_files(9, "this")
    with pytest.raises(DeviceError, match=r"this takes up to 10 open files, .* 9 left of 12 \(ulimit -n\)"):
        process_limits.check_files(10, "this")
    (finding,) = check_open_files()
    assert (finding.level, "ulimit -n" in finding.fix) == ("bad", True)


def test_where_the_list_itself_cannot_be_opened_none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(code: int) -> None:
        def listing(_: object) -> list[str]:
            raise OSError(code, "")

        monkeypatch.setattr(os, "listdir", listing)

    monkeypatch.setattr(process_limits, "_limit", {"RLIMIT_NOFILE": 12}.get)
    fails(errno.EMFILE)
    assert process_limits.free_files() == (0, 12)
    fails(errno.ENOENT)  # a system that does not tell
    assert process_limits.free_files() is None
    monkeypatch.setattr(process_limits, "_limit", lambda _: None)
    assert process_limits.free_files() is None
    assert check_open_files() == []
