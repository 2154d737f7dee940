"""Device tests run on every OpenCL device found, or on the one that OPALITE_DEVICE names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from uuid import uuid4

import pytest

from opalite.cl.device.enumerate_devices import list_all
from opalite.cl.runtime import Runtime, find_runtime
from opalite.run.execute.strategies import stored_decision


@cache
def device_ids() -> list[str]:
    """Ids of the devices to test."""
    return [] if os.environ.get("OPALITE_DEVICE") else [f.info.id for f in list_all().devices if f.usable]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a Runtime is one test a device; its id names the device where there are several."""
    if "device_id" in metafunc.fixturenames and len(device_ids()) > 1:
        metafunc.parametrize("device_id", device_ids(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def device_id(request: pytest.FixtureRequest) -> str | None:
    """Id of the device that a test is for; None for the only one."""
    return getattr(request, "param", None)


@pytest.fixture(scope="session")
def rt(device_id: str | None) -> Runtime:
    return find_runtime(device_id)


@pytest.fixture(scope="session", autouse=True)
def _builders_get_their_share() -> Iterator[None]:
    """Test processes keep all cores busy: what is built behind one's runs would wait for all others."""
    with pytest.MonkeyPatch.context() as patch:
        for niceness in ("_NICE_URGENT", "_NICE_BACKGROUND"):
            patch.setattr(f"opalite.cl.programs.program_cache.{niceness}", 1)
        yield


@pytest.fixture(autouse=True)
def _sessions_take_the_same_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test opens without naming a device is opened on that of its Runtime."""
    callspec = getattr(request.node, "callspec", None)
    device = None if callspec is None else callspec.params.get("device_id")
    if isinstance(device, str):
        monkeypatch.setenv("OPALITE_DEVICE", device)


@pytest.fixture(autouse=True)
def _decisions_of_other_tests_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    state = str(uuid4())
    monkeypatch.setattr(stored_decision, "package_state", lambda: state)
