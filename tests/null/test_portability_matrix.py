"""The portability page: results become cells, known faults are told apart, what is open is listed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opalite.kernels import all_kernels
from tests.portability import install, matrix, run, watch
from tests.portability.implementations import IMPLEMENTATIONS, DebianSource
from tests.portability.known import AVOIDED, FAULTS, OUT_OF_REACH, Fault

TEST = "tests/device/kernels/conv/test_direct_packed.py::test_float32[{}]"
MODEL = "tests/models/test_shared_models.py::test_outputs_match[mosaic.case2]"


SIZE = {"cases": 9, "functions": 4}


def result(outcome: str, text: str = "") -> dict[str, Any]:
    return {"outcome": outcome, "seconds": 60, "text": text}


def test_cells_and_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    pocl, intel = IMPLEMENTATIONS[0], next(i for i in IMPLEMENTATIONS if i.name == "intel")
    fault = Fault((pocl.name,), r"float32\[[bd]\]", "rounds upward", "dynamic_quantized_matmul.py", r"^$")
    monkeypatch.setattr(matrix, "FAULTS", (fault,))
    results = {
        TEST.format("a"): result("passed"),
        TEST.format("b"): result("failed", "x\nE   AssertionError: off | by one"),
        TEST.format("c"): result("crashed", "worker 'gw0' crashed"),
        TEST.format("d"): result("failed"),
        MODEL: result("passed") | {"date": "2026-11-22", "code": "abc1234"},
    }
    data = {
        pocl.name: matrix.summarize(pocl, results, "", SIZE),
        intel.name: matrix.summarize(intel, {}, "no wheel", SIZE),
    }
    page = matrix.page(data)
    assert "| direct packed | 1 ok, **1 failed**, **1 crashed**, **1 driver fault** stale @earlier |" in page
    assert "| model mosaic | 1 ok stale @abc1234 |" in page
    assert "| **cases run** | 5 of 9, in 2 of 4 functions |" in page
    assert "| **day and code** | 2026-11-22 abc1234: 1, earlier: 4 |" in page
    assert "| time of the tests | 5 min |" in page
    assert "is skipped: no wheel" in page
    assert "AssertionError: off / by one" in page
    assert "rounds upward" in page
    assert page.count(TEST.format("d")) == 0


def test_what_is_avoided_has_its_program() -> None:
    folder = matrix.TEXT.parent / "faults"
    for fault in FAULTS:
        assert (folder / fault.program).is_file()
    for avoided in AVOIDED:
        assert (folder / avoided.program).is_file()
        assert {*avoided.implementations} <= {i.name for i in IMPLEMENTATIONS}


def test_failures_stay_until_they_were_run_again(tmp_path: Path) -> None:
    pocl = IMPLEMENTATIONS[0]
    rows = [{"test": t, "outcome": o, "seconds": s} for t, o, s in (("a", "passed", 2), ("b", "failed", 3))]
    results = run.results_file(pocl, tmp_path)
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = tmp_path / "before.json"
    assert run._known_before(pocl, tmp_path, before, False)["settled"] == ["a", "b"]
    known = run._known_before(pocl, tmp_path, before, True)
    assert known == {"settled": ["a"], "seconds": {"a": 2, "b": 3}}
    before.write_text(json.dumps(known))
    results.unlink()
    assert run._known_before(pocl, tmp_path, before, False) == {"settled": [], "seconds": {"a": 2, "b": 3}}


def test_long_tests_come_first_and_settled_ones_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps({"settled": ["t.py::g[1]"], "seconds": {"t.py::h": 80, "t.py::f": 30}}))
    monkeypatch.setenv("PORTABILITY_BEFORE", str(before))
    monkeypatch.setattr(watch, "_SIZE", str(tmp_path / "size.json"))
    items = [SimpleNamespace(nodeid=f"t.py::{name}") for name in ("e", "f", "g[0]", "g[1]", "h")]
    watch.pytest_collection_modifyitems(cast(Any, None), cast(Any, items))
    assert [item.nodeid for item in items] == [f"t.py::{name}" for name in ("h", "f", "e", "g[0]")]
    assert json.loads((tmp_path / "size.json").read_text()) == {"cases": 5, "functions": 4}


def test_what_was_not_run_is_no_column() -> None:
    pocl = IMPLEMENTATIONS[0]
    page = matrix.page({pocl.name: matrix.summarize(pocl, {}, "", SIZE)})
    assert f"{pocl.title} was not run yet" in page


def test_kernels_that_no_simulator_ran_are_named() -> None:
    simulator = next(i for i in IMPLEMENTATIONS if not i.models)
    known = sorted(kernel.name for kernel in all_kernels() if kernel.name not in OUT_OF_REACH)
    results = {
        TEST.format("a"): result("passed") | {"kernels": known[1:]},
        TEST.format("b"): result("failed") | {"kernels": known[:1]},
    }
    page = matrix.page({simulator.name: matrix.summarize(simulator, results, "", SIZE)})
    assert f"{len(known) - 1} of {sum(1 for _ in all_kernels())}" in page
    assert f"`{known[0]}`: **not run**" in page
    assert {kernel.name for kernel in all_kernels()} >= set(OUT_OF_REACH)


def test_wrong_instructions_are_replaced_once(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"abcabd")
    (tmp_path / "twice.so").write_bytes(b"abab")
    patched = (("lib.so", b"abc".hex(), b"axc".hex()), ("twice.so", b"ab".hex(), b"xx".hex()))
    for _ in range(2):
        install._patch(DebianSource("bookworm", "lib.so", patched=patched), tmp_path)
        assert (tmp_path / "lib.so").read_bytes() == b"axcabd"
        assert (tmp_path / "twice.so").read_bytes() == b"abab"
