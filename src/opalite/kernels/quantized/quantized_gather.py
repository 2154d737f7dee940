"""QuantizedGather: dequantises only the rows that indices select."""

from __future__ import annotations

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ops.quantized_matmul import QuantizedGather
from ..kernel import Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Defines, Launch, ceil_div
from .pack_low_bit import packed_args, packed_binding, packing_refusal, panels_of


@register
class QuantizedGatherRows(Kernel):
    """One work-item per packed word of a row; reads the same panels as the matrix products, from one copy."""

    op = "QuantizedGather"

    def refuse(self, p: Problem) -> str | None:
        node, op = p.node, p.node.as_(QuantizedGather)
        return packing_refusal(node.x, node.input(2), node.get(3), op.bits, op.block, node.x.shape[1])

    def bindings(self, p: Problem) -> Bindings:
        return (packed_binding(p.node, 0),)

    def defines(self, device: DeviceInfo) -> Defines:
        """The defines that depend on the device alone."""
        return {"WIDTH": panels_of(device).width, "PACK": 1}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(QuantizedGather)
        panels, (size, columns), count = panels_of(p.device), node.x.shape, node.input(1).type.count
        args, own = packed_args(node.x, node.input(2), node.get(3), op.bits, True, panels)
        args["x"] = args.pop("b")
        args |= {"indices": node.input(1), "y": node.y, "count": count, "size": size, "columns": columns}
        args["block"] = op.block
        defines: Defines = {"STORAGE": STORAGE[node.y.type.storage], **self.defines(p.device), **own}
        defines["INDEX"] = "long" if node.input(1).dtype is DType.INT64 else "int"
        return [Launch("quantized_gather", args, (ceil_div(columns, 32 // op.bits), count), None, defines)]
