"""Transpose, Slice and Concat as copies between strided views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import Node, Value
from ...ir.place import FLAT, Layout, packed
from ...ir.symbols import always_equal, hint_of, is_multiple
from ...ops.data_movement import Concat, Slice, Transpose
from ...ops.operator import Cost
from ..codegen.vector_types import Vec, vector_load, vector_store
from ..kernel import Binding, Bindings, Kernel, Params, Problem, flat_binding, register
from ..launch import ELEMENT, Args, Defines, Launch, ceil_div

MAX_AXES = 8  # outer axes that data_movement/strided_copy_axes.cl takes
_SHORT = 8  # shorter inner axes are not worth a loop


def copy_launch(x: Value, y: Value, copy: Copy, params: Params) -> Launch:
    """The launch that copies from x's memory to y's."""
    c = copy.merged()
    inner = _inner_axis(c)
    lines = c.without(inner)
    columns, xs, ys = c.extents[inner], c.source[inner], c.target[inner]
    contiguous = always_equal((xs, ys), (1, 1))
    vec = params["VEC"]
    while vec > 1 and (not contiguous or vec > hint_of(columns)):
        vec //= 2
    items = params["ITEMS"] if contiguous else 4 * params["ITEMS"]
    load, store = accesses(x.type.storage.size, vec)
    defines: Defines = {"T": ELEMENT[x.type.storage.size], "AXES": len(lines.extents), "CONTIGUOUS": contiguous}
    defines |= {"VEC": vec, "ITEMS": items}
    prelude = f"#define VLOADV(p) {load}\n#define VSTOREV(v, p) {store}\n"
    args: Args = {"x": x, "y": y, "x0": copy.source_start, "y0": copy.target_start, "columns": columns}
    args |= {"xs_in": xs, "ys_in": ys, "rows": lines.count, **lines.axis_args}
    grid = (ceil_div(columns, vec * items), lines.count)
    return Launch("strided_copy", args, grid, defines=defines, prelude=prelude)


def _inner_axis(copy: Copy) -> int:
    """The axis that a work-item loops over: the target's innermost, or a longer one if that is short and strided."""
    last = len(copy.extents) - 1
    extents: tuple[int, ...] = hint_of(copy.extents)
    if extents[last] >= _SHORT or always_equal((copy.source[last], copy.target[last]), (1, 1)):
        return last
    return max(range(last + 1), key=lambda k: (extents[k] >= _SHORT and always_equal(copy.source[k], 1), extents[k]))


class StridedCopy(Kernel):
    """Base class of Transpose, Slice and Concat kernels on strided views."""

    source = "data_movement/strided_copy.cl"
    space = {"VEC": (16, 8, 4, 2, 1), "ITEMS": (4, 2, 1, 8)}
    untuned = {"VEC": 16, "ITEMS": 4}, {"VEC": 4, "ITEMS": 1}

    def refuse(self, p: Problem) -> str | None:
        if any(len(copy.merged().extents) > MAX_AXES + 1 for copy in self.copies(p.node, FLAT)):
            return f"the copy has more than {MAX_AXES + 1} axes that cannot be merged"
        return None

    def copies(self, node: Node, layout: Layout) -> list[Copy]:
        """One copy per input, in elements, or in channel blocks if packed."""
        raise NotImplementedError

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        inputs = [v for v in node.inputs if v is not None]
        return [
            copy_launch(x, node.y, copy, params)
            for x, copy in zip(inputs, self.copies(node, node.y.type.layout), strict=True)
            if x.type.count
        ]


