"""Devices of a queue, and the cores of a CPU that its processes share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from opalite.run.queue.session_workers import Cores, core_settings, device_requests, share_cores


def test_cores_are_shared_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = "opalite.run.queue.session_workers"
    monkeypatch.setattr(f"{workers}.allowed_cores", lambda: [0, 2, 4, 5, 6])
    monkeypatch.setattr(f"{workers}.core_limit", lambda: 5)
    assert share_cores(2) == [Cores((0, 2, 4), 3), Cores((5, 6), 2)]
    assert share_cores(7) == [Cores((c,), 1) for c in (0, 2, 4, 5, 6, 0, 2)]
    assert core_settings(Cores((0, 2), 2)).get("POCL_AFFINITY", "") == ""
    monkeypatch.setattr(f"{workers}.core_limit", lambda: 3)  # a container's time
    assert share_cores(2) == [Cores((), 1)] * 2
    assert core_settings(Cores((), 1)) == {"POCL_AFFINITY": "0", "POCL_MAX_PTHREAD_COUNT": "1"}


@pytest.mark.parametrize(
    ("kinds", "default", "taken"),
    [
        (["gpu", "gpu", "cpu"], 0, ["d0", "d1"]),
        (["cpu", "gpu", "cpu"], 1, ["d1"]),
        (["cpu", "cpu"], 1, ["d1"]),
        (["accelerator", "cpu"], 0, ["d0"]),
    ],
)
def test_all_devices_are_those_of_the_default_kind(
    kinds: list[str], default: int, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [SimpleNamespace(id=f"d{i}", kind=kind) for i, kind in enumerate(kinds)]
    workers = "opalite.run.queue.session_workers"
    monkeypatch.setattr(f"{workers}.list_devices", lambda: found)
    monkeypatch.setattr(f"{workers}.find_device", lambda: SimpleNamespace(info=found[default]))
    assert device_requests("all") == taken
