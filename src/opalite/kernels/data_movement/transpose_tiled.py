"""Transposes that move the innermost axis: register tiles (CPU), local memory tiles (GPU), interleaved short axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...cost.cost_tables import Movement
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import FLAT, packed
from ...ir.symbols import hint_of, is_symbolic, may_be_less, symbolic_min
from ...ops.data_movement import Transpose
from ...ops.operator import Cost
from ..codegen.vector_types import Vec
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import ELEMENT, Args, Defines, Launch, ceil_div
from ..launch_workgroups import group_refusal
from .layout_cast import cast_accesses
from .strided_copy import MAX_AXES, Copy, accesses, transpose_copy

_THIN = 8  # most elements of a short axis
_LEAST = 4  # shorter axes fill too little of a square tile
_SIDE = 32  # side of the square tile in local memory
_ROWS = 8  # work-items of a group along it


@dataclass(frozen=True)
class Square:
    """Two axes that change places: a is contiguous in x, b in y. `lines` are the outer axes."""

    a: int
    b: int
    source_stride: int  # of b in x
    target_stride: int  # of a in y
    lines: Copy

    @property
    def args(self) -> Args:
        """Extents and strides as kernel arguments."""
        return {
            "a": self.a,
            "b": self.b,
            "xs_b": self.source_stride,
            "ys_a": self.target_stride,
            **self.lines.axis_args,
        }


def find_square(node: Node) -> Square | None:
    """The two axes of a Transpose that change places; None if the innermost axis stays."""
    copy = transpose_copy(node).merged()
    last = len(copy.extents) - 1
    inner = next((k for k in range(last) if copy.source[k] == 1), None)
    if inner is None:
        return None
    lines = copy.without(inner, last)
    return Square(copy.extents[inner], copy.extents[last], copy.source[last], copy.target[inner], lines)


def _square(node: Node) -> Square:
    """`find_square` of a Transpose that has one."""
    square = find_square(node)
    assert square is not None
    return square


def _refusal(node: Node, least: int) -> str | None:
    square = find_square(node) if node.y.type.count else None
    if square is None:
        return "the innermost axis stays, so lines can be copied"
    if hint_of(symbolic_min([square.a, square.b])) < least:
        return f"the axes that change places have {square.a!r} and {square.b!r} elements; squares need {least}"
    if len(square.lines.extents) > MAX_AXES:
        return f"more than {MAX_AXES} outer axes cannot be merged"
    return None


@register
class TransposeRegisterTile(Kernel):
    """Square tiles of up to 16 x 16 in vector registers."""

    op = "Transpose"
    source = "data_movement/transpose_register_tile.cl"
    space = {"TILE": (16, 8, 4), "EACH": (8, 2, 32)}

    def refuse(self, p: Problem) -> str | None:
        return _refusal(p.node, _LEAST)

    def illegal(self, p: Problem, params: Params) -> str | None:
        square = _square(p.node)
        if params["TILE"] > hint_of(symbolic_min([square.a, square.b])):
            return f"the axes are shorter than {params['TILE']}"
        return "too many registers" if params["TILE"] * p.node.x.type.storage.size > 64 else None

    def seconds(self, p: Problem, cost: Cost) -> float:
        return super().seconds(p, Cost(cost.flops, cost.bytes * (1 if p.device.is_cpu else 50)))

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        square = _square(p.node)
        size, tile, each = p.node.x.type.storage.size, params["TILE"], params["EACH"]
        held = "uint" if size < 4 else ELEMENT[size]
        load, store = accesses(size, tile, held)
        defines = {"T": ELEMENT[size], "AXES": len(square.lines.extents), "TILE": tile, "TILE_V": Vec(held, tile)}
        if may_be_less(square.a, tile) or may_be_less(square.b, tile):
            defines["NARROW"] = 1
        prelude = f"#define LOAD_TILE(p) {load}\n#define STORE_TILE(v, p) {store}\n"
        rows = square.lines.count
        args: Args = {"x": p.node.x, "y": p.node.y, **square.args, "each": each, "rows": rows}
        grid = (ceil_div(square.b, tile * each), ceil_div(square.a, tile), rows)
        return [Launch("transpose_tile_copy", args, grid, defines=defines, prelude=prelude)]


@register
class TransposeLocalMemory(Kernel):
    """Square tiles of 32 x 32 in local memory."""

    op = "Transpose"
    source = "data_movement/transpose_local_memory.cl"

    def refuse(self, p: Problem) -> str | None:
        if p.device.local_mem < _SIDE * (_SIDE + 1) * 8:
            return f"{p.device.local_mem} bytes of local memory do not hold a square"
        return group_refusal(_SIDE * _ROWS, p.device) or _refusal(p.node, 2 * _LEAST)

    def seconds(self, p: Problem, cost: Cost) -> float:
        return super().seconds(p, Cost(cost.flops, cost.bytes * (8 if p.device.is_cpu else 1)))

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        square = _square(p.node)
        defines: Defines = {"T": ELEMENT[p.node.x.type.storage.size], "AXES": len(square.lines.extents), "ROWS": _ROWS}
        args: Args = {"x": p.node.x, "y": p.node.y, **square.args}
        grid = (ceil_div(square.a, _SIDE) * _SIDE, ceil_div(square.b, _SIDE) * _ROWS, square.lines.count)
        return [Launch("transpose_local", args, grid, (_SIDE, _ROWS, 1), defines)]


def _is_thin(extent: int) -> bool:
    """Whether an axis is short at all sizes, since the program unrolls it."""
    return not is_symbolic(extent) and extent <= _THIN


@register
class TransposeShortAxis(Kernel):
    """Interleaves a short axis into a long one, or the reverse: pixel shuffles, images of few channels."""

    op = "Transpose"
    source = "data_movement/transpose_short_axis.cl"
    space = {"VEC": (16, 8, 4, 1), "EACH": (16, 4, 1)}

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return True

    def gives(self, stored: DType, wanted: DType) -> bool:
        return True

    def refuse(self, p: Problem) -> str | None:
        if why := _refusal(p.node, 2):
            return why
        square = _square(p.node)
        zips = _is_thin(square.b) and square.target_stride == square.b
        unzips = _is_thin(square.a) and square.source_stride == square.a
        if not zips and not unzips:
            return f"no axis of up to {_THIN} elements changes places with its neighbour"
        return None

    def illegal(self, p: Problem, params: Params) -> str | None:
        return "too many registers" if params["VEC"] * p.node.x.type.storage.size > 64 else None

    def seconds(self, p: Problem, cost: Cost) -> float:
        return super().seconds(p, Cost(cost.flops, cost.bytes * Movement.of(p.device).square))

    def defaults(self, p: Problem) -> Params:
        if not p.device.is_cpu:
            return {"VEC": 4, "EACH": 1}
        return {"VEC": min(16, 64 // p.node.x.type.storage.size), "EACH": 16}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        square = _square(p.node)
        zips = _is_thin(square.b) and square.target_stride == square.b
        thin, steps = (square.b, square.a) if zips else (square.a, square.b)
        vec, each = params["VEC"], params["EACH"]
        defines: Defines = {"AXES": len(square.lines.extents), "THIN": thin, "VEC": vec}
        x, y = p.node.x.type.storage, p.node.y.type.storage
        if x is y:
            load, store = accesses(x.size, vec)
            defines |= {"T": ELEMENT[x.size]}
            at = "#define LOADP(p, i) LOAD_T((p) + (i))\n#define STOREP(p, i, v) STORE_T(v, (p) + (i))\n"
            prelude = f"#define LOAD_T(p) {load}\n#define STORE_T(v, p) {store}\n{at}"
        else:
            prelude = cast_accesses(p.node.x, p.node.y, vec)
        stride = square.source_stride if zips else square.target_stride
        rows = square.lines.count
        args: Args = {"x": p.node.x, "y": p.node.y, "steps": steps, "stride": stride, "each": each}
        args |= {"rows": rows, **square.lines.axis_args}
        entry = "zip_lines" if zips else "unzip_lines"
        return [Launch(entry, args, (ceil_div(steps, vec * each), rows), defines=defines, prelude=prelude)]


@register
class TransposeChannelBlocks(Kernel):
    """A work-item moves one channel block at EACH positions."""

    source = "data_movement/transpose_channel_blocks.cl"
    op = "Transpose"
    rank = -1
    space = {"EACH": (1, 4, 16, 64, 256)}
    untuned = {"EACH": 64}, {"EACH": 1}

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return True

    def gives(self, stored: DType, wanted: DType) -> bool:
        return True

    def refuse(self, p: Problem) -> str | None:
        if p.device.pack == 1:
            return "the device has no channel blocks"
        if not p.node.x.dtype.is_float:
            return f"{p.node.x.dtype} is not held in channel blocks"
        return None if _ends_in_rows(p.node) is not None else "channels neither go last nor come from there"

    def bindings(self, p: Problem) -> Bindings:
        blocks = packed(p.device.pack)
        return (Binding((blocks,), (FLAT,)) if _ends_in_rows(p.node) else Binding((FLAT,), (blocks,)),)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        ends_in_rows = _ends_in_rows(node)
        n, channels, *rest = node.x.shape if ends_in_rows else node.y.shape
        pack, spatial = p.device.pack, math.prod(rest)
        blocks, each = ceil_div(channels, pack), params["EACH"]
        args: Args = {"x": node.x, "y": node.y, "channels": channels, "blocks": blocks, "spatial": spatial}
        entry = "blocks_to_rows" if ends_in_rows else "rows_to_blocks"
        grid = (blocks, ceil_div(spatial, each), n)
        prelude = cast_accesses(node.x, node.y, pack)
        return [Launch(entry, {**args, "each": each, "outer": n}, grid, defines={"PACK": pack}, prelude=prelude)]


def _ends_in_rows(node: Node) -> bool | None:
    """True if the transpose moves channels last, False if it moves them back, None for any other order."""
    perm = node.as_(Transpose).perm
    rank = len(perm)
    if rank < 3:
        return None
    if perm == (0, *range(2, rank), 1):
        return True
    return False if perm == (0, rank - 1, *range(1, rank - 1)) else None
