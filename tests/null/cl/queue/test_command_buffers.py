"""Which versions of cl_khr_command_buffer are used, and what the default is by device."""

from __future__ import annotations

from pathlib import Path

import pytest

from opalite.cl.queue.command_buffers import TESTED, refusal_of
from opalite.ir.device.device_info import DeviceInfo

FOLDER = Path(__file__).parents[3] / "fixtures" / "devices"


@pytest.mark.parametrize("version", TESTED)
def test_tested_versions_are_used(version: tuple[int, int, int]) -> None:
    assert refusal_of(version, 0) == ""


@pytest.mark.parametrize("version", [(0, 9, 0), (0, 9, 3), (0, 9, 5), (0, 9, 7), (1, 0, 0)])
def test_other_versions_are_refused_by_name(version: tuple[int, int, int]) -> None:
    reason = refusal_of(version, 0)
    assert ".".join(map(str, version)) in reason
    assert "0.9.4" in reason


def test_a_version_that_is_not_told_is_refused() -> None:
    assert "does not report its version" in refusal_of(None, 0)


def test_a_queue_must_not_need_properties() -> None:
    assert "0x2" in refusal_of(TESTED[0], 2)


def test_replay_is_the_default_where_it_pays() -> None:
    def pays(name: str) -> bool:
        return DeviceInfo.from_json((FOLDER / f"{name}.json").read_text()).replay_pays

    assert pays("mali_g78")
    assert not pays("pocl_avx512")
