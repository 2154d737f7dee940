"""--json of every command: one object on standard output, nothing else; -o writes the same to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from opalite.cli import main
from opalite.cli.json_report import to_json

from ..helpers.small_models import adder, save

ROOT = Path(__file__).parents[2]
KEYS = {
    "bench --iterations 1 --warmup 0": {"model", "plan", "machine", "engines", "failed"},
    "cache ls": {"folder", "limit_mib", "is_used", "kinds", "tuning", "lookups"},
    "compile": {"model", "bundle", "bytes", "assumed", "variants"},
    "devices": {"platforms", "broken", "default", "devices"},
    "doctor": {"is_usable", "findings"},
    "inspect": {"model", "device", "inputs", "outputs", "launches", "expected_ms", "memory", "nodes"},
    "inspect --device adreno_640": {"model", "device", "launches", "expected_ms", "memory", "nodes"},
    "knobs": {"settings"},
    "profile --iterations 1": {"model", "device", "device_ms", "run_ms", "peaks", "nodes", "kernels"},
    "profile --plan --device adreno_640": {"model", "device", "predicted_ms", "nodes", "kernels"},
    "run --iterations 1": {"model", "device", "outputs", "median_ms", "is_steady", "first", "runs", "stats"},
    "tune": {"model", "level", "is_complete", "graphs"},
    "verify --cumulative": {"model", "drift"},
    "verify": {"model", "device", "passed", "nodes", "rewrites", "outputs"},
}
WITHOUT_MODEL = ("cache", "devices", "doctor", "knobs")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(adder(), "add.onnx")


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("command", KEYS)
def test_one_object_and_nothing_else(command: str) -> None:
    name, *options = command.split()
    model = [] if name in WITHOUT_MODEL else ["add.onnx"]
    result = run(name, *model, *options, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout, parse_constant=refuse)
    assert found.keys() >= KEYS[command] | {"command", "version"}
    assert found["command"] == " ".join(w for w in (name, *options[: name == "cache"]))
    page = (ROOT / "docs" / "json.md").read_text()
    for key in found:
        assert f"`{key}`" in page, f"docs/json.md lacks {key} of {command}"


def test_a_report_in_a_file_beside_the_table() -> None:
    result = run("verify", "add.onnx", "-o", "found.json")
    assert "agree on" in result.stdout
    assert "wrote found.json" in result.stderr
    assert json.loads(Path("found.json").read_text())["passed"]
    assert run("verify", "add.onnx", "-o", "none/found.json").exit_code == 1


def test_an_error_is_a_sentence_on_standard_error() -> None:
    result = run("run", "none.onnx", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "opalite: there is no file 'none.onnx'\n"


def test_numbers_that_json_lacks_are_null() -> None:
    raw = {"a": float("inf"), "b": [np.float32("nan"), np.int64(3)], "c": (1.5, True), "d": Path("x"), "e": np.ones(2)}
    assert json.loads(to_json(raw)) == {"a": None, "b": [None, 3], "c": [1.5, True], "d": "x", "e": [1.0, 1.0]}
