"""Transpose, Slice and Pad of tensors in images; one side may be a row-major buffer, which saves a cast."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import FLAT, IMAGE, texel_dims
from ...ir.symbols import always_equal, is_multiple
from ...ops.data_movement import Concat, Pad, Slice, Transpose
from ..codegen.vector_types import load, pointer_type
from ..data_movement.pad import MODES
from ..kernel import Binding, Bindings, Params, Problem, register, uniform_binding
from ..launch import STORAGE, Arg, Args, Launch, ceil_div
from .image_layout import AXES, RANKS, ImageKernel, image_prelude, image_refusal


class OperandSource(NamedTuple):
    """The origin of an output element: an expression for each image axis, and its parameters.

    whole: texels move as units. borders: an expression may be -1. mode, fill: of the border.
    """

    expressions: Mapping[str, str]
    params: Mapping[str, Arg]
    whole: bool = False
    borders: bool = False
    mode: int = 0
    fill: float = 0.0


class _ImageMove(ImageKernel):
    """Base class: computes each output element's source coordinates."""

    ranks = RANKS

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return i == 0 or stored is wanted

    def gives(self, stored: DType, wanted: DType) -> bool:
        return True

    def refuse(self, p: Problem) -> str | None:
        return image_refusal(p.device, p.node.x.type, p.node.y.type)

    def bindings(self, p: Problem) -> Bindings:
        sides = ((IMAGE, IMAGE), (FLAT, IMAGE), (IMAGE, FLAT))
        return tuple(Binding((x, *(None,) * (len(p.node.inputs) - 1)), (y,)) for x, y in sides)

    def find_source(self, node: Node) -> OperandSource:
        """The source coordinates of the node's output elements."""
        raise NotImplementedError

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        found = self.find_source(node)
        batch, channels, height, width = texel_dims(node.y.shape)
        _, xc, xh, xw = texel_dims(node.x.shape)
        blocks = ceil_div(channels, 4)
        from_buffer, to_buffer = node.x.type.layout.is_row_major, node.y.type.layout.is_row_major
        defines = {"STORAGE": STORAGE[node.y.type.storage], "SRC_BUFFER": from_buffer, "DST_BUFFER": to_buffer}
        defines |= {"ROWS": len(node.x.shape) < 4, "WHOLE": found.whole and not from_buffer, "BORDERS": found.borders}
        defines |= {"MODE": found.mode}
        text = image_prelude(node)
        if from_buffer:
            text += f"#define SRC_T {pointer_type(node.x.type.storage)}\n"
            text += f"#define LOAD_SRC(i) {load(node.x.type.storage, DType.FLOAT32, 1, 'x', '(i)')}\n"
        text += f"#define MOVE_PARAMS {''.join(f', int {name}' for name in found.params)}\n"
        for axis in "nchw":
            text += f"#define SOURCE_{axis.upper()} ({found.expressions.get(axis, '0')})\n"
        args: Args = {"x": node.x, "y": node.y, "fill": found.fill, "channels": channels, "blocks": blocks}
        args |= {"height": height, "width": width, "rows": batch * height, "xc": xc, "xh": xh, "xw": xw, **found.params}
        return [Launch("image_move", args, (blocks * width, batch * height), defines=defines, prelude=text)]


@register
class ImageTranspose(_ImageMove):
    """Any order of the axes."""

    op = "Transpose"

    def find_source(self, node: Node) -> OperandSource:
        axes, perm = AXES[len(node.x.shape)], node.as_(Transpose).perm
        expressions = {axes[of]: axes[to] for to, of in enumerate(perm)}
        return OperandSource(expressions, {}, whole=expressions["c"] == "c")


@register
class ImageSlice(_ImageMove):
    """Any starts and steps."""

    op = "Slice"

    def find_source(self, node: Node) -> OperandSource:
        op, expressions, params = node.as_(Slice), {}, {}
        whole = True
        for axis, start, step in zip(AXES[len(node.x.shape)], op.starts, op.steps, strict=True):
            expressions[axis] = axis
            if not always_equal(step, 1):
                expressions[axis] = f"{axis} * step_{axis}"
                params[f"step_{axis}"] = step
                whole = whole and axis != "c"
            if not always_equal(start, 0):
                expressions[axis] += f" + start_{axis}"
                params[f"start_{axis}"] = start
                whole = whole and (axis != "c" or is_multiple(start, 4))
        return OperandSource(expressions, params, whole)


@register
class ImagePad(_ImageMove):
    """All modes."""

    op = "Pad"

    def find_source(self, node: Node) -> OperandSource:
        op, rank = node.as_(Pad), len(node.x.shape)
        expressions, params = {}, {}
        for i, axis in enumerate(AXES[rank]):
            expressions[axis] = axis
            if always_equal(op.pads[i], 0) and always_equal(op.pads[i + rank], 0):
                continue
            extent = {"n": "bordered", "c": "xc", "h": "xh", "w": "xw"}[axis]
            if axis == "n":
                params["bordered"] = node.x.shape[i]
            expressions[axis] = f"inner({axis} - begin_{axis}, {extent})"
            params[f"begin_{axis}"] = op.pads[i]
        borders = op.mode == "constant" and bool(params)
        whole = expressions["c"] == "c"
        return OperandSource(expressions, params, whole, borders, MODES[op.mode], float(op.value))


MAX_INPUTS = 8  # read-only image arguments that every device with images supports (OpenCL's embedded profile)
_CHANNELS = 1


@register
class ImageConcat(ImageKernel):
    """All inputs in one launch, since an output texel may contain channels of several inputs."""

    source = "image/image_concat.cl"
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
