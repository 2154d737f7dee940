"""Cost tables: complete for every device, by names that exist, with commands that exist, the closest layer first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import opalite.kernels
from opalite.cost import Table, cost_tables, find_row, share_of_peak
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.device.device_info import DeviceInfo
from opalite.kernels import all_kernels

FOLDER = Path(cost_tables.__file__).parent
KERNELS = Path(opalite.kernels.__file__).parent
TABLES = [t for t in vars(cost_tables).values() if isinstance(t, type) and issubclass(t, Table) and t is not Table]
WALKS = (
    "CumulativeParallelScan",
    "CumulativeSequential",
    "NmsHeap",
    "NmsRounds",
    "Scatter",
    "SoftmaxAnyAxis",
    "TopKHeap",
    "TopKSelect",
)
DEVICES = [read_description(name) for name in description_names()]


def named_tables(layer: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in layer.items():
        if isinstance(value, dict):
            yield f"{path}{name}", value
            yield from named_tables(value, f"{path}{name}.")


def files() -> list[tuple[str, dict[str, Any]]]:
    return [(p.stem, dict(cost_tables._read(p.stem) or {})) for p in sorted(FOLDER.glob("*.toml"))]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_every_field_has_a_number(device: DeviceInfo) -> None:
    rows = [t.of(device) for t in TABLES if t is not cost_tables.SequentialSteps]
    rows += [cost_tables.SequentialSteps.named(name, device) for name in WALKS]
    for row in rows:
        for f in fields(row):
            assert isinstance(getattr(row, f.name), int | float), f"{type(row).__name__}.{f.name}"


def test_shares_are_of_kernels_that_exist() -> None:
    names = {k.name for k in all_kernels()}
    for file, layer in files():
        for name, share in layer.get("share_of_peak", {}).items():
            if name not in ("measured", "shown_by"):
                assert name in names, f"{file}.toml: there is no kernel {name}"
                assert 0 < share <= 1


def test_tables_are_of_those_there_are() -> None:
    known = {t.table for t in TABLES} | {"share_of_peak"}
    for file, layer in files():
        assert set(layer) <= known, file


def test_what_was_measured_can_be_shown() -> None:
    told = 0
    for file, layer in files():
        for name, values in named_tables(layer):
            if "measured" in values:
                assert "shown_by" in values, f"{file}.toml [{name}]"
            if "shown_by" in values:
                python, flag, module, *_ = values["shown_by"].split()
                assert (python, flag) == ("python", "-m")
                assert find_spec(module), f"{file}.toml [{name}]: there is no {module}"
                told += 1
    assert told > 8


def test_the_closest_layer_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in FOLDER.glob("*.toml"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "adreno.toml").write_text("[row_tile]\nrun = 2.0\n[share_of_peak]\nConvPacked = 0.25\n")
    (tmp_path / "adreno-6xx.toml").write_text("[row_tile]\nrun = 3.0\n")
    monkeypatch.setattr(cost_tables, "_FOLDER", tmp_path)
    monkeypatch.setattr(cost_tables, "_rows", {})
    for cached in (cost_tables._read, cost_tables._merged):
        cached.cache_clear()
    try:
        turn = find_row(cost_tables.RowTile, "gpu", "mali", "").turn
        assert find_row(cost_tables.RowTile, "gpu", "adreno", "5xx") == cost_tables.RowTile(run=2.0, turn=turn)
        assert find_row(cost_tables.RowTile, "gpu", "adreno", "6xx") == cost_tables.RowTile(run=3.0, turn=turn)
        assert share_of_peak("ConvPacked", DeviceInfo(family="adreno")) == 0.25
        assert share_of_peak("ConvDirect", DeviceInfo(family="adreno")) == 0.01
    finally:
        for cached in (cost_tables._read, cost_tables._merged):
            cached.cache_clear()


def test_a_kernel_that_no_table_names_has_a_share() -> None:
    assert share_of_peak("NobodyMeasuredThis", DeviceInfo()) == cost_tables.UNKNOWN_SHARE


def test_kernels_hold_no_costs_of_their_own() -> None:
    """A float at the top of a kernel's module is a cost; what it costs is in the tables."""
    found = []
    for path in sorted(KERNELS.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, float):
                found.append(f"{path.relative_to(KERNELS)}:{node.lineno}")
    assert not found
