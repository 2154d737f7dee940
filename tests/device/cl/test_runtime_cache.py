"""The program cache: between runtimes, between processes, over damage and sudden death."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opalite.cache.binary_store import _HEADER, _MAGIC, FORMAT
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.runtime import Runtime
from opalite.errors import BuildError

STACK = b"\x51\xe5\x74\x64"  # what a shared library's header of the stack begins with; flags follow
SOURCE = "kernel void f(global int *x) { x[get_global_id(0)] = VALUE; }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_runtime() -> Runtime:
    return Runtime(find_device())


def value_of(rt: Runtime, program: Any) -> int:
    buffer = rt.allocate(4)
    rt.prepare(program, "f", [buffer], (1,)).enqueue(rt.queue)
    got = np.zeros(1, np.int32)
    rt.read(buffer, got)
    return int(got[0])


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("programs/*/*.bin"))


def test_memory_then_disk(folder: Path) -> None:
    rt = make_runtime()
    program = rt.build(SOURCE, "-DVALUE=7")
    assert rt.build(SOURCE, "-DVALUE=7") is program
    assert value_of(rt, program) == 7
    assert (rt.counters.programs_built, rt.counters.programs_loaded) == (1, 0)
    assert len(entries(folder)) == 1

    second = make_runtime()
    assert value_of(second, second.build(SOURCE, "-DVALUE=7")) == 7
    assert (second.counters.programs_built, second.counters.programs_loaded) == (0, 1)
    # Options and source are part of the key.
    assert value_of(second, second.build(SOURCE, "-DVALUE=8")) == 8
    assert value_of(second, second.build(SOURCE.replace("VALUE", "VALUE + 1"), "-DVALUE=7")) == 8
    assert second.counters.programs_built == 2


def rewrite(path: Path, how: str) -> None:
    raw = path.read_bytes()
    if how == "truncated":
        path.write_bytes(raw[: len(raw) // 2])
    elif how == "damaged":
        path.write_bytes(raw[:-100] + bytes(100))
    elif how == "empty":
        path.write_bytes(b"")
    else:  # whole and signed, but nothing that the driver knows, or that the system's loader takes
        binary = b"not a program of this driver" * 10
        if how == "executable stack":
            binary = raw[_HEADER.size :].replace(STACK + b"\6", STACK + b"\7")
            assert len(binary) + _HEADER.size == len(raw)
            assert binary != raw[_HEADER.size :]
        key = bytes.fromhex(path.stem)
        path.write_bytes(_HEADER.pack(_MAGIC, FORMAT, 0, key, hashlib.sha256(binary).digest(), len(binary)) + binary)


@pytest.mark.parametrize("how", ["truncated", "damaged", "empty", "foreign", "executable stack"])
def test_bad_entries_are_built_again(folder: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    rt = make_runtime()
    if how == "executable stack" and not rt.programs._serial:
        pytest.skip("PoCL alone keeps machine code as shared libraries")
    rt.build(SOURCE, "-DVALUE=3")
    (entry,) = entries(folder)
    rewrite(entry, how)
    second = make_runtime()
    with caplog.at_level(logging.WARNING):
        assert value_of(second, second.build(SOURCE, "-DVALUE=3")) == 3
    assert [r for r in caplog.records if "removed entry" in r.message]
    assert len(caplog.records) == 1
    assert second.counters.programs_built == 1
    third = make_runtime()
    assert value_of(third, third.build(SOURCE, "-DVALUE=3")) == 3
    assert third.counters.programs_loaded == 1


def test_switched_off_nothing_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE", "0")
    rt = make_runtime()
    assert value_of(rt, rt.build(SOURCE, "-DVALUE=4")) == 4
    assert not entries(folder)


def test_many_at_once_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_BUILD_THREADS", "3")
    rt = make_runtime()
    told: list[tuple[int, int]] = []
    specs = [(SOURCE, f"-DVALUE={i}", f"p{i}") for i in (5, 6, 5, 7)]
    programs = rt.build_all(specs, lambda done, total: told.append((done, total)))
    assert [value_of(rt, p) for p in programs] == [5, 6, 5, 7]
    assert programs[0] is programs[2]
    assert told == sorted(told)
    assert told[-1] == (4, 4)
    assert rt.counters.programs_built == 3
    with pytest.raises(BuildError, match="wrong"):
        rt.build_all([*specs, (SOURCE, "", "wrong"), (SOURCE, "-DVALUE=9", "p9")])
    assert rt.build_all([]) == []


# A worker builds, runs, saves and checks programs in a shared cache folder.
WORKER = """
import logging, sys
import numpy as np
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.runtime import Runtime
logging.basicConfig(stream=sys.stdout, format="log: %(message)s")
rt = Runtime(find_device())
print("ready", flush=True)
for value in range(int(sys.argv[1]), int(sys.argv[2])):
    program = rt.build("kernel void f(global int *x) { x[get_global_id(0)] = VALUE; }", f"-DVALUE={value}")
    buffer, got = rt.allocate(4), np.zeros(1, np.int32)
    rt.prepare(program, "f", [buffer], (1,)).enqueue(rt.queue)
    rt.read(buffer, got)
    assert got[0] == value, (got, value)
print("built", rt.counters.programs_built, "loaded", rt.counters.programs_loaded, flush=True)
"""


def start_worker(folder: Path, first: int, end: int) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("POCL_")}
    environment |= {"OPALITE_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(first), str(end)], env=environment, stdout=subprocess.PIPE, text=True
    )


def finish(worker: subprocess.Popen[str]) -> str:
    out, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, out
    return out


def test_a_second_process_compiles_nothing(folder: Path) -> None:
    assert "built 2 loaded 0" in finish(start_worker(folder, 0, 2))
    assert "built 0 loaded 2" in finish(start_worker(folder, 0, 2))
