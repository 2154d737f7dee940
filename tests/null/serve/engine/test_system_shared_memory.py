"""Regions of shared memory: who may register them, what they hold, and when their memory is let go."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opalite.serve.engine import system_shared_memory
from opalite.serve.engine.system_shared_memory import SystemSharedMemory
from opalite.serve.wire.infer_messages import InferRequest, InferResponse, RequestedOutput, Tensor
from opalite.serve.wire.memory_budget import MemoryBudget
from opalite.serve.wire.serve_errors import Invalid, MemoryFull, TooLarge, Unsupported

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="regions are Linux's")


@pytest.fixture
def memory() -> Iterator[Path]:
    path = Path("/dev/shm") / f"opalite-{uuid.uuid4().hex}"
    path.write_bytes(bytes(range(64)))
    yield path
    path.unlink(missing_ok=True)


def place(name: str, nbytes: int, at: int = 0) -> dict[str, int | str]:
    return {"shared_memory_region": name, "shared_memory_byte_size": nbytes, "shared_memory_offset": at}


def open_files() -> set[str]:
    folder = Path("/proc/self/fd")
    return {os.readlink(f) for f in list(folder.iterdir()) if f.exists()}


@pytest.mark.parametrize(
    "host, offered, allowed",
    [
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("::1", True, True),
        ("::ffff:127.0.0.1", True, True),
        ("10.0.0.1", True, False),
        ("::ffff:10.0.0.1", True, False),
        ("", True, False),
        ("localhost", True, False),
        ("127.0.0.1", False, False),
    ],
)
def test_clients_of_this_machine_alone_use_it(memory: Path, host: str, offered: bool, allowed: bool) -> None:
    regions = SystemSharedMemory(offered).of(host)
    assert regions.status() == []
    if allowed:
        regions.register("r", memory.name, 8, 16)
        assert bytes(regions.read("x", place("r", 4, 2)) or b"") == bytes([10, 11, 12, 13])
        return
    for call in (
        lambda: regions.register("r", memory.name, 0, 8),
        lambda: regions.unregister("r"),
        lambda: regions.read("x", place("r", 8)),
        lambda: regions.status("r"),
    ):
        with pytest.raises(Unsupported, match="this machine only"):
            call()
    assert regions.read("x", {"binary_data_size": 8}) is None


def test_a_region_is_unregistered_while_a_request_runs(memory: Path) -> None:
    shared = SystemSharedMemory()
    regions = shared.of("127.0.0.1")
    regions.register("r", f"/{memory.name}", 0, 64)
    outputs = regions.outputs_of(InferRequest("m", (), outputs=(RequestedOutput("y", place("r", 8, 56)),)))
    regions.unregister()
    assert str(memory) in open_files()
    y = Tensor("y", "FP32", np.array([1, 2], np.float32))
    (moved,) = outputs.apply(InferResponse("m", "1", "", (y,))).outputs
    assert moved.place == place("r", 8, 56)
    assert memory.read_bytes()[56:] == y.array.tobytes()
    del outputs
    assert str(memory) not in open_files()
    with pytest.raises(Invalid, match="no region 'r'; registered are none"):
        regions.read("x", place("r", 8))


def test_memory_that_ends_early_is_an_error_of_the_request(memory: Path) -> None:
    regions = SystemSharedMemory().of("::1")
    regions.register("r", memory.name, 0, 64)
    os.truncate(memory, 10)
    outputs = regions.outputs_of(InferRequest("m", (), outputs=(RequestedOutput("y", place("r", 8, 8)),)))
    with pytest.raises(Invalid, match="has 10 bytes, and the region ends at 16"):
        outputs.apply(InferResponse("m", "1", "", (Tensor("y", "FP32", np.zeros(2, np.float32)),)))
    assert memory.stat().st_size == 10
    with pytest.raises(Invalid, match="has 10 bytes, and the region ends at 16"):
        regions.read("x", place("r", 16))
    memory.unlink()
    assert bytes(regions.read("x", place("r", 2)) or b"") == b"\0\1"


def test_what_is_read_is_counted_before_it_is_copied(memory: Path) -> None:
    """Else a small request could claim as much memory as a region without contents has."""
    budget = MemoryBudget(100)
    account = budget.account("127.0.0.1")
    regions = SystemSharedMemory().of("127.0.0.1", account)
    os.truncate(memory, 1 << 40)
    regions.register("r", memory.name, 0, 1 << 40)
    assert regions.read("x", place("r", 40)) is not None
    assert budget.held == 40
    with pytest.raises(MemoryFull):
        regions.read("x", place("r", 1 << 40))
    account.close()
    assert budget.held == 0


def test_there_are_so_many_regions_at_most(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_shared_memory, "_MAX_REGIONS", 2)
    regions = SystemSharedMemory().of("127.0.0.1")
    for name in "ab":
        regions.register(name, memory.name, 0, 8)
    with pytest.raises(TooLarge, match="2 regions are registered already"):
        regions.register("c", memory.name, 0, 8)
    regions.unregister("a")
    regions.register("c", memory.name, 0, 8)
    assert [r["name"] for r in regions.status()] == ["b", "c"]


def test_what_is_no_memory_is_refused() -> None:
    regions = SystemSharedMemory().of("127.0.0.1")
    name = f"opalite-{uuid.uuid4().hex}"
    os.mkfifo(f"/dev/shm/{name}")
    try:
        with pytest.raises(Invalid, match="is no shared memory"):
            regions.register("r", name, 0, 8)
    finally:
        os.unlink(f"/dev/shm/{name}")
    for name in ("", "a\nb", "x" * 256):
        with pytest.raises(Invalid, match="printable"):
            regions.register(name, "k", 0, 8)
