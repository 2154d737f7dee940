"""Assign each node its precision: the policy's, or float32 if half is known to be too small.

Half has 5 exponent bits: nothing beyond 65504. Kernels compute in float, so that only stored values matter. Kept in
float32 are: nodes named in the policy; large constants, such as a mask's -1e9, and exponentials, with their readers,
except attention, which reads a float32 mask beside halves; sums of squares, and sums of many terms; operands and
results of bit functions; positions in an image, for which half has 11 bits; and movements and elementwise operators on
float32 inputs.
"""

from __future__ import annotations

import math

from ..expr.expression import Instr, Lit, Tmp
from ..expr.function_table import FUNCTIONS
from ..ir.constants.lazy_array import largest
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Graph, Node, Value
from ..ir.precision import HALF_MAX, NARROW, Precision, PrecisionPolicy
from ..ir.symbols import hint_of
from ..ops.conv import Conv
from ..ops.cumulative import Cumulative
from ..ops.data_movement import Concat, Pad, Reshape, Slice, Transpose
from ..ops.elementwise import Elementwise
from ..ops.gather import Gather
from ..ops.grid_sample import GridSample
from ..ops.linear_attention import LinearAttention
from ..ops.matmul import MatMul
from ..ops.pairwise_distance import PairwiseCoupling, PairwiseDistance
from ..ops.permute_rows import PermuteRows
from ..ops.reduce import Extremes, Reduce
from ..ops.roi import RoiAlign, RoiPool
from ..ops.tree_ensemble import TreeEnsemble

MANY = 1024
"""Least terms of a sum kept in float32: 1024 values of 64 exceed half's range."""
COORDINATES = 4
"""Homogeneous coordinates of a point in space."""
_MOVES = (Reshape, Transpose, Slice, Concat, Pad, Gather, PermuteRows)
_SQUARES = ("sum_square", "l2")
_THRESHOLDS = (TreeEnsemble, PairwiseCoupling)
_SUMS = ("sum", "l1", "log_sum", "log_sum_exp", "prod")


def set_precision(graph: Graph, policy: PrecisionPolicy, device: DeviceInfo | None = None) -> None:
    """Set `precision` of every node, and the storage type in the Place of every computed value."""
    if policy.precision in (Precision.FP32, Precision.WIDE):
        if policy.precision is Precision.WIDE or (device is not None and device.on_host):
            _widen(graph)
        return
    uses = graph.uses()
    patterns, positions = _patterns(graph), _positions(graph)
    large: set[Value] = set()  # values that may exceed half's range
    for node in graph.nodes:
        why, grows = _reason(node, policy, large, patterns, [n for v in node.outputs for n in uses.get(v, ())])
        if not why and (isinstance(node.op, GridSample) or any(v in positions for v in node.outputs)):
            why = "positions need float32 precision"
        node.precision = Precision.FP32 if why else policy.precision
        node.precision_reason = why
        for v in node.outputs:
            if grows:
                large.add(v)
            v.type = v.type.with_place(v.type.place.with_precision(node.precision.override(v.dtype)))


def _widen(graph: Graph) -> None:
    """Store a model's own 16-bit floats as float32: a CPU converts them one by one at each load and store."""
    values = (v for node in graph.nodes for v in (*node.inputs, *node.outputs) if v is not None)
    if not any(v.dtype in NARROW for v in values):
        return
    for node in graph.nodes:
        node.precision = Precision.WIDE
        for v in node.outputs:
            v.type = v.type.with_place(v.type.place.with_precision(node.precision.override(v.dtype)))


def _patterns(graph: Graph) -> set[Value]:
    """Values whose bits are read by a bit function, directly or after movements."""
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        moved = isinstance(node.op, _MOVES) and any(v in found for v in node.outputs)
        if moved or _reads_bits(node):
            found.update(v for v in node.inputs if v is not None and v.dtype is DType.FLOAT32)
    return found


def _positions(graph: Graph) -> set[Value]:
    """Sampling positions, and the values from which they are computed elementwise or by affine maps."""
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        if isinstance(node.op, GridSample | RoiAlign | RoiPool):
            found.add(node.input(1))
        elif any(v in found for v in node.outputs) and _keeps_positions(node):
            found.update(v for v in node.inputs if v is not None and v.dtype is DType.FLOAT32)
    return {v for v in found if v is not None and v.producer is not None and _keeps_positions(v.producer)}


