"""Matrix products on images, texels along the rows; one side may be a row-major buffer."""

from __future__ import annotations

import numpy as np

from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import FLAT, IMAGE, Layout
from ..codegen.epilogue import epilogue_refusal, image_epilogue, operand_layouts, rows_epilogue
from ..kernel import Binding, Bindings, Params, register
from ..launch import STORAGE, Arg, Args, Array, Defines, Grid, Launch, Weight, ceil_div
from ..matmul.matmul_problem import MatmulProblem, MatmulSizes
from .image_layout import IMAGE_TYPES, ImageKernel, image_prelude, image_refusal, texture_refusal

CONSTANT, PLAIN, TRANSPOSED = 0, 1, 2
SIDES = ((IMAGE, IMAGE), (FLAT, IMAGE), (IMAGE, FLAT))
"""Layouts of `a` and `y`: one of them may be a row-major buffer."""
_LONG = 2048  # terms that a work-item sums in one accumulator
_GX = 16  # columns of work-items that split the terms


@register
class ImageMatmul(ImageKernel):
    """Products of up to three dimensions. A constant `b` shared by all batches is an image in a packed order."""

    problem = MatmulProblem
    half_sums = True
    op = "MatMul"
    ranks = (1, 2, 3)
    overlaps = True
    most_rows = 4  # of a work-item, untuned
    least_terms = 8  # of a work-item that shares them with others
    space = {"TM": (4, 2, 1, 8), "TB": (1, 2, 4), "SPLIT": (1, 4, 8, 16)}

    def refuse(self, p: MatmulProblem) -> str | None:
        node, s = p.node, p.sizes
        if why := image_refusal(p.device, node.x.type, node.y.type, ranks=self.ranks):
            return why
        if s.trans_a:
            return "texels of a are along its columns, not along the terms"
        b = node.input(1)
        if not _is_packed(p):
            why = image_refusal(p.device, b.type, ranks=self.ranks)
        elif b.dtype not in IMAGE_TYPES:
            why = f"images hold floats, not {b.dtype}"
        else:
            why = texture_refusal(p.device, ceil_div(s.k, 4) * 4, ceil_div(s.n, 4))
        if why is not None:
            return f"b: {why}"
        refusals = [epilogue_refusal(node, kind) for kind in ("image", "rows")]
        return refusals[0] if all(refusals) else None

    def bindings(self, p: MatmulProblem) -> Bindings:
        b = None if _is_packed(p) else IMAGE
        found = []
        # Between buffers, constants still come through the texture cache.
        buffers = [(FLAT, FLAT)] if b is None and p.device.prefers_images else []
        for a, y in (*SIDES, *buffers):
            kind = layout_kind(y)
            if epilogue_refusal(p.node, kind) is None:
                found.append(Binding((a, b, *operand_layouts(p.node, kind, y)), (y,)))
        return found

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if params["SPLIT"] == 1:
            return None
        items, nbytes = _GX * params["SPLIT"], _GX * params["SPLIT"] * params["TM"] * params["TB"] * 16
        if items > p.device.max_work_group_size or params["SPLIT"] > p.device.max_work_item_sizes[2]:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group, got {items}"
        return f"the sums take {nbytes} bytes of local memory" if nbytes > p.device.local_mem else None

    def defaults(self, p: MatmulProblem) -> Params:
        s, device = p.sizes, p.device
        tm = next(t for t in (8, 4, 2, 1) if t <= min(self.most_rows, max(s.m, 1)))
        blocks = ceil_div(s.n, 4)
        wanted = device.compute_units * device.lanes
        tb = 2 if s.batches * ceil_div(s.m, tm) * blocks >= 8 * wanted else 1
        items = s.batches * ceil_div(s.m, tm) * ceil_div(blocks, tb)
        params = {"TM": tm, "TB": tb, "SPLIT": 1}
        if device.is_cpu or items >= wanted:
            return params
        shared = (split for split in (16, 8, 4) if split * items <= 4 * wanted and split * self.least_terms <= s.k)
        return next((q for n in shared if self.illegal(p, q := {**params, "SPLIT": n}) is None), params)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, b = p.node, p.sizes, p.node.input(1)
        to_buffer = node.y.type.layout.is_row_major
        epilogue = (rows_epilogue if to_buffer else image_epilogue)(node, p.device)
        constant = _is_packed(p)
        right: Arg = matmul_texels(b, s.trans_b, node.y.type.storage) if constant else b
        args: Args = {"a": node.x, "b": right, "y": node.y, "M": s.m, "N": s.n, "K": s.k}
        args |= {"H": node.y.shape[-2], "spread": s.m if s.a_count > 1 or s.batches == 1 else 0, "batches": s.batches}
        grid, group, defines = self.tiling(s, params)
        defines |= {**self.sides(node), "STORAGE": STORAGE[node.y.type.storage]}
        defines |= {"LONG": s.k > _LONG * params["SPLIT"]}
        defines |= {"B": CONSTANT if constant else TRANSPOSED if s.trans_b else PLAIN}
        return [Launch("image_matmul", {**args, **epilogue.args}, grid, group, defines, image_prelude(node, epilogue))]

    @staticmethod
    def sides(node: Node) -> Defines:
        """The defines of image/matmul_sides.cl."""
        return {"A_BUFFER": node.x.type.layout.is_row_major, "Y_BUFFER": node.y.type.layout.is_row_major}

    @staticmethod
    def tiling(s: MatmulSizes, params: Params) -> tuple[Grid, Grid | None, Defines]:
        """The grid, its work-group where terms are split, and the defines of both."""
        blocks, split = ceil_div(ceil_div(s.n, 4), params["TB"]), params["SPLIT"]
        defines, group = dict(params), None
        if split > 1:
            defines["GX"], group, blocks = _GX, (_GX, 1, split), ceil_div(blocks, _GX) * _GX
        return (blocks, ceil_div(s.m, params["TM"]), s.batches * split), group, defines


def layout_kind(y: Layout) -> str:
    """Coordinate family of an epilogue that writes layout `y`."""
    return "image" if y.is_image else "rows"


def _is_packed(p: MatmulProblem) -> bool:
    """Whether `b` is packed ahead of time."""
    return p.node.input(1).is_const and p.sizes.b_count == 1


def matmul_texels(b: Value, transposed: bool, storage: DType) -> Weight:
    """The matrix `b` ([K, N], or [N, K] if `transposed`) as an image: terms along x, column blocks along y."""

    def texels(data: Array) -> Array:
        matrix = data.reshape(data.shape[-2:])
        matrix = matrix.T if transposed else matrix
        k, n = matrix.shape
        padded: Array = np.zeros((ceil_div(k, 4) * 4, ceil_div(n, 4) * 4), storage.np)
        padded[:k, :n] = matrix
        return np.ascontiguousarray(padded.reshape(padded.shape[0], -1, 4).swapaxes(0, 1))

    return Weight(b, f"image {'nk' if transposed else 'kn'} {storage}", texels, image=True)
