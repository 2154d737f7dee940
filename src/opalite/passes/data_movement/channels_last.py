"""Compute regions between transposes in channels-last layout."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from weakref import WeakKeyDictionary

from ...expr.parse import parse_expr
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal, is_symbolic
from ...ir.tensor_type import Shape
from ...ops.conv import Conv, DepthwiseNhwc, neutral_zeros
from ...ops.data_movement import Reshape, Transpose
from ...ops.elementwise import Elementwise
from ...ops.matmul import MatMul
from ...ops.reduce import Reduce
from ..fusion.fold_into_conv import constant_like
from ..rewrite_driver import Added, Rule, Sweep, value_like

_WIDEST = 16  # widest depthwise filter, in columns


def keep_channels_last(device: DeviceInfo | None) -> Rule:
    """Rule: the region between a Transpose to channels first and Transposes back is computed channels last.

    Networks such as ConvNeXt (Liu et al., 2022) and SegFormer (Xie et al., 2021) transpose images around each depthwise
    convolution, because their products and normalizations run along channels. The rule is off on devices that hold
    images in image2d, as blocks of channels.
    """
    if device is not None and device.prefers_images:
        return lambda node, sweep: None

    sweeps: WeakKeyDictionary[Sweep, dict[DType, dict[Value, _Region]]] = WeakKeyDictionary()

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not _is_to_first(node):
            return None
        dtype = node.x.dtype
        if not dtype.is_float or dtype is DType.FLOAT64:
            return None
        known = sweeps.setdefault(sweep, {})
        if dtype not in known:
            known[dtype] = _regions(sweep, dtype)
        region = known[dtype].get(node.y)
        if region is None:
            return "it reverses another transpose"  # of three axes it may be either direction
        if not region.made and not region.turned:
            return "no reader can be computed channels last"
        if region.before <= region.after:
            return f"{region.opaque} needs channels first" if region.opaque else "it would take as many launches"
        return region.patch()

    return rule


def _is_to_first(node: Node) -> bool:
    rank = len(node.y.shape)
    return isinstance(node.op, Transpose) and rank >= 3 and node.op.perm == (0, rank - 1, *range(1, rank - 1))


def _is_to_last(node: Node) -> bool:
    rank = len(node.y.shape)
    return isinstance(node.op, Transpose) and rank >= 3 and node.op.perm == (0, *range(2, rank), 1)


def _regions(sweep: Sweep, dtype: DType) -> dict[Value, _Region]:
    """The region of each value, for transposes to channels first of `dtype` and their dependants."""
    inside: dict[Value, Node] = {}
    for node in sweep.graph.nodes:
        reads = any(v in inside for v in node.inputs)
        enters = not reads and _is_to_first(node) and node.x.dtype is dtype
        if enters or (reads and _is_by_channel(node, inside)):
            inside[node.y] = node
    # Several transposes may feed one sum, as residuals do: connected nodes are one region.
    region_of: dict[Value, int] = {}
    for start in inside:
        if start in region_of:
            continue
        region_of[start] = number = len(region_of)
        stack = [start]
        while stack:
            v = stack.pop()
            near = [u.y for u in sweep.uses.get(v, ())]
            near += [i for i in inside[v].inputs if i is not None]
            for other in near:
                if other in inside and other not in region_of:
                    region_of[other] = number
                    stack.append(other)
    members: dict[int, dict[Value, Node]] = {}
    for v, node in inside.items():
        members.setdefault(region_of[v], {})[v] = node
    regions = {number: _Region(sweep, found) for number, found in members.items()}
    return {v: regions[number] for v, number in region_of.items()}


@dataclass
class _Region:
    """A connected region computed from transposes to channels first.

    inside: the transposes and the nodes computed from them, in execution order. turned: readers that can read channels
    last at no cost. left: values with other readers, which need channels first; opaque: the label of one such reader.
    """

    sweep: Sweep
    inside: dict[Value, Node]
    turned: list[Node] = field(default_factory=list)
    left: list[Value] = field(default_factory=list)
    opaque: str = ""

    def __post_init__(self) -> None:
        for v in self.inside:
            users = [u for u in self.sweep.uses.get(v, ()) if u.outputs[0] not in self.inside]
            self.turned += [u for u in users if _is_back(u)]
            others = [u for u in users if not _is_back(u)]
            if others or v in self.sweep.exposed:
                self.left.append(v)
                if not _is_vector(v):
                    self.opaque = others[0].label if others else "an output of the graph"
        self.turned = list(dict.fromkeys(self.turned))

    @property
    def entries(self) -> list[Node]:
        """The Transposes to channels first."""
        return [n for n in self.inside.values() if _is_to_first(n)]

    @cached_property
    def before(self) -> int:
        """Number of transposes that are removed."""
        return len(self.entries) + sum(_is_to_last(n) for n in self.turned)

    @cached_property
    def after(self) -> int:
        """Number of transposes that are added: for other readers, and for patches."""
        patches = sum(isinstance(n.op, Conv) and not _is_depthwise(n) and n.op.strides != (1, 1) for n in self.made)
        return sum(not _is_vector(v) for v in self.left) + patches

    @property
    def made(self) -> list[Node]:
        """Nodes that are computed channels last."""
        return [n for n in self.inside.values() if not _is_to_first(n)]

    def patch(self) -> Patch:
        """The patch that computes the region channels last."""
        known: dict[Value, Value] = {}
        added = Added()
        for v, node in self.inside.items():
            known[v] = node.x if _is_to_first(node) else added.put(_last(node, known, added))
        replaced: dict[Value, Value] = {}
        for node in self.turned:
            is_turn = isinstance(node.op, Transpose)
            replaced[node.y] = known[node.x] if is_turn else added.put(_last(node, known, added))
        for v in self.left:
            rank = len(v.shape)
            turn = Transpose((0, rank - 1, *range(1, rank - 1)))
            replaced[v] = added.put(self.inside[v].make_helper(turn, [known[v]], like=v.name))
        return Patch([*self.inside.values(), *self.turned], added, replaced)


def _is_vector(v: Value) -> bool:
    """Whether `v`, [N,C,...], has one pixel, so that a Reshape replaces its transpose."""
    return always_equal(math.prod(v.shape[2:]), 1)


def _is_back(node: Node) -> bool:
    """Whether the node reads channels first and can read channels last at no cost."""
    return _is_to_last(node) or _is_spatial_reduce(node, keepdims=False)


def _is_spatial_reduce(node: Node, keepdims: bool) -> bool:
    op = node.op
    return isinstance(op, Reduce) and op.axes == tuple(range(2, len(node.x.shape))) and op.keepdims is keepdims


def _is_by_channel(node: Node, inside: dict[Value, Node]) -> bool:
    """Whether the node reads [N,C,...] in the region and can be computed channels last."""
    if len(node.outputs) != 1 or (node.inputs[0] not in inside and not isinstance(node.op, Elementwise)):
        return False
    match node.op:
        case Reshape():
            x, y = node.x.shape, node.y.shape
            return len(x) >= 3 and len(y) >= 3 and always_equal(x[:2], y[:2])
        case Reduce():
            return _is_spatial_reduce(node, keepdims=True) or _is_channel_reduce(node)
        case Conv():
            return _is_depthwise(node) or is_patches(node)
        case Elementwise(expr=expr):
            shape = node.y.shape
            if expr.uses_coords or len(shape) < 3:
                return False
            values = [v for v in node.inputs if v is not None]
            return all(_is_broadcast(v, shape) if v in inside else _is_of_channels(v, len(shape)) for v in values)
    return False


def _is_channel_reduce(node: Node) -> bool:
    op = node.op
    return isinstance(op, Reduce) and op.axes == (1,) and op.keepdims and len(node.x.shape) >= 3


def _is_broadcast(v: Value, shape: Shape) -> bool:
    """Whether `v` has the axes of `shape`, some perhaps of one element."""
    same = zip(v.shape, shape, strict=False)
    return len(v.shape) == len(shape) and all(always_equal(n, m) or always_equal(n, 1) for n, m in same)


def _is_of_channels(v: Value, rank: int) -> bool:
    """Whether `v` has one element, or one element per channel when broadcast to `rank` axes."""
    if always_equal(math.prod(v.shape), 1):
        return True
    others = (n for i, n in enumerate(v.shape) if i != len(v.shape) - rank + 1)
    return rank - 1 <= len(v.shape) <= rank and all(always_equal(n, 1) for n in others)


def _is_depthwise(node: Node) -> bool:
    op, w = node.as_(Conv), node.input(1)
    if len(w.shape) != 4 or not w.is_const or any(p < 0 for p in op.pads):
        return False
    bias = node.get(2)
    wide = (w.shape[3] - 1) * op.dilations[1] + 1
    same = not is_symbolic(node.x.shape[1]) and op.group == w.shape[0] == node.x.shape[1] and op.group > 1
    fits = same and wide <= _WIDEST and (bias is None or bias.is_const) and not op.exact
    return fits and neutral_zeros(w)  # reads the contents


def is_patches(node: Node) -> bool:
    """Whether windows tile the input without overlap, so that the convolution is a product of patches."""
    op, w, x = node.as_(Conv), node.input(1), node.x.shape
    if len(w.shape) != 4 or not w.is_const or op.group != 1 or any(op.pads) or op.strides != w.shape[2:]:
        return False
    bias = node.get(2)
    if is_symbolic(x) or any(n % k for n, k in zip(x[2:], w.shape[2:], strict=True)):
        return False
    return op.dilations == (1, 1) and (bias is None or bias.is_const) and not op.exact


def _last(node: Node, known: dict[Value, Value], added: Added) -> Node:
    """`node` computed channels last; its helpers are in `added`."""
    op, x = node.op, known.get(node.x)
    n, c, *rest = node.y.shape
    out = value_like(node.y, (n, *rest, c))
    if isinstance(op, Reshape):
        return node.with_(op=Reshape((n, *rest, c)), inputs=[x], outputs=[out])
    if isinstance(op, Reduce):
        last = len(node.x.shape) - 1
        axes = (last,) if op.axes == (1,) else tuple(range(1, last))
        out = out if op.keepdims else value_like(node.y, node.y.shape)
        return node.with_(op=replace(op, axes=axes), inputs=[x], outputs=[out])
    if isinstance(op, Elementwise):
        inputs = [known[v] if v in known else _along_last(v, node, added) for v in node.inputs if v is not None]
        return node.with_(op=replace(op, shape=None), inputs=inputs, outputs=[out])
    assert x is not None
    if _is_depthwise(node):
        conv = node.as_(Conv)
        rows = DepthwiseNhwc(conv.strides, conv.pads, conv.dilations)
        return node.with_(op=rows, inputs=[x, *node.inputs[1:]], outputs=[out])
    w = node.input(1)
    m, c, kh, kw = w.shape
    n, h, wide, _ = out.shape
    if (kh, kw) != (1, 1):
        apart = added.put(node.make_helper(Reshape((n, h, kh, wide, kw, c)), [x]))
        together = added.put(node.make_helper(Transpose((0, 1, 3, 2, 4, 5)), [apart]))
        x = added.put(node.make_helper(Reshape((n, h, wide, kh * kw * c)), [together]))
    matrix = constant_like(w, w.array.transpose(2, 3, 1, 0).reshape(kh * kw * c, m))
    return product_with_bias(node, x, matrix, node.with_(outputs=[out]), added)


def _along_last(v: Value, node: Node, added: Added) -> Value:
    """A per-channel operand, along the last axis."""
    return v if len(v.shape) < 2 else added.put(node.make_helper(Reshape((math.prod(v.shape),)), [v]))


def product_with_bias(conv: Node, rows: Value, matrix: Value, last: Node, added: Added) -> Node:
    """`last` computing the product of the rows of patches and `matrix`, plus the bias of `conv`."""
    product, bias = MatMul(trans_a=False, trans_b=False), conv.get(2)
    if bias is None:
        return last.with_(op=product, inputs=[rows, matrix], outputs=last.outputs)
    inner = value_like(conv.y, last.y.shape)
    added.append(conv.with_(op=product, inputs=[rows, matrix], outputs=[inner]))
    add = Elementwise(parse_expr("add($0, $1)", [conv.y.dtype] * 2))
    return last.with_(op=add, inputs=[inner, bias], outputs=last.outputs)
