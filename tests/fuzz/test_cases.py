"""Every graph that once failed, in both modes: for all fixture devices, and run on the device."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from opalite.ir.precision import Precision

from .case import Case
from .check import check, check_null_as
from .judge import Oracle
from .null import described_devices

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_planned_for_every_device(path: Path) -> None:
    case = Case.load(path)
    oracle = Oracle(case.model)
    wanted = [(f, oracle.run(f)) for f in case.feeds]
    for i, name in enumerate(described_devices()):
        for symbols in (False, True) if len(wanted) > 1 else (False,):
            precision = (Precision.FP32, Precision.FP16)[(i + symbols) % 2]
            check_null_as(name, precision, case, oracle, wanted, symbols=symbols)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_run_on_the_device(path: Path) -> None:
    for seed in (0, 3):  # as it is, and as a bundle
        assert check(Case.load(path), "device", seed) == "ok"
