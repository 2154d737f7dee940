"""PlaceCast on the device: changes layout, storage type, or both in one launch."""

from __future__ import annotations

import math

from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.place import LayoutKind, Target
from ..codegen.opencl_functions import helper
from ..codegen.vector_types import Vec, compute_type, load, pointer_type, store
from ..image.image_layout import image_refusal
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import Args, Defines, Launch, ceil_div

_BITS = {
    1: (DType.UINT8, DType.UINT32),
    2: (DType.UINT16, DType.UINT32),
    4: (DType.UINT32, DType.UINT32),
    8: (DType.UINT64, DType.UINT64),
}
"""By element size: the type that moves an element's bits, and the type that holds them in registers."""

_KINDS = (LayoutKind.ROW_MAJOR, LayoutKind.PACKED, LayoutKind.TEXELS)


class _Cast(Kernel):
    """Base class of layout casts: values stay on the device."""

    op = "PlaceCast"

    def refuse(self, p: Problem) -> str | None:
        for v in (p.node.x, p.node.y):
            if v.type.place.target is not Target.OPENCL:
                return "the tensor crosses between host and device, which is a copy"
            if why := image_refusal(p.device, v.type) if v.type.layout.is_image else None:
                return why
            if v.type.layout.kind not in _KINDS:
                return f"{v!r} is in layout {v.type.layout}, which casts do not know"
            if v.type.layout.is_packed and len(v.shape) < 2:
                return f"{v!r} has no channel axis to pack"
        return None

    def bindings(self, p: Problem) -> Bindings:
        return (Binding((p.node.x.type.layout,), (p.node.y.type.layout,)),)


@register
class PlaceCastStream(_Cast):
    """Changes the storage type in the same buffer layout."""

    source = "data_movement/dtype_cast.cl"
    space = {"VEC": (16, 8, 4, 2, 1), "EACH": (16, 8, 4, 2, 1)}
    untuned = {"VEC": 16, "EACH": 16}, {"VEC": 4, "EACH": 1}

    def refuse(self, p: Problem) -> str | None:
        x = p.node.x.type.layout
        if not (x.is_row_major or x.is_packed) or x != p.node.y.type.layout:
            return "the layout changes"
        return super().refuse(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        count = math.prod(node.y.type.layout.storage_shape(node.y.shape))
        prelude = cast_accesses(node.x, node.y, params["VEC"])
        grid = (ceil_div(count, params["VEC"] * params["EACH"]),)
        args: Args = {"x": node.x, "y": node.y, "count": count, "each": params["EACH"]}
        return [Launch("place_cast_stream", args, grid, defines={"VEC": params["VEC"]}, prelude=prelude)]


@register
class PlaceCastBlocks(_Cast):
    """Converts between row-major and channel-packed buffers."""

    source = "data_movement/layout_cast_blocks.cl"
    space = {"TILED": (True, False), "EACH": (256, 64, 1024, 1)}
    untuned = {"TILED": True, "EACH": 256}, {"TILED": False, "EACH": 1}

    def refuse(self, p: Problem) -> str | None:
        x, y = p.node.x.type.layout, p.node.y.type.layout
        if not ((x.is_row_major and y.is_packed) or (x.is_packed and y.is_row_major)):
            return "not between a row-major and a channel-packed buffer"
        return super().refuse(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, y = node.x.type.layout, node.y.type.layout
        n, channels, *rest = node.x.shape
        pack = max(x.pack, y.pack)
        spatial, blocks = math.prod(rest), ceil_div(channels, pack)
        defines = {"PACK": pack, "TILE": pack if params["TILED"] else 1}
        args: Args = {"x": node.x, "y": node.y, "channels": channels, "blocks": blocks, "spatial": spatial}
        args |= {"each": params["EACH"], "outer": n * blocks}
        grid = (ceil_div(spatial, params["EACH"]), n * blocks)
        entry = "pack_blocks" if x.is_row_major else "unpack_blocks"
        return [Launch(entry, args, grid, defines=defines, prelude=cast_accesses(node.x, node.y, pack))]


@register
class PlaceCastAny(_Cast):
    """Converts between any two of row-major buffer, channel-packed buffer and image2d."""

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, y = node.x.type, node.y.type
        shape = x.shape
        flat = x.layout.is_row_major and y.layout.is_row_major
        image = x.layout.is_image or y.layout.is_image
        if image and len(shape) == 1:
            shape = (1, *shape)
        n, c, spatial = (1, 1, shape) if flat or len(shape) < 2 else (shape[0], shape[1], shape[2:])
        width = spatial[-1] if spatial else 1
        rows = math.prod(spatial[:-1]) if spatial else 1
        along = image and len(shape) == 3
        rows_out = along and y.layout.is_image
        blocks = c if rows_out else ceil_div(c, y.layout.pack)
        defines: Defines = {"SRC_PACK": x.layout.pack, "DST_PACK": y.layout.pack, "SRC_IMAGE": x.layout.is_image}
        defines |= {"DST_IMAGE": y.layout.is_image, **({"ALONG": 1} if along else {})}
        defines |= {"HALF_TEXELS": y.storage is DType.FLOAT16}
        args: Args = {"x": node.x, "y": node.y, "channels": c, "rows": rows, "width": width, "blocks": blocks}
        grid = (ceil_div(width, 4) if rows_out else rows * width, n * blocks)
        return [
            Launch(
                "place_cast",
                {**args, "outer": n * blocks},
                grid,
                defines=defines,
                prelude=cast_accesses(node.x, node.y, 1),
            )
        ]


def cast_accesses(x: Value, y: Value, width: int) -> str:
    """Macros that load one or `width` elements of x and store them as y's storage type.

    If both sides store the same type, bits are moved unchanged.
    """
    source, target = x.type.storage, y.type.storage
    between = target
    images = x.type.layout.is_image or y.type.layout.is_image
    if source is target and not images:
        source, between = _BITS[source.size]
        target = source
    widths = dict.fromkeys((1, width))
    lines = [helper("bf16_bits", Vec("float", w)) for w in widths] if target is DType.BFLOAT16 else []
    lines += [
        f"#define VALUE {compute_type(between, 1)}",
        f"#define TILE_V {compute_type(between, width)}",
        f"#define SRC_T {pointer_type(source)}",
        f"#define DST_T {pointer_type(target)}",
    ]
    for name, w in (("1", 1), ("P", width)):
        lines.append(f"#define LOAD{name}(p, i) ({load(source, between, w, '(p)', '(i)')})")
        lines.append(f"#define STORE{name}(p, i, v) {store(target, between, w, '(p)', '(i)', '(v)').rstrip(';')}")
    return "\n".join(lines)
