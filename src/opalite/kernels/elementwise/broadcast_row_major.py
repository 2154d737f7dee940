"""Elementwise on row-major tensors: any expression, any element types, NumPy broadcasting."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ...expr.expression import Expr, Lit
from ...expr.trace_function import bind
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.symbols import always_equal, runs_along
from ...ops.elementwise import Elementwise
from ..codegen.constant_scalars import is_round, is_scalar, lift_literals, literal, reciprocal_divisors, scalar_arg
from ..codegen.expression_code import Coord, generate, generation_refusal
from ..codegen.opencl_functions import helper
from ..codegen.vector_types import Vec, compute_type, load, pointer_type, store
from ..kernel import Kernel, Params, Problem, register
from ..launch import Arg, Args, Launch, ceil_div

MAX_OPERANDS = 24


@dataclass(frozen=True)
class BroadcastLoop:
    """Merged output axes, outermost first, and the stride of each operand along each (0 if broadcast).

    places: maps output axes whose coordinates are used to axes of the loop.
    """

    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    places: dict[int, int]

    @property
    def columns(self) -> int:
        """Extent of the innermost axis."""
        return self.extents[-1]

    @property
    def rows(self) -> int:
        """Number of innermost lines."""
        return math.prod(self.extents[:-1])


def make_broadcast_loop(
    shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], kept: Collection[int] = ()
) -> BroadcastLoop:
    """The loop over `out` for operands of `shapes`: axes that every operand crosses contiguously are merged.

    The axes in `kept` stay separate.
    """
    strides = [_strides(shape, out) for shape in shapes]
    merged: list[tuple[int, tuple[int, ...]]] = []
    places: dict[int, int] = {}
    closed = True  # the next axis may not be merged with the last axis of `merged`
    for axis, extent in enumerate(out):
        steps = tuple(s[axis] for s in strides)
        if axis in kept:
            places[axis] = len(merged)
            merged.append((extent, steps))
            closed = True
        elif not always_equal(extent, 1):
            if not closed and all(always_equal(a, b * extent) for a, b in zip(merged[-1][1], steps, strict=True)):
                merged[-1] = (merged[-1][0] * extent, steps)
            else:
                merged.append((extent, steps))
            closed = False
    merged = merged or [(1, (0,) * len(shapes))]
    return BroadcastLoop(
        tuple(e for e, _ in merged), tuple(tuple(s[k] for _, s in merged) for k in range(len(shapes))), places
    )


def _strides(shape: tuple[int, ...], out: tuple[int, ...]) -> list[int]:
    """Element strides along each axis of a row-major tensor broadcast to `out`."""
    step, strides = 1, []
    aligned = (1,) * (len(out) - len(shape)) + tuple(shape)
    for extent, along in zip(reversed(aligned), reversed(out), strict=True):
        strides.append(step if runs_along(extent, along) else 0)
        step *= extent
    return strides[::-1]


@register
class ElementwiseFlat(Kernel):
    """Vectors along the innermost axis, a scalar tail, several vectors per work-item."""

    op = "Elementwise"
    space = {"VEC": (16, 8, 4, 2, 1), "ITEMS": (8, 4, 2, 1, 16)}

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return True

    def gives(self, stored: DType, wanted: DType) -> bool:
        return True

    def refuse(self, p: Problem) -> str | None:
        if len(p.node.inputs) > MAX_OPERANDS:
            return f"{len(p.node.inputs)} operands are more than {MAX_OPERANDS}"
        return generation_refusal(p.node.as_(Elementwise).expr, p.device)

    def defaults(self, p: Problem) -> Params:
        columns = _Source(p.node, p.device).walk.columns
        vec = max(4, min(16, p.device.native_float_width)) if p.device.is_cpu else 4
        while vec > 1 and vec > columns:
            vec //= 2
        items = 8 if p.device.is_cpu and columns >= 1024 else 2 if p.device.is_cpu else 1
        return {"VEC": vec, "ITEMS": items}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        vec, items = params["VEC"], params["ITEMS"]
        source = _Source(p.node, p.device)
        prelude = source.prelude(vec)
        args = {**source.args, "columns": source.walk.columns, "rows": source.walk.rows}
        grid = (ceil_div(source.walk.columns, vec * items), source.walk.rows)
        return [Launch("elementwise_flat", args, grid, defines={"VEC": vec, "ITEMS": items}, prelude=prelude)]


@dataclass
class _Source:
    """The generated program text of one node for elementwise/broadcast_row_major.cl, and its arguments."""

    node: Node
    device: DeviceInfo
    args: Args = field(default_factory=dict)
    params: list[str] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inputs = [v for v in self.node.inputs if v is not None]
        bound = bind(self.node.as_(Elementwise).expr, {k: literal(v) for k, v in enumerate(inputs) if is_round(v)})
        lifted: tuple[Expr, list[Value]] = lift_literals(bound)
        self.expr = lifted[0]
        self.scalars = {k: v for k, v in enumerate(inputs) if is_scalar(v) and not is_round(v)}
        self.scalars |= dict(enumerate(lifted[1], len(inputs)))
        self.tensors: dict[int, Value] = {k: v for k, v in enumerate(inputs) if not is_scalar(v)}
        wanted = {int(a.value) for i in self.expr.instrs if i.fn == "coord" for a in i.args if isinstance(a, Lit)}
        self.walk = make_broadcast_loop([v.shape for v in self.tensors.values()], self.node.y.shape, wanted)
        self.strides = dict(zip(self.tensors, self.walk.strides, strict=True))

    def prelude(self, width: int) -> str:
        """Macros for vectors of `width`; fills `args`."""
        for k, v in self.tensors.items():
            self._add(f"global const {pointer_type(v.type.storage)} *x{k}", v)
        self._add(f"global {pointer_type(self.node.y.type.storage)} *y", self.node.y)
        for k, v in self.scalars.items():
            self._add(f"{compute_type(v.dtype, 1)} x{k}", scalar_arg(v))
        row = self._row()
        vector, scalar = self._statements(width), self._statements(1)
        return "\n".join(
            (
                *self.helpers.values(),
                f"#define EW_PARAMS {', '.join(self.params)},",
                f"#define EW_ROW(row) {' '.join(row)}",
                f"#define EW_VECTOR(i) {vector}",
                f"#define EW_SCALAR(i) {scalar}",
            )
        )

    def _add(self, param: str, arg: Arg) -> None:
        self.params.append(param)
        self.args[param.split()[-1].lstrip("*")] = arg

    def _row(self) -> list[str]:
        """Statements that compute the coordinates c of a row of y and the offset o of that row in each operand."""
        lines = ["int rest = row;"]
        offsets: dict[int, list[str]] = {k: [] for k in self.tensors}
        for axis in reversed(range(len(self.walk.extents) - 1)):
            self._add(f"int e{axis}", self.walk.extents[axis])
            lines.append(f"const int c{axis} = {f'rest % e{axis}' if axis else 'rest'};")
            if axis:
                lines.append(f"rest /= e{axis};")
            for k, strides in self.strides.items():
                if strides[axis]:
                    self._add(f"int s{k}_{axis}", strides[axis])
                    offsets[k].append(f"(size_t)c{axis} * s{k}_{axis}")
        lines += [f"const size_t o{k} = {' + '.join(terms) or '0'};" for k, terms in offsets.items()]
        return [*lines, "const size_t oy = (size_t)row * columns;"]

    def _statements(self, width: int) -> str:
        """Loads, the expression and the store at column i in `width` lanes."""
        names, lines = [f"v{k}" for k in range(len(self.expr.dtypes))], []
        for k, v in self.tensors.items():
            t = compute_type(v.dtype, width)
            lanes, index = (width, f"(o{k} + i)") if self.strides[k][-1] else (1, f"(o{k})")
            read = load(v.type.storage, v.dtype, lanes, f"x{k}", index)
            lines.append(f"const {t} v{k} = {read if lanes == width else f'({t})({read})'};")
        for k, v in self.scalars.items():
            t = compute_type(v.dtype, width)
            lines.append(f"const {t} v{k} = ({t})(x{k});")
        y, coord = self.node.y, self._coord(width)
        steady = reciprocal_divisors(self.expr, self.scalars, self.device)
        code = generate(
            self.expr, width, names, device=self.device, coord=coord, stored=y.type.storage, reciprocals=steady
        )
        self.helpers.update(code.helpers)
        if y.type.storage is DType.BFLOAT16:
            t = Vec("float", width)
            self.helpers.setdefault(f"bf16_bits_{t}", helper("bf16_bits", t))
        lines += [*code.statements, store(y.type.storage, y.dtype, width, "y", "(oy + i)", code.result)]
        return " \\\n    ".join(lines)

    def _coord(self, width: int) -> Coord:
        lanes = Vec("long", width)
        inner = len(self.walk.extents) - 1

        def at(axis: int) -> str:
            place = self.walk.places[axis]
            if place < inner:
                return f"({lanes})(c{place})"
            if width == 1:
                return "(long)(i)"
            return f"(({lanes})(i) + ({lanes})({', '.join(map(str, range(width)))}))"

        return at
