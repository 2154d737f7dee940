"""Recognize exported rotary embeddings, and fuse them into the append to a KV cache."""

from __future__ import annotations

from typing import TypeAlias

from ...expr.expression import In, Tmp
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.place import Memory
from ...ir.symbols import always_equal
from ...layout.kernel_candidates import find_options
from ...ops.append import Append
from ...ops.data_movement import Concat, Slice, Transpose
from ...ops.elementwise import Elementwise
from ...ops.rotary_embedding import RotaryAppend, RotaryEmbedding
from ..rewrite_driver import Rule, Sweep, joined_origin, origins_between
from .recognize_norm_attention import single_call

Terms: TypeAlias = "list[tuple[int, tuple[Value, ...]]]"
"""The terms of a sum: each a sign and the factors of a product."""

_MOST_TERMS = 4
_DEEPEST = 4  # elementwise nodes followed upward


def recognize_rotary(node: Node, sweep: Sweep) -> Patch | str | None:
    """Rotated and joined halves of rows, or x cos + (-high, low) sin, become RotaryEmbedding on a strided view of x."""
    found = _joined(node) if isinstance(node.op, Concat) else _summed(node)
    if found is None:
        return None
    x, cos, sin = found
    if not (x.dtype is cos.dtype is sin.dtype) or not x.dtype.is_float or cos.shape != sin.shape:
        return "x and the angles are of several types"
    op, source = RotaryEmbedding(), x
    before = x.producer
    if before is not None and isinstance(before.op, Transpose) and before.op.perm[3] == 3 and before.epilogue is None:
        first, second, third, _ = before.op.perm
        op, source = RotaryEmbedding((first, second, third, 3)), before.x
    if reason := _misfit(x, cos):
        return reason
    made = node.with_(op=op, inputs=[source, cos, sin], origin=origins_between([source, cos, sin], node))
    return Patch.replacing(node, made)


