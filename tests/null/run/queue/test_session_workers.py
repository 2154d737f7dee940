"""How the processes of a CPU share its cores."""

from __future__ import annotations

import pytest

from opalite.run.queue.session_workers import Cores, core_settings, share_cores


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
