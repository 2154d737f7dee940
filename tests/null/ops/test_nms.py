"""NonMaxSuppression's reference against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import by_ort, ours

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(43)


def many_boxes(batch: int, count: int, grid: int = 0) -> Array:
    """Boxes of random corners, in any order; on a grid of integers, so that overlaps tie with thresholds."""
    boxes = rng.uniform(0, 10, (batch, count, 4))
    return (np.round(boxes * grid / 10) if grid else boxes).astype(np.float32)


def check(boxes: Array, scores: Array, **changed: Any) -> None:
    attrs: dict[str, Any] = {"center_point_box": 0, "max_output": 10, "iou": 0.3, "score": 0.2} | changed
    inputs: list[Array | None] = [boxes, scores, np.array([attrs["max_output"]]), np.array([attrs["iou"]], np.float32)]
    if attrs["score"] is not None:
        inputs.append(np.array([attrs["score"]], np.float32))
    (want,) = by_ort("NonMaxSuppression", inputs, opset=11, center_point_box=attrs["center_point_box"])
    indices, count = ours("NonMaxSuppression", [boxes, scores], **attrs)
    np.testing.assert_array_equal(indices[: count[0]], want)
    assert (indices[count[0] :] == -1).all()


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("score", [None, 0.5])
@pytest.mark.parametrize("iou", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("most", [3, 1000])
def test_random_boxes(centred: int, score: float | None, iou: float, most: int) -> None:
    scores = rng.uniform(0, 1, (2, 3, 53)).astype(np.float32)
    check(many_boxes(2, 53), scores, center_point_box=centred, score=score, iou=iou, max_output=most)


@pytest.mark.parametrize("iou", [0.25, 1 / 3, 0.5, 2 / 3])
def test_ties_of_scores_and_overlaps(iou: float) -> None:
    scores = (rng.integers(0, 5, (1, 2, 101)) / 5).astype(np.float32)
    check(many_boxes(1, 101, grid=4), scores, iou=iou, score=0.2)


@pytest.mark.parametrize(
    "boxes, scores, words",
    [
        ((1, 5, 3), (1, 1, 5), r"\[B,S,4\]"),
        ((1, 5, 4), (1, 1, 6), r"\[1,C,5\]"),
        ((1, 5, 4), (5,), r"\[B,C,S\]"),
    ],
)
def test_refusals(boxes: tuple[int, ...], scores: tuple[int, ...], words: str) -> None:
    attrs = {"center_point_box": 0, "max_output": 1, "iou": 0.5, "score": None}
    types = [TensorType(DType.FLOAT32, boxes), TensorType(DType.FLOAT32, scores)]
    with pytest.raises(ShapeError, match=words):
        make_op("NonMaxSuppression", attrs).check_shape(types)
