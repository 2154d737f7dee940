"""Programs built by worker processes: equal results, and no harm whatever happens to the workers."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.programs import build_pool, compile_source, program_cache
from opalite.cl.programs.build_pool import BuildPool, Lane
from opalite.cl.programs.program_cache import _FEW
from opalite.cl.runtime import Runtime
from opalite.errors import BuildError
from opalite.ir.device.device_family import FRAGILE_COMPILER, PLAIN_BUILDS, SERIAL_BUILDS

SOURCE = "kernel void f(global int *x) { x[get_global_id(0)] = VALUE; }"
COUNT = _FEW + 3
CALLS = Lane("calls", 2)


@pytest.fixture
def rt(device_id: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPALITE_BUILD_THREADS", "2")
    runtime = Runtime(find_device(device_id))
    if runtime.programs._pool is None:
        pytest.skip(f"{runtime.info.name} builds in this process")
    yield runtime
    runtime.programs.close()


def pool_of(rt: Runtime) -> BuildPool:
    assert rt.programs._pool is not None
    return rt.programs._pool


def specs(count: int = COUNT, first: int = 0) -> list[tuple[str, str, str]]:
    return [(SOURCE, f"-DVALUE={first + i}", f"p{i}") for i in range(count)]


def values(rt: Runtime, programs: list[Any]) -> list[int]:
    buffer, got = rt.allocate(4), np.zeros(1, np.int32)
    found = []
    for program in programs:
        rt.prepare(program, "f", [buffer], (1,)).enqueue(rt.queue)
        rt.read(buffer, got)
        found.append(int(got[0]))
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_build_the_same(rt: Runtime) -> None:
    told: list[tuple[int, int]] = []
    programs = rt.build_all(specs(), lambda done, total: told.append((done, total)))
    assert len(pool_of(rt).pids) == 2
    assert values(rt, programs) == list(range(COUNT))
    assert told == [(i + 1, COUNT) for i in range(COUNT)]
    assert (rt.counters.programs_built, rt.counters.programs_loaded) == (COUNT, 0)
    again = Runtime(find_device())
    assert values(again, again.build_all(specs())) == list(range(COUNT))
    assert (again.counters.programs_built, again.counters.programs_loaded) == (0, COUNT)
    assert not pool_of(again).pids


def test_without_a_cache(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE", "0")
    uncached = Runtime(find_device())
    uncached.programs.prestart_workers()
    assert len(pool_of(uncached).pids) == 2
    assert values(uncached, uncached.build_all(specs())) == list(range(COUNT))
    uncached.programs.close()


def test_where_threads_cannot_be_started_programs_are_built_one_by_one(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(rt.programs, "_serial", False)  # as GPUs' drivers, which compile several at once
    monkeypatch.setattr(rt.programs, "_build_by_workers", lambda specs, report: set())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    told: list[tuple[int, int]] = []
    assert values(rt, rt.build_all(specs(3), lambda done, total: told.append((done, total)))) == [0, 1, 2]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_few_programs_and_cached_ones_need_no_worker(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rt.programs, "_fragile", False)
    rt.build_all(specs(_FEW))
    assert not pool_of(rt).pids
    rt.programs.prestart_workers()  # something is cached, so it is not known that much is missing
    assert not pool_of(rt).pids


def test_workers_that_are_ready_build_few_programs_too(rt: Runtime) -> None:
    """They were started for a session that expects builds; compiling here would take longer, and one at a time."""
    rt.programs.prestart_workers()
    asked: list[int] = []
    given = rt.programs._build_in_pool

    def record(missing: Any, *lane: Any) -> Any:
        asked.append(len(missing))
        return given(missing, *lane)

    rt.programs._build_in_pool = record  # type: ignore[method-assign]
    assert values(rt, rt.programs.get_all(specs(1))) == [0]
    assert asked == [1]


def test_the_longest_program_is_begun_first(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    monkeypatch.setattr(rt.programs, "_fragile", False)
    monkeypatch.setattr(
        rt.programs, "_build_in_pool", lambda missing, _: asked.append([len(t) for t, _ in missing]) or []
    )
    texts = [SOURCE + " " * n for n in (3, 90, 7, 40)]
    rt.programs.get_all([(text, f"-DVALUE={k}", "p") for k, text in enumerate(texts)])
    assert asked == [[len(SOURCE) + n for n in (90, 40, 7, 3)]]


def test_programs_that_do_not_compile(rt: Runtime) -> None:
    with pytest.raises(Exception, match="p-wrong did not compile"):
        rt.build_all([*specs(), (SOURCE, "", "p-wrong")])
    assert rt.counters.programs_built == COUNT


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
@pytest.mark.parametrize("victims", [1, 2])
def test_workers_that_fail(rt: Runtime, blow: int, victims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_pool, "START_S", 8.0)
    monkeypatch.setattr(build_pool, "BUILD_S", 2.0)
    rt.build_all(specs(first=100))
    pids = pool_of(rt).pids
    for pid in pids[:victims]:
        os.kill(pid, blow)
    assert values(rt, rt.build_all(specs())) == list(range(COUNT))
    assert not set(pids[:victims]) & set(pool_of(rt).pids)


def test_workers_that_cannot_start(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert values(rt, rt.build_all(specs())) == list(range(COUNT))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert values(rt, rt.build_all(specs(first=50))) == list(range(50, 50 + COUNT))


def test_a_worker_refuses_another_device(rt: Runtime) -> None:
    pool = BuildPool(pool_of(rt)._index, "OpenCL 9 of another driver")
    assert list(pool.build(Lane("calls", 1), [(SOURCE, "-DVALUE=1")])) == []
    assert pool.pids == []
    pool.close()


def test_interrupted_builds_leave_no_worker_busy(rt: Runtime) -> None:
    pool = pool_of(rt)
    answers = pool.build(CALLS, [spec[:2] for spec in specs()])
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert all(worker.task is None for worker in pool._workers if worker.is_alive)
    assert values(rt, rt.build_all(specs())) == list(range(COUNT))


def test_a_thread_may_wait_for_busy_workers(rt: Runtime) -> None:
    pool = pool_of(rt)
    wanted = [spec[:2] for spec in specs()]
    first = pool.build(CALLS, wanted)
    delivered = [next(first)[0]]
    assert list(pool.build(CALLS, wanted)) == []
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(lambda: sorted(number for number, _ in pool.build(CALLS, wanted, waits=True)))
        delivered.extend(number for number, _ in first)
        assert sorted(delivered) == second.result(120) == list(range(COUNT))


PROCESS = """
import os, sys
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.runtime import Runtime
rt = Runtime(find_device())
rt.programs.prestart_workers()
programs = rt.build_all([("kernel void f(global int *x) { x[0] = VALUE; }", f"-DVALUE={i}", "") for i in range(6)])
print(*rt.programs._pool.pids, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("end", ["exits", "killed"])
def test_nothing_is_left_running(rt: Runtime, tmp_path: Path, end: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("POCL_") or k == "POCL_DEVICES"}
    environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", PROCESS, end], env=environment, capture_output=True, text=True, timeout=120
    )
    pids = [int(pid) for pid in process.stdout.split()]
    assert len(pids) == 2, process.stderr
    until = time.monotonic() + 60
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, pids))
    assert process.stderr == ""
    if end == "exits":
        assert not list(tmp_path.glob("opalite-build-*"))


