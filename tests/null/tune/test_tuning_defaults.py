"""Tuning that the package ships: it names parameters that kernels have, and serves the devices it is for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opalite.expr.parse import parse_expr
from opalite.ir import DType
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_MMA
from opalite.ir.graph import Node
from opalite.ir.precision import Precision
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import all_kernels, kernels_for
from opalite.tune.database_files import SHIPPED, has_tuning
from opalite.tune.export_json import from_json
from opalite.tune.tuning_database import TuningDatabase
from opalite.tune.tuning_lookup import Lookup

H200 = read_description("nvidia_h200")
FILES = sorted(SHIPPED.glob("*.json"))


def product() -> Node:
    """The widest layer of VGG-16, at batch 1."""
    attrs = {
        "trans_a": False,
        "trans_b": True,
        "epilogue": parse_expr("add($0, $1); max(%0, 0.0:f32)", [DType.FLOAT32] * 2),
    }
    arrays = [np.broadcast_to(np.float32(0), s) for s in ((1, 25088), (4096, 25088), (4096,))]
    node = make_node("MatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    node.precision = Precision.FP16
    return node


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_entries_are_of_kernels_and_parameters_that_exist(path: Path) -> None:
    spaces = {k.name: k.space for k in all_kernels()}
    entries = from_json(path.read_text())
    keys = Counter((e.kernel.partition(":")[0], e.binding, e.node) for e in entries)
    assert entries
    assert max(keys.values()) == 1
    for e in entries:
        space = spaces[e.kernel.partition(":")[0]]
        assert e.params.keys() == space.keys(), e
        assert all(value in space[name] for name, value in e.params.items()), e
        assert e.seconds < e.default_seconds, e


def test_an_h200_takes_what_was_measured_on_one() -> None:
    device = replace(H200, quirks=(PTX_MMA,))
    lookup, node = Lookup(TuningDatabase(None), device), product()
    (kernel,) = (k for k in kernels_for("MatMul") if k.name == "MatmulMma")
    setting = lookup.setting(node, kernel, kernel.bindings(kernel.problem(node, device))[0])
    assert setting is not None
    assert setting.origin == "shipped for nvidia-hopper"
    assert setting.params != kernel.defaults(kernel.problem(node, device))
    assert lookup.seconds(node, kernel, kernel.bindings(kernel.problem(node, device))[0]) is None
    assert has_tuning(device)
    assert (
        Lookup(TuningDatabase(None), replace(device, generation="ampere")).setting(
            node, kernel, kernel.bindings(kernel.problem(node, device))[0]
        )
        is None
    )
