"""Epilogues: a fused elementwise chain as macros that a kernel calls just before it stores.

Longer than 400 lines: the test of which operands fit and the generated access use the same coordinates.

A kernel's signature ends with EPILOGUE_PARAMS, filled by `Epilogue.args`. EPILOGUE is the chain on ACCV, EPILOGUE1 on
one ACC. There are three coordinate families:

- packed: (v, n, c, s, C, S): batch, channel block, spatial index; number of blocks and spatial size. With a flat
  output the blocks are channels and a vector is PACK neighbours along the spatial axis; EPILOGUE1 exists only there.
- rows: (v, r, c, R, C): row and first column of the output as a matrix of C columns.
- image: (v, n, c, h, w, C, H, W): batch, channel block, row and column of a texel; number of blocks, height, width.
  Computed operands are images, constants are buffers. There is no EPILOGUE1.

A vector call must be wholly inside the tensor. The kernel masks lanes past C after the epilogue.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...expr.expression import Expr, Lit, evaluate
from ...expr.trace_function import bind
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import FLAT, IMAGE, Layout, Place, packed, texel_dims
from ...ir.symbols import always_equal, equal_guarded, hint_of, runs_along
from ..kernel import Binding
from ..launch import Arg, Weight
from ..weight_packing import to_texel_dims
from .constant_scalars import is_round, is_scalar, lift_literals, literal, reciprocal_divisors, scalar_arg
from .expression_code import generate
from .vector_types import WIDTHS, compute_type, load, pointer_type

_COORDS = {
    "packed": ("n", "c", "s", "C", "S"),
    "rows": ("r", "c", "R", "C"),
    "image": ("n", "c", "h", "w", "C", "H", "W"),
}


_RESULTS = (DType.FLOAT32, DType.FLOAT16, DType.INT32, DType.INT8, DType.UINT8)
"""Element types that epilogues may turn integer sums into."""


_OPERAND = re.compile(r"e\d+(_\d+)?")


@dataclass(frozen=True)
class Epilogue:
    """Generated macros for a launch's `prelude`, and their kernel arguments; empty without a chain."""

    prelude: str = ""
    args: Mapping[str, Arg] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """The position of an operand's element: `index` as a function of the coordinates; {0}, {1}... are int arguments.

    ints: those arguments. vector: the operand has PACK elements from there on, else one for all lanes. blocks: it is
    channel-packed as the output is. texel: coordinates "x, y" of an operand in an image.
    """

    index: str
    vector: bool
    blocks: bool = False
    ints: tuple[int, ...] = ()
    texel: str = ""


# -- What fits -------------------------------------------------------------------------------------------------


def operand_fits(shape: Sequence[int], out_shape: Sequence[int], kind: str, columns: int | None = None) -> bool:
    """Whether a value of `shape` can be an operand of an epilogue on `out_shape`.

    `kind` is "packed", "rows" or "image", the family of coordinates. `columns` of a rows kernel is the size of its
    innermost loop, by default the last dimension.
    """
    return _access(shape, out_shape, kind, columns, 1) is not None


def operand_layout(shape: Sequence[int], out_shape: Sequence[int], kind: str, layout: Layout) -> Layout:
    """The layout that a variable operand of `shape` needs if the output has `layout`."""
    if kind == "image":
        return IMAGE if math.prod(shape) != 1 else FLAT
    access = _access(shape, out_shape, kind, None, layout.pack) if kind == "packed" else None
    return packed(layout.pack) if access is not None and access.blocks else FLAT


def operand_layouts(node: Node, kind: str, layout: Layout) -> tuple[Layout | None, ...]:
    """The binding of epilogue operands $1, $2... of `node`: None for constants."""
    return tuple(
        None if v is None or v.is_const else operand_layout(v.shape, node.y.shape, kind, layout)
        for v in node.inputs[node.op.arity :]
    )


def epilogue_binding(node: Node, kind: str, layout: Layout, x: Layout | None = None) -> Binding:
    """The binding with the result in `layout`, input 0 in `x` (`layout` by default), and other inputs as Weight."""
    constants = (None,) * len(node.inputs[1 : node.op.arity])
    return Binding((x or layout, *constants, *operand_layouts(node, kind, layout)), (layout,))