def test_a_worker_ends_with_its_caller_though_it_compiles() -> None:
    code = """
import ctypes
from opalite.cl.programs.build_worker import exit_with_parent
exit_with_parent()
print("begun", flush=True)
ctypes.CDLL(None).sleep(100_000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"begun\n"
        assert worker.poll() is None
        worker.stdin.close()
        try:
            assert worker.wait(60) == 1
        finally:
            worker.kill()


def test_quirks_of_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("OPALITE_BUILD_THREADS", "4")
    found = find_device()
    info = dataclasses.replace(found.info, family="generic", quirks=(SERIAL_BUILDS, PLAIN_BUILDS))
    runtime = Runtime(dataclasses.replace(found, info=info))
    threads: set[int] = set()
    given: list[str] = []

    def build(self: Any, options: bytes, devices: Any) -> None:
        threads.add(threading.get_ident())
        given.append(options.decode())
        original(self, options, devices)

    original = program_cache.cl._Program._build
    monkeypatch.setattr(program_cache.cl._Program, "_build", build)
    runtime.build_all(specs(4))
    assert threads == {threading.get_ident()}
    assert all("-cl-opt-disable" in options for options in given)


DEADLY_WORKER = """
import os, sys
from opalite.cl.programs import build_worker
build = build_worker.build
def build_or_die(device, options, text):
    if "ALWAYS DEADLY" in text or "DEADLY" in text and "-cl-opt-disable" not in options:
        os.write(2, b"LLVM ERROR: no fixpoint\\n")
        os.abort()
    return build(device, options, text)
