"""NonMaxSuppression: a heap per class, or parallel rounds by a work-group per class."""

from __future__ import annotations

import numpy as np

from ...cost.cost_tables import SequentialSteps
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ops.nms import NonMaxSuppression
from ...ops.operator import Cost
from ..kernel import Kernel, Params, Problem, register
from ..kernel_sources import read_source
from ..launch import STORAGE, Args, Defines, Launch, Scratch, ceil_div


def nms_defines(stored: DType) -> Defines:
    """The defines of non_max_suppression.cl beside PACK or WG."""
    return {"STORAGE": STORAGE[stored], "LARGEST": True, "WORST_ON_TOP": False}


class _NonMaxSuppression(Kernel):
    """Base class: the kept boxes of each class go to scratch memory; two more launches order them."""

    op = "NonMaxSuppression"

    def refuse(self, p: Problem) -> str | None:
        boxes, scores = p.node.input(0).type, p.node.input(1).type
        return None if boxes.storage is scores.storage else f"boxes {boxes} and scores {scores} are stored differently"

    def _launches(
        self, node: Node, params: Params, device: DeviceInfo, entry: str, items: int, counted: bool
    ) -> list[Launch]:
        """All launches; `entry` finds the kept boxes with `items` work-items; counted: it takes the number of lines."""
        boxes, scores, op = node.x, node.input(1), node.as_(NonMaxSuppression)
        indices, count = node.outputs
        batch, classes, size = scores.shape
        lines, most = batch * classes, min(op.max_output, size)
        stored = scores.type.storage
        defines = nms_defines(stored)
        if counted:
            defines["PACK"] = device.pack
        else:
            defines["WG"] = params["WG"]
        number = np.float64 if stored is DType.FLOAT64 else np.float32
        limits = {"limit": number(op.iou), "threshold": number(op.score or 0)}
        each = {"kept": 4 * lines * most, "counts": 4 * lines, "offsets": 4 * lines}
        kept, counts, offsets = (Scratch(name, nbytes) for name, nbytes in each.items())
        args: Args = {"boxes": boxes, "scores": scores, "kept": kept, "counts": counts}
        args |= {"candidates": Scratch("candidates", 4 * lines * size), "classes": classes, "size": size, "most": most}
        args |= {"centred": int(op.center_point_box), "has_least": int(op.score is not None)}
        if counted:
            room = ceil_div(most, device.pack) * device.pack
            corners = Scratch("corners", number(0).itemsize * 5 * lines * room)
            args |= {"corners": corners, "lines": lines, "room": room}
        prelude = read_source("include/ordering_and_heap.cl")
        rows = lines * most
        found: Args = {"counts": counts, "offsets": offsets, "count": count}
        last = {**found, "kept": kept, "rows": indices, "items": rows, "classes": classes, "most": most}
        return [
            Launch(entry, {**args, **limits}, (items,), (params["WG"],), defines, prelude),
            Launch("nms_offsets", {**found, "lines": lines}, (1,), (1,), defines, prelude),
            Launch("nms_write", last, (rows,), (64,), defines, prelude),
        ]


@register
class NmsHeap(_NonMaxSuppression):
    """One work-item per batch entry and class."""

    space = {"WG": (64, 1, 16, 128)}
    untuned = {"WG": 1}, {"WG": 64}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        batch, classes, _ = p.node.input(1).shape
        return self._launches(p.node, params, p.device, "nms_heap", batch * classes, True)

    def seconds(self, p: Problem, cost: Cost) -> float:
        batch, classes, size = p.node.input(1).shape
        return SequentialSteps.seconds(self.cost_name, p.device, batch * classes, 10 * size) + 3 * p.device.launch_s


@register
class NmsRounds(_NonMaxSuppression):
    """One work-group per batch entry and class; each round is parallel over the boxes of the class."""

    space = {"WG": (256, 64, 128, 512)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        batch, classes, _ = p.node.input(1).shape
        return self._launches(p.node, params, p.device, "nms_rounds", batch * classes * params["WG"], False)

    def seconds(self, p: Problem, cost: Cost) -> float:
        batch, classes, size = p.node.input(1).shape
        rounds = min(int(p.node.as_(NonMaxSuppression).max_output), size, 100)
        steps = rounds * ceil_div(size, 256)
        return SequentialSteps.seconds(self.cost_name, p.device, batch * classes, steps) + 3 * p.device.launch_s
