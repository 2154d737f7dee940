"""Concat of tensors in images."""

from __future__ import annotations

import itertools

from ...ir.place import IMAGE, texel_dims
from ...ops.data_movement import Concat
from ..kernel import Bindings, Params, Problem, register, uniform_binding
from ..launch import Args, Launch, ceil_div
from .image_layout import AXES, ImageKernel, image_prelude, image_refusal

MAX_INPUTS = 8  # read-only image arguments that every device with images supports (OpenCL's embedded profile)
_CHANNELS = 1


@register
class ImageConcat(ImageKernel):
    """All inputs in one launch, since an output texel may contain channels of several inputs."""

    op = "Concat"

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        inputs = [v for v in node.inputs if v is not None]
        if len(inputs) > MAX_INPUTS:
            return f"{len(inputs)} inputs; a kernel reads at most {MAX_INPUTS} images"
        return image_refusal(p.device, node.y.type, *(v.type for v in inputs))

    def bindings(self, p: Problem) -> Bindings:
        return (uniform_binding(p.node, IMAGE),)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, channels, height, width = texel_dims(node.y.shape)
        inputs = [v for v in node.inputs if v is not None]
        axis = "nchw".index(AXES[len(node.y.shape)][node.as_(Concat).axis])
        sizes = [texel_dims(v.shape)[axis] for v in inputs]
        starts = [0, *itertools.accumulate(sizes)][:-1]
        blocks = ceil_div(channels, 4)
        args: Args = {f"x{i}": v for i, v in enumerate(inputs)}
        args |= {f"c{i}": start for i, start in enumerate(starts) if i} | {f"k{i}": k for i, k in enumerate(sizes)}
        args |= {"y": node.y, "channels": channels, "blocks": blocks, "height": height, "width": width}
        defines = {"AXIS": axis, "ALIGNED": axis == _CHANNELS and all(s % 4 == 0 for s in starts)}
        prelude, grid = image_prelude(node) + _inputs(len(inputs)), (blocks * width, n * height)
        return [Launch("image_concat", {**args, "rows": n * height}, grid, defines=defines, prelude=prelude)]


def _inputs(count: int) -> str:
    """INPUTS and SOURCE for `count` inputs."""
    params = [f"read_only image2d_t x{i}" for i in range(count)] + [f"int c{i}" for i in range(1, count)]
    params += [f"int k{i}" for i in range(count)]
    choice = "READER(x0, c, k0)"
    for i in range(1, count):
        choice = f"((c) >= c{i} ? READER(x{i}, (c) - c{i}, k{i}) : {choice})"
    return f"#define INPUTS {', '.join(params)}\n#define SOURCE(c, READER) {choice}\n"