def _keeps_positions(node: Node) -> bool:
    """Whether the node maps positions to positions: a movement, or a product of coordinates and a matrix."""
    if isinstance(node.op, MatMul):
        return bool(hint_of(node.x.shape[-2 if node.op.trans_a else -1]) <= COORDINATES)
    return isinstance(node.op, (*_MOVES, Elementwise))


def _reads_bits(node: Node) -> bool:
    return any(FUNCTIONS[i.fn].bits for i in _instructions(node))


def _reason(
    node: Node, policy: PrecisionPolicy, large: set[Value], patterns: set[Value], readers: list[Node]
) -> tuple[str, bool]:
    """(reason to keep `node` in float32, or ''; whether its output may exceed half's range)."""
    if not any(v is not None and v.dtype is DType.FLOAT32 for v in (*node.inputs, *node.outputs)):
        return "", False
    named = (policy.fp32[node.name] or "it is named in the policy") if node.name in policy.fp32 else ""
    bits = _reads_bits(node) or any(v in patterns for v in node.outputs)
    own = "single bits of floats matter" if bits else ""
    if isinstance(node.op, Conv | MatMul) and node.op.exact:
        own = own or "sums of integers, which floats hold exactly"
    own = own or _large_constant(node) or _large_result(node, readers) or _threshold(node)
    if own:
        return own, True
    if any(v in large for v in _narrowed(node)):
        return named or "an input may exceed half's range", isinstance(node.op, _MOVES)
    return named or _sum(node) or _inherited(node), False


def _narrowed(node: Node) -> list[Value]:
    """Inputs that half precision would store."""
    return [v for i, v in enumerate(node.inputs) if v is not None and i not in node.op.float32_inputs]


def _large_constant(node: Node) -> str:
    values = [v.cached_query(largest) for v in _narrowed(node) if v.is_const and v.dtype is DType.FLOAT32]
    values += [abs(a.value) for i in _instructions(node) for a in i.args if isinstance(a, Lit) and a.dtype.is_float]
    beyond = [a for a in values if HALF_MAX < a < math.inf]
    return f"the constant {max(beyond):.3g} exceeds half's range" if beyond else ""


def _large_result(node: Node, readers: list[Node]) -> str:
    found = _last(node)
    if found is not None and FUNCTIONS[found.fn].grows:
        return "an exponential may exceed half's range"
    squares = found is not None and found.fn == "mul" and found.args[0] == found.args[1]
    return "squares that are summed" if squares and any(isinstance(r.op, Reduce) for r in readers) else ""


def _threshold(node: Node) -> str:
    """Reason to keep nodes in float32 whose result depends on the last digit: trees, iterations, distances."""
    if isinstance(node.op, PairwiseDistance):
        return "squares that are summed"
    return "its thresholds need float32 precision" if isinstance(node.op, _THRESHOLDS) else ""


def _sum(node: Node) -> str:
    if isinstance(node.op, Cumulative | LinearAttention):
        return "running sums"
    if isinstance(node.op, Extremes):
        return "two numbers, of which the steps of a quantisation are made"
    if not isinstance(node.op, Reduce):
        return ""
    terms = node.x.type.count // max(node.y.type.count, 1)
    kind = node.op.kind
    return f"a sum of {terms} terms" if kind in _SQUARES or (kind in _SUMS and terms >= MANY) else ""


def _inherited(node: Node) -> str:
    """Reason to keep movements and elementwise chains in float32: inputs in float32, which then need no cast."""
    if not isinstance(node.op, (*_MOVES, Elementwise)):
        return ""
    floats = [v for v in node.inputs if v is not None and v.dtype is DType.FLOAT32]
    if node.y.type.count != 1:
        floats = [v for v in floats if v.type.count != 1]  # kernels read single numbers in either precision
    makers = [v.producer for v in floats if v.producer is not None]
    kept = bool(makers) and all(m.precision is Precision.FP32 for m in makers)
    return "its input is in float32" if kept else ""


def _instructions(node: Node) -> tuple[Instr, ...]:
    if isinstance(node.op, Elementwise):
        return node.op.expr.instrs
    return () if node.epilogue is None else node.epilogue.instrs


def _last(node: Node) -> Instr | None:
    """The instruction whose result an Elementwise stores, before products with constants."""
    if not isinstance(node.op, Elementwise) or not node.op.expr.instrs:
        return None
    expr = node.op.expr
    last = expr.instrs[-1]
    while last.fn in ("mul", "add", "sub", "neg"):
        computed = [a for a in last.args if not isinstance(a, Lit)]
        if len(computed) != 1 or not isinstance(computed[0], Tmp):
            break
        last = expr.instrs[computed[0].k]
    return last
