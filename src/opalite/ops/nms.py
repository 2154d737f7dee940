"""NonMaxSuppression: boxes without a better overlapping box of the same class."""

from __future__ import annotations

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor


@frozen_op
class NonMaxSuppression(Op):
    """For each batch entry and class, boxes by falling score, each kept unless it overlaps one kept before.

    Inputs boxes[B,S,4], scores[B,C,S], floats of one type. Outputs indices int64[B*C*min(max_output,S), 3] of (batch,
    class, box) in order of batch, class and falling score (ties: lower box first), padded with -1; and count int64[1],
    the number of rows with a box.

    Attributes: center_point_box (boxes are x, y of the centre, width, height; else y, x of two opposite corners),
    max_output (boxes kept for each batch entry and class), iou (boxes overlap if intersection / union exceeds it),
    score (boxes with lower scores are ignored; None: none are).
    """

    center_point_box: int  # 0 or 1
    max_output: int
    iou: float
    score: float | None

    arity = 2

    def check_shape(self, ins: Types) -> None:
        boxes, scores = tensor(ins, 0, "boxes"), tensor(ins, 1, "scores")
        need(boxes.rank == 3 and boxes.shape[-1] == 4, f"boxes must be [B,S,4], got {boxes}")
        need(scores.rank == 3, f"scores must be [B,C,S], got {scores}")
        fits = (scores.shape[0], scores.shape[2]) == boxes.shape[:2]
        need(fits, f"scores must be [{boxes.shape[0]},C,{boxes.shape[1]}] for boxes {boxes}, got {scores}")
        typed = boxes.dtype.is_float and scores.dtype is boxes.dtype
        need(typed, f"boxes and scores must be floats of one type, got {boxes} and {scores}")
        need(self.max_output >= 0, f"max_output must not be negative, got {self.max_output}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        batch, classes, boxes = tensor(ins, 1, "scores").shape
        rows = batch * classes * min(self.max_output, boxes)
        return [make_type(DType.INT64, (rows, 3)), make_type(DType.INT64, (1,))]

    def reference(self, arrays: Arrays) -> list[Array]:
        boxes, scores = present(arrays, 2)
        acc = compute_dtype(boxes.dtype)
        most = min(self.max_output, scores.shape[2])
        rows: list[tuple[int, int, int]] = []
        for b in range(scores.shape[0]):
            corners = _corners(boxes[b].astype(acc), bool(self.center_point_box))
            for c in range(scores.shape[1]):
                rows += [(b, c, i) for i in _keep(corners, scores[b, c].astype(acc), self, most)]
        indices = np.full((scores.shape[0] * scores.shape[1] * most, 3), -1, np.int64)
        if rows:
            indices[: len(rows)] = rows
        return [indices, np.array([len(rows)], np.int64)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        scores = tensor(ins, 1, "scores")
        return Cost(20.0 * scores.count + 20.0 * outs[0].count * self.max_output, moved_bytes(ins, outs))


def _corners(boxes: Array, centred: bool) -> Array:
    """Corners [S, 4] of boxes: (low, low, high, high)."""
    if centred:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)
    a, b = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], 1)


def _keep(corners: Array, scores: Array, op: NonMaxSuppression, most: int) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if op.score is not None:
        order = order[scores[order] > scores.dtype.type(op.score)]
    kept: list[int] = []
    for i in order:
        if len(kept) == most:
            break
        if not _overlaps(corners[i], corners[kept], op.iou):
            kept.append(int(i))
    return kept


def _overlaps(box: Array, others: Array, threshold: float) -> bool:
    """Whether intersection / union of `box` with any of `others` exceeds `threshold`; empty boxes overlap nothing."""
    if not len(others):
        return False
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.where((sides > 0).all(1), sides[:, 0] * sides[:, 1], 0).astype(box.dtype)
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    union = area + areas - shared
    valid = (shared > 0) & (area > 0) & (areas > 0) & (union > 0)
    ratio = np.divide(shared, union, out=np.zeros_like(union), where=valid)
    return bool((ratio > box.dtype.type(threshold)).any())