def epilogue_refusal(node: Node, kind: str, columns: int | None = None, source: DType | None = None) -> str | None:
    """The reason why the epilogue of `node` cannot be computed in coordinates of `kind`, or None.

    source: type of the epilogue's input if it differs from the result's; `Op.sums` by default.
    """
    expr = _chain(node)
    if expr is None:
        return None
    sums = node.op.sums if source is None else source
    if sums is not None:
        if expr.dtype not in _RESULTS:
            return f"its epilogue gives {expr.dtype}, which kernels with sums in {sums} do not store"
    elif not node.y.dtype.is_float or expr.dtype is not node.y.dtype:
        return f"its epilogue gives {expr.dtype} from {node.y.dtype}; only the same float type is possible"
    if expr.uses_coords:
        return "its epilogue depends on the position in the output"
    used = {*expr.dtypes, *(i.dtype for i in expr.instrs)}
    if DType.FLOAT64 in used and node.y.dtype is not DType.FLOAT64:
        return "its epilogue needs double precision"
    for i, v in enumerate(_operands(node), 1):
        if not v.dtype.on_device:
            return f"its epilogue operand ${i} is {v.dtype}"
        if v.type.count == 1:
            continue
        if not operand_fits(v.shape, node.y.shape, kind, columns):
            return f"its epilogue operand ${i} {v.type} does not broadcast to {node.y.type} in a simple way"
        if kind == "packed" and not v.is_const and _misaligned(v.shape, node.y.shape):
            return f"its epilogue operand ${i} {v.type} has no packed layout like that of {node.y.type}"
        if kind == "image" and not v.is_const and not (v.dtype.is_float and _same_texels(v.shape, node.y.shape)):
            return f"its epilogue operand ${i} {v.type} cannot be held as an image like that of {node.y.type}"
    return None


def is_operand(name: str) -> bool:
    """Whether a kernel argument of that name belongs to the epilogue."""
    return _OPERAND.fullmatch(name) is not None


def is_elementwise(v: Value, y: Value) -> bool:
    """Whether a variable operand is read at the position where the result is written."""
    return not v.is_const and equal_guarded(v.shape, y.shape) and v.type.layout == y.type.layout


def keeps_zeros(node: Node) -> bool:
    """Whether the epilogue maps zero to zero in lanes past the last channel, so that kernels need not mask them.

    Channel-packed operands hold zeros there. Other operands hold unknown values.
    """
    expr = _chain(node)
    if expr is None:
        return True
    arrays = [np.zeros((), node.y.dtype.np)]
    for v in _operands(node):
        if v.data is not None and v.type.count == 1:
            arrays.append(v.data.reshape(()))
        elif not v.is_const and not v.type.layout.is_row_major and equal_guarded(v.shape, node.y.shape):
            arrays.append(np.zeros((), v.dtype.np))
        else:
            return False
    return not evaluate(expr, arrays, ()).any()


def _chain(node: Node) -> Expr | None:
    return node.epilogue if node.epilogue is not None and node.epilogue.instrs else None


def _operands(node: Node) -> list[Value]:
    return [v for v in node.inputs[node.op.arity :] if v is not None]


def _misaligned(shape: Sequence[int], out_shape: Sequence[int]) -> bool:
    """Whether axis 1 of the operand is not the channels, so that packing it would pack another axis."""
    c = out_shape[1]
    return len(shape) != len(out_shape) and c > 1 and _aligned(shape, len(out_shape))[1] == c


def _same_texels(shape: Sequence[int], out_shape: Sequence[int]) -> bool:
    """Whether images of both shapes hold the same axis in texels: axis 1 of four dimensions, else the last."""
    return (len(shape) == 4) == (len(out_shape) == 4)


