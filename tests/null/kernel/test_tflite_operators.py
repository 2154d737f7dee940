"""Custom operators of .tflite files that a module registers: the options of their map are attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from opalite.errors import ModelError, UnsupportedOpError
from opalite.ir.load_plugins import load_plugin

from ...helpers.registered import registers, write_roll
from ...helpers.tflite_files import one_op
from ..importer.tflite.oracles import ran

__all__ = ["registers"]
pytestmark = pytest.mark.usefixtures("registers")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def run_roll(**options: Any) -> np.ndarray:
    raw = bytes(flexbuffers.Dumps(options))
    model, fed = one_op("Roll", [X], [(np.float32, X.shape)], custom=raw)
    (found,) = ran(model, fed)
    made: np.ndarray = found
    return made


def test_options_are_attributes(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOpError, match="or register a custom operator"):
        run_roll(axis=0, shift=1)
    load_plugin(str(write_roll(tmp_path, py=('domain="com.example"', "tflite=True"))))
    np.testing.assert_array_equal(run_roll(axis=1, shift=3), np.roll(X, 3, 1))
    with pytest.raises(ModelError, match="has the attribute 'by'; operator Roll declares axis, shift"):
        run_roll(axis=1, by=3)