@register
class TransposeCopy(StridedCopy):
    """Strided reads, contiguous writes."""

    op = "Transpose"
    rank = -2

    def copies(self, node: Node, layout: Layout) -> list[Copy]:
        return [transpose_copy(node)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        copy = transpose_copy(p.node).merged()
        in_order = copy.source[-1] == copy.target[-1] == 1
        return super().seconds(p, Cost(cost.flops, cost.bytes * (1 if in_order else 6)))


def transpose_copy(node: Node) -> Copy:
    """A Transpose of row-major tensors as a strided copy."""
    strides = row_major(node.x.shape)
    return Copy(node.y.shape, tuple(strides[p] for p in node.as_(Transpose).perm), row_major(node.y.shape))


@register
class SliceCopy(StridedCopy):
    """Row-major, or channel-packed if whole channel blocks are taken."""

    op = "Slice"

    def bindings(self, p: Problem) -> Bindings:
        node = p.node
        op, layout = node.as_(Slice), packed(p.device.pack)
        whole = len(node.x.shape) in (3, 4) and op.steps[1] == 1 and op.starts[1] % p.device.pack == 0
        ends = op.starts[1] + op.sizes[1] if whole else 0
        if whole and (ends == node.x.shape[1] or always_equal(op.sizes[1] % p.device.pack, 0)):
            return flat_binding(node), Binding((layout,), (layout,))
        return (flat_binding(node),)

    def copies(self, node: Node, layout: Layout) -> list[Copy]:
        op = node.as_(Slice)
        starts, steps = list(op.starts), list(op.steps)
        x_shape, y_shape = layout.storage_shape(node.x.shape), layout.storage_shape(node.y.shape)
        if not layout.is_row_major:
            starts[1] //= layout.pack
            starts, steps = [*starts, 0], [*steps, 1]
        strides = row_major(x_shape)
        first = sum(s * k for s, k in zip(starts, strides, strict=True))
        return [Copy(y_shape, tuple(s * k for s, k in zip(steps, strides, strict=True)), row_major(y_shape), first)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        """Nothing, beside images, for a part of the input's buffer: a view (plan/memory/buffer_aliasing.py)."""
        if p.device.prefers_images and self._is_part(p.node, max(p.device.base_align, 64)):
            return 0.0
        return super().seconds(p, cost)

    def _is_part(self, node: Node, align: int) -> bool:
        """Whether the row-major output is contiguous in the input, from a multiple of `align` bytes on."""
        (copy,) = self.copies(node, FLAT)
        axes = zip(copy.extents, copy.source, copy.target, strict=True)
        is_stretch = all(always_equal(n, 1) or always_equal(a, b) for n, a, b in axes)
        return is_stretch and is_multiple(copy.source_start * node.x.type.storage.size, align)


@register
class ConcatCopy(StridedCopy):
    """One copy per input; channel-packed if the inputs fill whole channel blocks."""

    op = "Concat"

    def bindings(self, p: Problem) -> Bindings:
        node = p.node
        flat = flat_binding(node)
        inputs = [v for v in node.inputs if v is not None]
        if len(node.y.shape) not in (3, 4) or not node.y.dtype.is_float or any(v.is_const for v in inputs):
            return (flat,)
        if node.as_(Concat).axis == 1 and not all(always_equal(v.shape[1] % p.device.pack, 0) for v in inputs[:-1]):
            return (flat,)
        layout = packed(p.device.pack)
        return flat, Binding((layout,) * len(inputs), (layout,))

    def join(self, p: Problem, inputs: Sequence[int]) -> list[Launch] | None:
        if p.device.is_cpu:
            return None  # the copy is bound by memory, not by launches
        copies = self.copies(p.node, p.node.y.type.layout)
        return join_copies(p.node, [p.node.input(i) for i in inputs], [copies[i] for i in inputs])

    def copies(self, node: Node, layout: Layout) -> list[Copy]:
        axis = node.as_(Concat).axis
        target = row_major(layout.storage_shape(node.y.shape))
        found, start = [], 0
        for v in node.inputs:
            assert v is not None
            shape = layout.storage_shape(v.shape)
            found.append(Copy(shape, row_major(shape), target, 0, start * target[axis]))
            start += shape[axis]
        return found


MAX_INPUTS = 16  # pointer arguments of one kernel; every driver accepts more
_VEC = 4


def join_copies(node: Node, inputs: Sequence[Value], copies: Sequence[Copy]) -> list[Launch] | None:
    """Launches of up to MAX_INPUTS inputs each; None unless each input is contiguous within every line of y.

    node: a Concat. copies: one per input, as in ConcatCopy.
    """
    merged = [copy.merged() for copy in copies]
    ranks = {len(c.extents) for c in merged}
    if ranks not in ({1}, {2}) or not all(always_equal((c.source[-1], c.target[-1]), (1, 1)) for c in merged):
        return None
    groups = [range(i, min(i + MAX_INPUTS, len(inputs))) for i in range(0, len(inputs), MAX_INPUTS)]
    return [_launch(node, [inputs[i] for i in group], [merged[i] for i in group]) for group in groups]


def _launch(node: Node, inputs: Sequence[Value], copies: Sequence[Copy]) -> Launch:
    lines = copies[0].extents[0] if len(copies[0].extents) > 1 else 1
    pitch = copies[0].target[0] if len(copies[0].extents) > 1 else node.y.type.count
    args: Args = {"y": node.y, "pitch": pitch, "lines": lines}
    for i, (x, copy) in enumerate(zip(inputs, copies, strict=True)):
        args |= {f"x{i}": x, f"n{i}": copy.extents[-1], f"s{i}": copy.target_start}
    longest = max(c.extents[-1] for c in copies)
    size = node.y.type.storage.size
    load, store = accesses(size, _VEC)
    prelude = f"#define VLOADV(p) {load}\n#define VSTOREV(v, p) {store}\n{_inputs(len(inputs))}"
    grid = (ceil_div(longest, _VEC), lines, len(inputs))
    defines = {"T": ELEMENT[size], "VEC": _VEC}
    return Launch("concat_runs", args, grid, None, defines, prelude, "data_movement/concat_runs.cl")


def _inputs(count: int) -> str:
    """INPUTS and FIND_INPUT for `count` inputs."""
    params = ", ".join(f"global const T *x{i}, int n{i}, long s{i}" for i in range(count))
    cases = [f"if (k == {i}) {{ x = x{i}; n = n{i}; start = s{i}; }}" for i in range(1, count)]
    last = "{ x = x0; n = n0; start = s0; }"
    return f"#define INPUTS {params}\n#define FIND_INPUT(k) {' else '.join([*cases, last])}\n"


@dataclass(frozen=True)
class Copy:
    """A strided copy: extents, strides of source and target (outermost first), and start offsets."""

    extents: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    source_start: int = 0
    target_start: int = 0

    def merged(self) -> Copy:
        """The same copy with the fewest axes: size-1 axes are dropped, axes contiguous in both views are merged."""
        axes: list[tuple[int, int, int]] = []
        for extent, s, t in zip(self.extents, self.source, self.target, strict=True):
            if always_equal(extent, 1):
                continue
            if axes and always_equal(axes[-1][1:], (s * extent, t * extent)):
                axes[-1] = (axes[-1][0] * extent, s, t)
            else:
                axes.append((extent, s, t))
        e, s2, t2 = zip(*(axes or [(1, 1, 1)]), strict=True)
        return Copy(e, s2, t2, self.source_start, self.target_start)

    def without(self, *gone: int) -> Copy:
        """The copy of one line, without the axes numbered `gone`."""
        kept = [k for k in range(len(self.extents)) if k not in gone]
        extents, source, target = (tuple(of[k] for k in kept) for of in (self.extents, self.source, self.target))
        return Copy(extents, source, target, self.source_start, self.target_start)

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.extents)

    @property
    def axis_args(self) -> Args:
        """Arguments for AXIS_PARAMS of data_movement/strided_copy_axes.cl."""
        args: Args = {}
        for k, (extent, s, t) in enumerate(zip(self.extents, self.source, self.target, strict=True)):
            args |= {f"e{k}": extent, f"xs{k}": s, f"ys{k}": t}
        return args


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def accesses(size: int, width: int, held: str | None = None) -> tuple[str, str]:
    """(load of `width` elements of `size` bytes at p, store of v at p); v is held as `held` elements."""
    t = Vec(ELEMENT[size], width)
    load, value = vector_load(t, "(p)"), "(v)"
    if held is not None and held != t.base:
        load, value = t.of(held).convert(load), t.convert(value)
    return load, f"({vector_store(t, '(p)', value)})"
