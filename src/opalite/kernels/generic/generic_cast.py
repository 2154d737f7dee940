"""Generic casts between half and float storage, for models with half tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.place import Target
from ..kernel import Params, Problem, register
from ..launch import Args, Launch, ceil_div
from .generic_kernel import Build, GenericKernel

_BOTH = {(DType.FLOAT16, DType.FLOAT32), (DType.FLOAT32, DType.FLOAT16)}


@register
class PlaceCastGeneric(GenericKernel):
    """Casts between row-major buffers."""

    op = "PlaceCast"

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source, {"SPAN": 256 if device.is_cpu else 4})]

    def refuse(self, p: Problem) -> str | None:
        x, y = p.node.x.type, p.node.y.type
        if any(t.place.target is not Target.OPENCL or not t.layout.is_row_major for t in (x, y)):
            return "the general kernel casts row-major buffers"
        if (x.storage, y.storage) not in _BOTH:
            return f"the general kernel casts between half and float, not from {x.storage} to {y.storage}"
        return None

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, y = p.node.x, p.node.y
        (build,) = self.builds(p.device)
        args: Args = {"x": x, "y": y, "count": y.type.count}
        args["narrows"] = int(y.type.storage is DType.FLOAT16)
        return [Launch("cast_general", args, (ceil_div(y.type.count, build.defines["SPAN"]),), defines=build.defines)]
