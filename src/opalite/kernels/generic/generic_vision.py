"""Generic detection and sampling: the programs of the optimized kernels that depend on no size.

Their parameters are fixed, so that a device has one program for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ops.grid_sample import TAPS, GridSample
from ...ops.operator import Cost
from ...ops.roi import FARTHEST, MOST, RoiAlign
from ..kernel import Bindings, Kernel, Params, Problem, flat_binding, register
from ..kernel_sources import read_source
from ..launch import STORAGE
from ..vision.grid_sample import GridSampleFlat
from ..vision.non_max_suppression import NmsHeap, NmsRounds, nms_defines
from ..vision.roi_align import RoiAlignFlat, RoiPoolFlat
from .generic_kernel import Build, GenericKernel, float_refusal

_FLOATS = {"STORAGE": STORAGE[DType.FLOAT32], "POSITION_STORAGE": STORAGE[DType.FLOAT32]}


class _FixedParameters(GenericKernel):
    """Base class: an optimized kernel with one choice of parameters on each device."""

    def bindings(self, p: Problem) -> Bindings:
        return (flat_binding(p.node),)

    def illegal(self, p: Problem, params: Params) -> str | None:
        return None if self.defaults(p) == params else "a device has one program"

    def seconds(self, p: Problem, cost: Cost) -> float:
        return Kernel.seconds(self, p, cost)


class _NmsGeneric(_FixedParameters):
    is_for_cpus: bool

    def refuse(self, p: Problem) -> str | None:
        if p.device.is_cpu is not self.is_for_cpus:
            return "the device has another program for it"
        return float_refusal(p.node.with_(outputs=[]))


@register
class NmsHeapGeneric(_NmsGeneric, NmsHeap):
    """One work-item per batch entry and class, on CPUs."""

    source, is_for_cpus, untuned = "vision/non_max_suppression.cl", True, ({"WG": 1}, {"WG": 1})
    space = {"WG": (1,)}

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        defines = {**nms_defines(DType.FLOAT32), "PACK": device.pack}
        return [Build(self.source, defines, read_source("include/ordering_and_heap.cl"))] if device.is_cpu else []


@register
class NmsRoundsGeneric(_NmsGeneric, NmsRounds):
    """One work-group per batch entry and class, on GPUs."""

    source, is_for_cpus, untuned = "vision/non_max_suppression.cl", False, ({"WG": 64}, {"WG": 64})
    space = {"WG": (64,)}

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        defines = {**nms_defines(DType.FLOAT32), "WG": 64}
        return [] if device.is_cpu else [Build(self.source, defines, read_source("include/ordering_and_heap.cl"))]


@register
class RoiAlignGeneric(_FixedParameters, RoiAlignFlat):
    """Means of samples; images are numbered by int64."""

    source, untuned = "vision/roi_align.cl", ({"CHUNK": 16, "WG": 16}, {"CHUNK": 4, "WG": 64})
    space = {"CHUNK": (16, 4), "WG": (16, 64)}

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        defines = {**_FLOATS, "INDEX": "long", "PACK": 1, "MAXIMUM": False, "MOST": MOST}
        return [Build(self.source, {**defines, "CHUNK": self.untuned[0 if device.is_cpu else 1]["CHUNK"]})]

    def refuse(self, p: Problem) -> str | None:
        if p.node.as_(RoiAlign).maximum:
            return "the general kernel computes means"
        if p.node.input(2).dtype is not DType.INT64:
            return "the general kernel takes numbers of images as int64"
        return float_refusal(p.node.with_(inputs=p.node.inputs[:2]))


@register
class RoiPoolGeneric(_FixedParameters, RoiPoolFlat):
    """Maxima of bins."""

    source, untuned = "vision/roi_pool.cl", ({"WG": 16}, {"WG": 64})
    space = {"WG": (16, 64)}

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source, {**_FLOATS, "FARTHEST": FARTHEST, "PACK": 1})]

    def refuse(self, p: Problem) -> str | None:
        return float_refusal(p.node)


@register
class GridSampleGeneric(_FixedParameters, GridSampleFlat):
    """Linear interpolation of images."""

    source = "vision/grid_sample.cl"
    untuned = {"CHUNK": 16, "RUN": 8, "WG": 16}, {"CHUNK": 4, "RUN": 1, "WG": 64}
    space = {"CHUNK": (16, 4), "RUN": (8, 1), "WG": (16, 64)}

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        params = {name: n for name, n in self.defaults_on(device).items() if name != "WG"}
        return [Build(self.source, {**_FLOATS, "PACK": 1, "DIMS": 2, "TAPS": TAPS["linear"], **params})]

    def defaults_on(self, device: DeviceInfo) -> Params:
        """The parameters on `device`."""
        return self.untuned[0 if device.is_cpu else 1]

    def defaults(self, p: Problem) -> Params:
        return self.defaults_on(p.device)

    def refuse(self, p: Problem) -> str | None:
        if p.node.as_(GridSample).mode != "linear" or p.node.x.type.rank != 4:
            return "the general kernel interpolates images linearly"
        return float_refusal(p.node)