def _aligned(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def _fits(size: int, along: int) -> bool:
    """Whether an operand axis equals an output axis, or has size 1 at every size."""
    if equal_guarded((size,), (along,)) or always_equal(size, 1):
        return True
    return hint_of(along) != 1 and size == 1


def _access(shape: Sequence[int], out_shape: Sequence[int], kind: str, columns: int | None, pack: int) -> Access | None:
    if len(shape) > len(out_shape):
        return None
    dims = _aligned(shape, len(out_shape))
    if not all(_fits(d, o) for d, o in zip(dims, out_shape, strict=True)):
        return None
    if always_equal(math.prod(shape), 1):
        return Access("0", False)
    if kind == "packed":
        return _packed_access(dims, tuple(out_shape), pack, packs=len(shape) == len(out_shape))
    if kind == "image":
        return _image_access(dims, tuple(out_shape))
    return _rows_access(dims, tuple(out_shape), out_shape[-1] if columns is None else columns)


def _packed_access(dims: tuple[int, ...], out: tuple[int, ...], pack: int, *, packs: bool) -> Access | None:
    """Access in packed coordinates; packs: axis 1 of the operand is the channels."""
    if len(out) < 2:
        return None
    spatial = equal_guarded(dims[2:], out[2:])
    if not spatial and any(d != 1 for d in dims[2:]):
        return None
    index = "n" if runs_along(dims[0], out[0]) else "0"
    blocks = dims[1] == out[1] and (packs or out[1] > 1)
    if blocks:
        index = f"{index} * C + c"
    if spatial:
        index = f"({index}) * S + s"
    if pack == 1:
        return Access(index, spatial)
    return Access(f"({index}) * PACK", True, True) if blocks else Access(index, False)


def _image_access(dims: tuple[int, ...], out: tuple[int, ...]) -> Access | None:
    """Access in image coordinates; any axis of N, C, H, W may be missing."""
    if len(out) > 4:
        return None
    held = [letter if d == o else "" for letter, d, o in zip("nchw", texel_dims(dims), texel_dims(out), strict=True)]

    def flatten(parts: Sequence[tuple[str, str]]) -> str:
        """Index over the axes held, as (coordinate, size) from the outermost on."""
        index = ""
        for coordinate, size in parts:
            if coordinate:
                index = f"({index}) * {size} + {coordinate}" if index else coordinate
        return index or "0"

    n, c, h, w = held
    index = flatten([(n, "N"), (c, "C"), (h, "H"), (w, "W")])
    texel = f"{flatten([(c, 'C'), (w, 'W')])}, {flatten([(n, 'N'), (h, 'H')])}"
    return Access(f"({index}) * PACK" if c else index, bool(c), bool(c), texel=texel)


def _rows_access(dims: tuple[int, ...], out: tuple[int, ...], columns: int) -> Access | None:
    split, size = len(out), 1
    while split > 0 and size < columns:
        split -= 1
        size *= out[split]
    if size != columns:
        return None
    along = equal_guarded(dims[split:], out[split:])
    if not along and any(d != 1 for d in dims[split:]):
        return None
    rows = [(d, o) for d, o in zip(dims[:split], out[:split], strict=True) if not always_equal(o, 1)]
    held = [i for i, (d, o) in enumerate(rows) if runs_along(d, o)]
    ints: tuple[int, ...] = ()
    index = "0"
    if held:
        first, last = held[0], held[-1] + 1
        if last - first != len(held):
            return None
        index = "r"
        if last < len(rows):
            index = f"{index} / {{{len(ints)}}}"
            ints += (math.prod(o for _, o in rows[last:]),)
        if first > 0:
            index = f"{index} % {{{len(ints)}}}"
            ints += (math.prod(o for _, o in rows[first:last]),)
    if along and columns > 1:
        return Access(f"({index}) * C + c", True, ints=ints)
    return Access(index, False, ints=ints)


# -- Generation ------------------------------------------------------------------------------------------------


def packed_epilogue(node: Node, device: DeviceInfo, source: DType | None = None) -> Epilogue:
    """Macros in coordinates (v, n, c, s, C, S) for the layout that `node.y` has; `source` as in `epilogue_refusal`."""
    return _epilogue(node, device, "packed", None, source=source)


def rows_epilogue(node: Node, device: DeviceInfo, columns: int | None = None, *, aligned: bool = False) -> Epilogue:
    """Macros in coordinates (v, r, c, R, C); `columns` as in `operand_fits`; `aligned`: PACK divides c and C."""
    return _epilogue(node, device, "rows", columns, aligned=aligned)


def image_epilogue(node: Node, device: DeviceInfo) -> Epilogue:
    """Macros in coordinates (v, n, c, h, w, C, H, W); they need image/texel_access.cl in front."""
    return _epilogue(node, device, "image", None)


@dataclass(frozen=True)
class _Operand:
    """An operand in generated code: kernel parameters, arguments, and its read expression."""

    params: tuple[str, ...]
    args: tuple[Arg, ...]
    value: Value
    name: str
    access: Access | None  # None: passed by value
    aligned: bool = False  # vectors begin at multiples of their width

    def read(self, width: int) -> str:
        """The expression of the operand's value in `width` lanes."""
        t = compute_type(self.value.dtype, width)
        if self.access is None:
            return f"({t})({self.name})"
        if self.value.type.layout.is_image:
            return f"{'READ' if self.access.blocks else 'READ_FIRST'}({self.name}, {self.access.texel})"
        index = self.access.index.format(*(f"{self.name}_{k}" for k in range(len(self.access.ints))))
        lanes = width if self.access.vector else 1
        whole = self.access.blocks or self.aligned
        text = load(self.value.type.storage, self.value.dtype, lanes, self.name, f"({index})", aligned=whole)
        return text if lanes == width else f"({t})({text})"


def _epilogue(
    node: Node,
    device: DeviceInfo,
    kind: str,
    columns: int | None,
    *,
    aligned: bool = False,
    source: DType | None = None,
) -> Epilogue:
    expr = _chain(node)
    if expr is None:
        return Epilogue()
    pack = 1 if kind == "rows" else node.y.type.layout.pack
    values = _operands(node)
    literals = {i: literal(v) for i, v in enumerate(values, 1) if is_round(v)}
    expr, lifted = lift_literals(bind(expr, literals))
    values += lifted
    operands = {
        i: _operand(v, f"e{i}", node.y.shape, kind, columns, pack) for i, v in enumerate(values, 1) if i not in literals
    }
    operands = {i: replace(o, aligned=aligned) for i, o in operands.items()}
    scalars = {i: o.value for i, o in operands.items() if o.access is None}
    text = _text(
        _Chain(
            expr,
            tuple(str(a) for a in (*(a for i in expr.instrs for a in i.args), expr.result) if isinstance(a, Lit)),
            tuple((i, o.params, o.access, o.value.dtype, o.value.type.place, aligned) for i, o in operands.items()),
            kind,
            0 if kind == "rows" or node.y.type.layout.is_row_major else pack,
            node.op.sums if source is None else source,
            node.y.dtype,
            node.y.type.storage,
            device,
            reciprocal_divisors(expr, scalars, device),
            {i: replace(o, args=(), value=Value("", o.value.type)) for i, o in operands.items()},
        )
    )
    return Epilogue(text, {_name_of(p): a for o in operands.values() for p, a in zip(o.params, o.args, strict=True)})


@dataclass(frozen=True)
class _Chain:
    """Everything that an epilogue's text depends on; many layers of a model share it.

    literals: distinguish -0.0 from 0.0, which compare equal in `expr`. forms: properties of operands that affect the
    text. block: width of the output's channel blocks, 0 without blocks.
    """

    expr: Expr
    literals: tuple[str, ...]
    forms: tuple[tuple[int, tuple[str, ...], Access | None, DType, Place, bool], ...]
    kind: str
    block: int
    sums: DType | None
    dtype: DType
    stored: DType
    device: DeviceInfo
    reciprocals: frozenset[int]
    operands: Mapping[int, _Operand] = field(compare=False)


@lru_cache(maxsize=512)
def _text(chain: _Chain) -> str:
    """The macros, and the functions that they call."""
    expr, operands, device = chain.expr, chain.operands, chain.device
    coords = _COORDS[chain.kind]
    params = "".join(f", {p}" for o in operands.values() for p in o.params)
    names = "".join(f", {_name_of(p)}" for o in operands.values() for p in o.params)
    helpers: dict[str, str] = {}
    # Mesa's rusticl reads the kernel's first image instead of an image argument of a called function.
    has_images = any(o.value.type.layout.is_image for o in operands.values() if o.access is not None)
    inline = "__attribute__((always_inline)) static inline" if has_images else "static inline"

    def function(name: str, acc: str, width: int) -> str:
        t = compute_type(chain.sums or chain.dtype, width)
        own = acc if chain.sums is None else str(t)
        names = [f"x{i}" for i in range(len(expr.dtypes))]
        code = generate(expr, width, names, device=device, stored=chain.stored, reciprocals=chain.reciprocals)
        helpers.update(code.helpers)
        reads = "".join(
            f"    const {compute_type(o.value.dtype, width)} x{i} = {o.read(width)};\n" for i, o in operands.items()
        )
        result = f"CONVERT_N({width}, ACC)({code.result})"
        return (
            f"{inline} {acc} {name}({own} v, {', '.join(f'int {c}' for c in coords)}{params}) {{\n"
            f"    const {t} x0 = {t.convert('v')};\n{reads}{code.body()}    return {result};\n}}\n"
        )

    call = f"(v, {', '.join(coords)}{names})"
    macros = [
        f"#define EPILOGUE_PARAMS {params}",
        f"#define EPILOGUE_ARGS {names}",
        f"#define EPILOGUE(v, {', '.join(coords)}) epilogue{call}",
    ]
    if chain.block:
        body = function("epilogue", "ACCV", chain.block)
    else:
        macros.append(f"#define EPILOGUE1(v, {', '.join(coords)}) epilogue1{call}")
        body = function("epilogue1", "ACC", 1)
        for width in WIDTHS:
            body += f"#if PACK == {width}\n{function('epilogue', 'ACCV', width)}#endif\n"
    return "".join(helpers.values()) + body + "\n".join(macros) + "\n"


def _name_of(param: str) -> str:
    """The name in a parameter's declaration."""
    return param.split()[-1].lstrip("*")


def _operand(v: Value, name: str, out_shape: tuple[int, ...], kind: str, columns: int | None, pack: int) -> _Operand:
    if is_scalar(v):
        t = compute_type(v.dtype, 1)
        return _Operand((f"const {t} {name}",), (scalar_arg(v),), v, name, None)
    access = _access(v.shape if v.type.count != 1 else (), out_shape, kind, columns, pack)
    assert access is not None, f"{v!r} does not fit an epilogue on {out_shape}"
    arg: Arg = v
    if v.data is not None and access.blocks:
        dims = _aligned(v.shape, len(out_shape))
        order = "texels" if kind == "image" and len(out_shape) < 4 else "blocks"
        arg = Weight(
            v,
            f"{order}{pack}:{'x'.join(map(str, dims))}:{v.type.storage}",
            _packer(dims, pack, v.type.storage, texels=order == "texels"),
        )
    if v.type.layout.is_image:
        return _Operand((f"read_only image2d_t {name}",), (arg,), v, name, access)
    params = [f"global const {pointer_type(v.type.storage)} *{name}"]
    params += [f"const int {name}_{k}" for k in range(len(access.ints))]
    return _Operand(tuple(params), (arg, *access.ints), v, name, access)


def _packer(dims: tuple[int, ...], pack: int, storage: DType, *, texels: bool = False) -> Any:
    """A function that packs a constant of shape N, C, D... to blocks of `pack` channels, zero-padded.

    texels: in the order of an image's axes (`texel_dims`).
    """

    def fn(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        array = data.reshape(dims)
        if texels:
            array = to_texel_dims(array)
        n, c, *rest = array.shape
        blocks = -(-c // pack)
        out = np.zeros((n, blocks * pack, *rest), storage.np)
        out[:, :c] = array
        return np.ascontiguousarray(np.moveaxis(out.reshape(n, blocks, pack, *rest), 2, -1))

    return fn
