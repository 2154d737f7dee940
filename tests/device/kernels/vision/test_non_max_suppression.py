"""NonMaxSuppression kernels against the reference: the same boxes in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for

rng = np.random.default_rng(47)
each_kernel = pytest.mark.parametrize("kernel", kernels_for("NonMaxSuppression"), ids=lambda k: k.name)


def check(
    rt: Runtime,
    kernel: Kernel,
    boxes: np.ndarray[Any, Any],
    scores: np.ndarray[Any, Any],
    half: bool = False,
    **changed: Any,
) -> None:
    attrs = {"center_point_box": 0, "max_output": 10, "iou": 0.3, "score": 0.2} | changed
    arrays = [boxes, scores]
    node = make_node("NonMaxSuppression", attrs, arrays, precision=DType.FLOAT16 if half else None)
    if kernel.tier == "generic" and (half or kernel.refuse(kernel.problem(node, rt.info)) is not None):
        assert kernel.refuse(kernel.problem(node, rt.info)) is not None
        return
    got = run_node(rt, kernel, node, arrays)
    want = node.op.reference(arrays)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


def boxes_and_scores(batch: int, classes: int, count: int, grid: int = 0) -> tuple[Any, Any]:
    boxes = rng.uniform(0, 10, (batch, count, 4))
    boxes = np.round(boxes * grid / 10) if grid else boxes
    return boxes.astype(np.float32), rng.uniform(0, 1, (batch, classes, count)).astype(np.float32)


@each_kernel
@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("score", [None, 0.5])
@pytest.mark.parametrize("most", [3, 1000])
def test_random_boxes(rt: Runtime, kernel: Kernel, centred: int, score: float | None, most: int) -> None:
    check(rt, kernel, *boxes_and_scores(2, 3, 307), center_point_box=centred, score=score, max_output=most)


@each_kernel
@pytest.mark.parametrize("iou", [0.0, 0.25, 1 / 3, 0.5, 2 / 3])
def test_ties(rt: Runtime, kernel: Kernel, iou: float) -> None:
    boxes, scores = boxes_and_scores(1, 2, 211, grid=4)
    check(rt, kernel, boxes, np.round(scores * 4) / 4, iou=iou)


@each_kernel
def test_nothing_above_the_threshold(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, *boxes_and_scores(1, 2, 17), score=2.0)


@each_kernel
def test_half_storage(rt: Runtime, kernel: Kernel) -> None:
    boxes, scores = (a.astype(np.float16).astype(np.float32) for a in boxes_and_scores(1, 2, 101))
    check(rt, kernel, boxes, scores, half=True)
