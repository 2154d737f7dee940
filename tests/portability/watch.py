"""A pytest plugin: a line of JSON a test, a simulator's reports as failures, and no test that hangs.

    PORTABILITY_RESULTS=r.jsonl PORTABILITY_SECONDS=120 python -m pytest -p tests.portability.watch -n 1 tests/device

PORTABILITY_EACH=N keeps N cases of each test function (and kernel, where cases name one) but all models.
PORTABILITY_BEFORE names what `run.py` wrote of earlier runs: tests that it calls settled are left out, those that took
long come first. PORTABILITY_SIZE is where the number of all cases and functions goes, PORTABILITY_CODE what lines of
results call the code that was tested, PORTABILITY_DIGEST its digest (code.py). Under pytest-xdist a process whose test
took too long, or that its driver ended, is replaced by another.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opalite.kernels import all_kernels

from .reached import follow_launches, forget, reached
from .shadow import exactly, follow_host_writes
from .turns import time_alternately

_SECONDS = float(os.environ.get("PORTABILITY_SECONDS", "120"))
_RESULTS = os.environ.get("PORTABILITY_RESULTS", "")
_SIZE = os.environ.get("PORTABILITY_SIZE", "")
_CODE = os.environ.get("PORTABILITY_CODE", "")
_DIGEST = os.environ.get("PORTABILITY_DIGEST", "")
_EACH = int(os.environ.get("PORTABILITY_EACH", "0"))
_KERNELS = "kernels"
_LONG_S = 5.0  # tests that differ by less keep their order, so that neighbours share programs
_LINES = 60  # of a failure, from its end, and of a simulator's report, from its start


def _log_path() -> Path | None:
    """Where this process's simulator writes; set before its first OpenCL call."""
    if not any(name.startswith("OCLGRIND_") for name in os.environ):
        return None
    path = Path(tempfile.gettempdir()) / f"oclgrind-{os.getpid()}.log"
    path.write_text("")
    os.environ["OCLGRIND_LOG"] = str(path)
    return path


_LOG = _log_path()
_started: dict[str, float] = {}


def pytest_configure() -> None:
    """Let a simulator see what memory holds, to the byte."""
    if _LOG is not None:
        exactly()
        time_alternately()
        follow_launches()
    if os.environ.get("OCLGRIND_UNINITIALIZED"):
        follow_host_writes()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is known already, and all but a few cases of each function."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    if _SIZE:
        Path(_SIZE).write_text(json.dumps({"cases": len(items), "functions": len(functions)}))
    kept: set[str] = set()
    for function, of_function in functions.items():
        for cases in _by_kernel(of_function):
            few = min(_EACH, len(cases)) if _EACH and "shared_models" not in function else len(cases)
            kept |= {cases[i * len(cases) // few].nodeid for i in range(few)}
    before = _before()
    settled, seconds = set(before["settled"]), before["seconds"]
    left = [item for item in items if item.nodeid in kept and item.nodeid not in settled]
    items[:] = sorted(left, key=lambda item: -round(seconds.get(item.nodeid, 0) / _LONG_S))


def _by_kernel(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of a function, those that name a kernel apart from those that name another."""
    kernels = {kernel.name for kernel in all_kernels()}
    found: dict[tuple[str, ...], list[pytest.Item]] = {}
    for item in items:
        words = re.findall(r"\w+", item.nodeid.partition("[")[2])
        found.setdefault(tuple(w for w in words if w in kernels), []).append(item)
    return list(found.values())


def _before() -> dict[str, Any]:
    """What is known of earlier runs."""
    path = os.environ.get("PORTABILITY_BEFORE")
    return json.loads(Path(path).read_text()) if path else {"settled": [], "seconds": {}}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    faulthandler.dump_traceback_later(_SECONDS, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    start = _LOG.stat().st_size if _LOG is not None else 0
    forget()
    try:
        result = yield
    except Exception as e:
        if report := _simulator_says(start):
            e.add_note(report)
        raise
    if report := _simulator_says(start):
        pytest.fail(report, pytrace=False)
    if names := reached():
        item.user_properties.append((_KERNELS, names))
    return result


def _simulator_says(start: int) -> str:
    """What this process's simulator wrote since its log was `start` bytes long."""
    if _LOG is None:
        return ""
    with _LOG.open(errors="replace") as file:
        file.seek(start)
        lines = file.read().strip().splitlines()
    return "\n".join(["oclgrind reports:", *lines[:_LINES]]) if lines else ""


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note when a test began, to tell one that was ended for its time from one that crashed."""
    _started[nodeid] = time.monotonic()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each test, written by the process that leads."""
    if not _RESULTS or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.when != "call" and report.outcome == "passed":
        return
    line: dict[str, Any] = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2)}
    line |= {"code": _CODE, "digest": _DIGEST, "date": time.strftime("%Y-%m-%d", time.gmtime())}
    if names := dict(report.user_properties).get(_KERNELS):
        line["kernels"] = names
    text = str(report.longrepr or "")
    if report.outcome == "failed":
        if text.startswith("worker "):
            seconds = time.monotonic() - _started.get(report.nodeid, time.monotonic())
            line |= {"outcome": "long" if seconds >= _SECONDS else "crashed", "seconds": round(seconds, 2)}
        line["text"] = "\n".join(text.splitlines()[-_LINES:])
    elif report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        line["text"] = report.longrepr[2]
    with open(_RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