def _misfit(x: Value, table: Value) -> str:
    """The reason why the table's angles do not fit rows of x; '' if they do."""
    if not 1 <= len(table.shape) <= 4 or table.shape[-1] not in (x.shape[3] // 2, x.shape[3]):
        return f"angles {table.type} are not those of half a row or a row of {x.type}"
    rows = zip(table.shape[-2::-1], x.shape[2::-1], strict=False)
    fits = all((type(t) is int and t == 1) or always_equal(t, d) for t, d in rows)
    return "" if fits else f"angles {table.type} do not fit {x.type}"


def _joined(node: Node) -> tuple[Value, Value, Value] | None:
    """(x, cos, sin) if a Concat joins low * cos - high * sin and high * cos + low * sin; low, high: halves of x."""
    if node.as_(Concat).axis != 3 or len(node.inputs) != 2 or node.epilogue is not None:
        return None
    first, second = (_terms(node.input(i), node.input(i), _DEEPEST) for i in (0, 1))
    if first is None or second is None or len(first) != 2 or len(second) != 2:
        return None
    for kept, turned in (first, first[::-1]):
        if kept[0] != 1 or turned[0] != -1 or len(kept[1]) != 2 or len(turned[1]) != 2:
            continue
        for low, cos in (kept[1], kept[1][::-1]):
            for high, sin in (turned[1], turned[1][::-1]):
                x = _whole_of(low, high)
                if x is not None and _same(second, [(1, (high, cos)), (1, (low, sin))]):
                    return x, cos, sin
    return None


def _summed(node: Node) -> tuple[Value, Value, Value] | None:
    """(x, cos, sin) if a sum is x cos + Concat(-high, low) sin."""
    if not isinstance(node.op, Elementwise) or node.epilogue is not None or len(node.y.shape) != 4:
        return None
    terms = _terms(node.y, node.y, _DEEPEST)
    if terms is None or len(terms) != 2 or any(sign != 1 or len(factors) != 2 for sign, factors in terms):
        return None
    for kept, turned in (terms, terms[::-1]):
        for x, cos in (kept[1], kept[1][::-1]):
            for pairs, sin in (turned[1], turned[1][::-1]):
                if _is_quarter_turn(pairs, x):
                    return x, cos, sin
    return None


def _is_quarter_turn(pairs: Value, x: Value) -> bool:
    """Whether `pairs` is the Concat of the negated second half of x's rows and the first."""
    join = pairs.producer
    if join is None or not isinstance(join.op, Concat) or join.op.axis != 3 or len(join.inputs) != 2:
        return False
    match single_call(join.input(0)):
        case ("neg", [Value() as high], _) | ("mul", [Value() as high, -1.0], _):
            return join.epilogue is None and _whole_of(join.input(1), high) is x
    return False


def _whole_of(low: Value, high: Value) -> Value | None:
    """The rank-4 tensor whose rows have `low` as first and `high` as second half."""
    first, second = low.producer, high.producer
    if first is None or second is None or not isinstance(first.op, Slice) or not isinstance(second.op, Slice):
        return None
    x = first.x
    if second.x is not x or len(x.shape) != 4 or type(x.shape[3]) is not int or x.shape[3] % 2:
        return None
    half = x.shape[3] // 2
    for op, start in ((first.op, 0), (second.op, half)):
        if op.starts != (0, 0, 0, start) or op.steps != (1, 1, 1, 1) or op.sizes[3] != half:
            return None
        if not all(always_equal(a, b) for a, b in zip(op.sizes[:3], x.shape[:3], strict=True)):
            return None
    return x if first.epilogue is None and second.epilogue is None else None


def _same(terms: Terms, wanted: Terms) -> bool:
    def known(found: Terms) -> list[tuple[int, list[int]]]:
        return sorted((sign, sorted(map(id, factors))) for sign, factors in found)

    return known(terms) == known(wanted)


def _terms(v: Value, like: Value, depth: int) -> Terms | None:
    """`v` as a sum of at most _MOST_TERMS products; None if it has more.

    Values of another shape than `like`, or not elementwise, are factors.
    """
    node = v.producer
    same = len(v.shape) == len(like.shape) and all(map(always_equal, v.shape, like.shape))
    if node is None or not depth or not same or not isinstance(node.op, Elementwise) or node.epilogue is not None:
        return [(1, (v,))]
    expr = node.op.expr
    if not len(expr) or node.op.shape is not None or any(i.fn not in ("add", "sub", "mul", "neg") for i in expr.instrs):
        return [(1, (v,))]
    made: list[Terms] = []
    for instr in expr.instrs:
        parts: list[Terms] = []
        for ref in instr.args:
            if isinstance(ref, In):
                found = _terms(node.input(ref.i), like, depth - 1)
            elif isinstance(ref, Tmp):
                found = made[ref.k]
            else:
                return [(1, (v,))]  # a number
            if found is None:
                return None
            parts.append(found)
        sums = _combined(instr.fn, parts)
        if len(sums) > _MOST_TERMS:
            return None
        made.append(sums)
    return made[-1]


def _combined(fn: str, parts: list[Terms]) -> Terms:
    if fn == "mul":
        return [(s * t, (*a, *b)) for s, a in parts[0] for t, b in parts[1]]
    negated = [(-s, a) for s, a in parts[-1]]
    return negated if fn == "neg" else parts[0] + (negated if fn == "sub" else parts[1])


def fuse_rotary_append(device: DeviceInfo, memory: Memory | None = Memory.BUFFER) -> Rule:
    """Rule: an Append of rotated rows that nothing else reads, at one position, rotates them itself.

    This saves a launch, and on GPUs a wait. memory: as in `find_options`.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        new = node.input(1) if isinstance(node.op, Append) else None
        rotation = None if new is None else new.producer
        if new is None or rotation is None or not isinstance(rotation.op, RotaryEmbedding):
            return None
        op = node.as_(Append)
        if sweep.only_use(new) is not node:
            return "the rotated rows have other readers"
        if node.get(2) is not None or op.axis == 3 or node.y.dtype is not new.dtype:
            return "rows have separate positions, are themselves a growing cache, or become int8"
        if rotation.precision is not node.precision:
            return f"rows are rotated in {rotation.precision.value}, appended in {node.precision.value}"
        new_op, origin = RotaryAppend(op.axis, op.at, rotation.op.perm), joined_origin(rotation, node)
        made = node.with_(op=new_op, inputs=[node.x, *rotation.inputs], origin=origin)
        options, refusals = find_options(made, device, memory)
        if not options:
            return next(iter(refusals.values()), "no kernel fuses rotation and append")
        return Patch.replacing(node, made, also=[rotation])

    return rule