build_worker.build = build_or_die
sys.exit(build_worker.main(*sys.argv[1:]))
"""


@pytest.fixture
def deadly(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A device whose compiler ends its process on programs that say DEADLY, as PoCL 6 does on some."""
    monkeypatch.setattr(
        BuildPool, "_command", lambda pool: [sys.executable, "-c", DEADLY_WORKER, pool._index, pool._version]
    )
    monkeypatch.setattr(compile_source, "_save_source", lambda *args: "somewhere")
    return rt


def test_a_program_that_ends_its_compiler_is_built_without_optimisation(
    deadly: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = specs()
    wanted[1] = (f"// DEADLY\n{SOURCE}", "-DVALUE=1", "p1")
    assert values(deadly, deadly.build_all(wanted)) == list(range(COUNT))
    assert "LLVM ERROR: no fixpoint" in caplog.text
    assert "SIGABRT" in caplog.text


def test_a_program_that_always_ends_its_compiler_is_an_error(deadly: Runtime) -> None:
    wanted = [*specs(), (f"// ALWAYS DEADLY\n{SOURCE}", "-DVALUE=1", "p-deadly")]
    with pytest.raises(BuildError, match=r"crashes \(SIGABRT, 'LLVM ERROR: no fixpoint'\) on p-deadly"):
        deadly.build_all(wanted)
    assert values(deadly, deadly.build_all(specs())) == list(range(COUNT))


def test_nothing_is_compiled_here_by_a_fragile_compiler(deadly: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_device()
    info = dataclasses.replace(found.info, quirks=(FRAGILE_COMPILER,))
    runtime = Runtime(dataclasses.replace(found, info=info))
    monkeypatch.setattr(compile_source, "build_with_pruned_header", lambda *_: pytest.fail("compiled here"))
    text = f"// DEADLY\n{SOURCE}"
    assert values(runtime, [runtime.build(text, "-DVALUE=77", "p")]) == [77]
    assert values(runtime, [runtime.build(SOURCE, "-DVALUE=78", "p")]) == [78]
    runtime.programs.close()


def test_what_workers_built_is_stored_without_asking_the_driver(
    rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL loads every kernel of a program that it is asked the binary of, and of those it loaded it keeps 128."""

    def ask(program: Any) -> bytes:
        raise AssertionError("the driver was asked for a binary that is at hand")

    monkeypatch.setattr(rt.programs, "_binary_of", ask)
    assert values(rt, rt.programs.get_all(specs(first=900))) == list(range(900, 900 + COUNT))
    assert len(list((tmp_path / "cache" / "programs").glob("*/*.bin"))) == COUNT


POLITE_WORKER = """
import os, sys, time
from opalite.cl.programs.build_worker import REQUEST, READY, _read, _write, exit_with_parent
exit_with_parent()
_write(1, READY)
while (header := _read(REQUEST.size)) is not None:
    options, text = (_read(size) for size in REQUEST.unpack(header))
    while os.getpriority(os.PRIO_PROCESS, 0) > os.getpriority(os.PRIO_PROCESS, os.getppid()):
        time.sleep(0.01)
    _write(1, text)
"""
"""It gets nothing done while it gives way to its caller, as on a machine that is busy enough."""

WAITING = """
import ctypes, os, sys, threading
if sys.argv[1] == "anybody":  # root without the right to raise priorities, which is lost with the next program
    PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)
    os.execv(sys.executable, [*sys.orig_argv[:3], "any program", *sys.argv[2:]])
from opalite.cl.programs import worker_process
from opalite.cl.programs.build_pool import BuildPool, Lane
if sys.argv[1] == "refused":
    raised = worker_process.set_niceness
    worker_process.set_niceness = lambda pid, niceness: niceness > 0 and raised(pid, niceness)
BuildPool._command = lambda pool: [sys.executable, "-P", "-c", sys.argv[2]]
pool, lane = BuildPool("0:0", ""), Lane("background", 2, is_background=True)
built, seen = [], threading.Event()
def is_begun():
    return any(worker.task is not None for worker in list(pool._workers))
def build():
    programs = [(f"program {i}", "") for i in range(5)]
    for number, text in pool.build(lane, programs, niceness=15, stop=lambda: is_begun() and seen.set()):
        built.append((number, text))
thread = threading.Thread(target=build, daemon=True)
thread.start()
seen.wait()
with pool.expedite_builds():
    thread.join(100)
print(sorted(built) == [(i, f"program {i}".encode()) for i in range(5)], len(pool.pids), flush=True)
pool.close()
"""


@pytest.mark.parametrize("user", ["oneself", "anybody", "refused"])
def test_who_waits_for_a_build_lends_it_its_priority(user: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", WAITING, user, POLITE_WORKER]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True", "2"], done.stderr
