"""`opalite devices` and `opalite doctor` on this machine."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from opalite.cl.device.enumerate_devices import BrokenPlatform, Listing
from opalite.cl.runtime import Runtime
from opalite.cli import devices as devices_module
from opalite.cli import doctor as doctor_module
from opalite.ir.device.device_info import DeviceInfo


def test_devices_table_names_every_device(rt: Runtime) -> None:
    result = CliRunner().invoke(devices_module.command, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    assert rt.info.id in result.output
    assert "*" in result.output


def test_devices_as_json_can_be_planned_for(rt: Runtime) -> None:
    result = CliRunner().invoke(devices_module.command, ["--json"])
    data = json.loads(result.output)
    ids = [d["id"] for d in data["devices"]]
    assert rt.info.id in ids
    assert data["default"] in ids
    mine = data["devices"][ids.index(rt.info.id)]
    assert mine["index"].count(":") == 1
    assert DeviceInfo.from_json(json.dumps(mine)).name == rt.info.name


def test_devices_tell_of_broken_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Listing(broken=[BrokenPlatform(0, "Bad OpenCL", "OUT_OF_HOST_MEMORY")])
    monkeypatch.setattr(devices_module, "list_all", lambda: broken)
    result = CliRunner().invoke(devices_module.command)
    assert "Platform 0 'Bad OpenCL' failed with OUT_OF_HOST_MEMORY" in result.output
    assert "opalite doctor" in result.output


def test_doctor_finds_this_machine_fit(rt: Runtime) -> None:
    result = CliRunner().invoke(doctor_module.command)
    assert result.exit_code == 0, result.output
    assert f"{rt.info.title} ({rt.info.id}) compiles and computes" in result.output.replace("\n", " ")
    data = json.loads(CliRunner().invoke(doctor_module.command, ["--json"]).stdout)
    assert data["is_usable"]
    data = data["findings"]
    assert any(f["device"] == rt.info.id for f in data)
    assert all(f["fix"] for f in data if f["level"] == "bad")


def test_doctor_fails_where_nothing_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module.doctor_checks, "check_devices", lambda: ([], []))
    assert CliRunner().invoke(doctor_module.command).exit_code == 1
