"""Host operators in NumPy: maps and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

import onnx
from opalite.errors import ModelError, OpaliteError, ShapeError
from opalite.importer.host.onnx_reference import run_host

from ..oracles import ML, Values

V = Values(7)


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 5]}, {"classlabels_strings": ["a", "b"]}])
def test_zip_map_gives_a_map_for_each_row(labels: dict[str, Any]) -> None:
    node = oh.make_node("ZipMap", ["x0"], ["y0"], domain=ML, **labels).SerializeToString()
    found = run_host("ZipMap", ML, 1, node, [V.f(2, 2)])[0]
    first, second = next(iter(labels.values()))
    assert [list(row) for row in found] == [[first, second]] * 2
    with pytest.raises(ShapeError, match="2 labels"):
        run_host("ZipMap", ML, 1, node, [V.f(2, 3)])


@pytest.mark.parametrize("position", [np.int64(1), np.array([1], np.int64), np.array([-1], np.int64)])
def test_sequence_at_takes_a_position_of_one_element(position: Any) -> None:
    node = oh.make_node("SequenceAt", ["x0", "x1"], ["y0"]).SerializeToString()
    elements = [V.f(2), V.f(3)]
    np.testing.assert_array_equal(run_host("SequenceAt", "", 17, node, [elements, position])[0], elements[1])
    with pytest.raises(OpaliteError, match="position 5"):
        run_host("SequenceAt", "", 17, node, [elements, np.int64(5)])


def test_nonzero_of_a_scalar() -> None:
    node = oh.make_node("NonZero", ["x0"], ["y0"]).SerializeToString()
    np.testing.assert_array_equal(run_host("NonZero", "", 13, node, [np.float32(2)])[0], np.zeros((1, 1), np.int64))
    assert run_host("NonZero", "", 13, node, [np.float32(0)])[0].shape == (1, 0)


def test_a_failing_host_operator_names_its_inputs() -> None:
    node = oh.make_node("StringConcat", ["x0", "x1"], ["y0"])
    assert isinstance(node, onnx.NodeProto)
    words = np.array(["a", "b", "c"], object)
    with pytest.raises(ModelError, match=r"x0: object\[3\], x1: object\[2\]"):  # which do not broadcast
        run_host("StringConcat", "", 20, node.SerializeToString(), [words, words[:2]])
