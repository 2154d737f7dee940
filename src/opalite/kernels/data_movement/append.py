"""Append: copies new elements to the end of a KV cache; y already shares x's memory."""

from __future__ import annotations

import math

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ir.place import Layout
from ...ops.append import Append, DequantizeRows
from ..kernel import Bindings, Kernel, Params, Problem, flat_binding, register
from ..launch import ELEMENT, STORAGE, Args, Launch, ceil_div
from .strided_copy import Copy, StridedCopy, copy_launch, row_major


def _narrowing(p: Problem) -> str | None:
    return None if p.node.y.dtype is p.node.input(1).dtype else "what is new becomes int8"


@register
class AppendCopy(StridedCopy):
    """One position for all batch entries: a strided copy."""

    op = "Append"

    def refuse(self, p: Problem) -> str | None:
        if p.node.get(2) is not None:
            return "each entry of the batch has a position of its own"
        return _narrowing(p) or super().refuse(p)

    def bindings(self, p: Problem) -> Bindings:
        return (flat_binding(p.node),)

    def copies(self, node: Node, layout: Layout) -> list[Copy]:
        op, new = node.as_(Append), node.input(1)
        target = row_major(node.y.shape)
        return [Copy(new.shape, row_major(new.shape), target, 0, op.at * target[op.axis])]

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        (copy,) = self.copies(p.node, p.node.y.type.layout)
        new = p.node.input(1)
        return [copy_launch(new, p.node.y, copy, params)] if new.type.count else []


@register
class AppendRows(Kernel):
    """One position per batch entry: a row per work-item."""

    op = "Append"
    source = "data_movement/append_rows.cl"
    space = {"WG": (64, 1, 128, 256)}

    def refuse(self, p: Problem) -> str | None:
        return "all entries of the batch have one position" if p.node.get(2) is None else _narrowing(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        op, new, y = node.as_(Append), node.input(1), node.y
        batch, *middle = new.shape[: op.axis]
        count, inner = new.shape[op.axis], math.prod(new.shape[op.axis + 1 :])
        lines = batch * math.prod(middle) * count
        args: Args = {"x": new, "starts": node.input(2), "y": y, "lines": lines, "middle": math.prod(middle)}
        args |= {"count": count, "size": y.shape[op.axis], "inner": inner}
        defines = {"T": ELEMENT[y.type.storage.size], "CIRCULAR": int(op.circular)}
        return [Launch("append_rows", args, (lines,), (params["WG"],), defines)] if new.type.count else []


_PACKS = (16, 8, 4, 2, 1)
_GROUP = 32  # work-items that share a row on GPUs


def _pack(device: DeviceInfo, size: int) -> int:
    """Elements of a row that a work-item takes at once."""
    most = device.pack if device.is_cpu else 4
    return next(n for n in _PACKS if n <= most and size % n == 0)


@register
class AppendInt8Rows(Kernel):
    """Quantises floats to int8 while appending them; a row per work-item (CPU) or per work-group (GPU)."""

    op, source = "Append", "data_movement/append_int8_rows.cl"
    rank = -1
    space = {"WG": (1, 32)}

    def refuse(self, p: Problem) -> str | None:
        return None if p.node.y.dtype is not p.node.input(1).dtype else "what is new has the memory's type"

    def defaults(self, p: Problem) -> Params:
        return {"WG": 1 if p.device.is_cpu or p.device.max_work_group_size < _GROUP else _GROUP}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, wg = p.node, params["WG"]
        op, new, starts = node.as_(Append), node.input(1), node.get(2)
        batch, *middle = new.shape[: op.axis]
        each = math.prod(middle)
        # The rows between the append axis and the last axis belong to one position.
        rows = math.prod(new.shape[op.axis + 1 : -1])
        count, inner = new.shape[op.axis] * rows, new.shape[-1]
        lines = batch * each * count
        args: Args = {"x": new, "y": node.y, "lines": lines, "middle": each, "count": count, "inner": inner}
        args |= {"size": node.y.shape[op.axis] * rows, "at": op.at * rows}
        if starts is not None:
            args["starts"] = starts
        defines = {"STORAGE": STORAGE[new.type.storage], "PACK": _pack(p.device, inner), "WG": wg}
        defines |= {"STARTS": int(starts is not None), "CIRCULAR": int(op.circular), "ROWS": rows}
        return [Launch("append_bytes", args, (lines * wg,), (wg,), defines)] if new.type.count else []


@register
class DequantizeInt8Rows(Kernel):
    """Dequantises one row per grid line, PACK elements per work-item."""

    op, source = "DequantizeRows", "data_movement/dequantize_int8_rows.cl"
    space = {"WG": (64, 1, 128)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        op, x, y = node.as_(DequantizeRows), node.x, node.y
        rows = math.prod(x.shape[op.axis + 1 : -1])
        size, held, inner = op.size * rows, x.shape[op.axis] * rows, y.shape[-1]
        lines = math.prod(y.shape[: op.axis]) * size
        args: Args = {"x": x, "y": y, "lines": lines, "size": size, "held": held, "inner": inner}
        pack = _pack(p.device, inner)
        defines = {"STORAGE": STORAGE[y.type.storage], "PACK": pack}
        # A CPU work-item takes a whole row.
        grid = (lines, 1) if p.device.is_cpu else (lines, ceil_div(inner, pack))
        defines["WHOLE"] = int(p.device.is_cpu)
        return [Launch("widen_rows", args, grid, (params["WG"], 1), defines)] if y.type.count else []
