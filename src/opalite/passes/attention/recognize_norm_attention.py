"""Recognize exported composites: layer and RMS normalization and attention become one operator each."""

from __future__ import annotations

import math

from ...expr.expression import In, Lit, Ref
from ...expr.trace_function import Builder, call, trace
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...ir.tensor_type import Shape
from ...lazy_dataclass import dataclass
from ...ops.attention import Attention
from ...ops.data_movement import Reshape, Transpose
from ...ops.elementwise import Elementwise
from ...ops.matmul import MatMul
from ...ops.normalize import Normalize
from ...ops.operator import broadcast_shape
from ...ops.reduce import Reduce
from ...ops.softmax import Softmax
from ..rewrite_driver import Added, Sweep, origins_between

Operand = Value | float


def single_call(value: Operand | None) -> tuple[str, list[Operand], Node] | None:
    """(function, operands, node) if `value` comes from an Elementwise of one instruction."""
    node = value.producer if isinstance(value, Value) else None
    if node is None or not isinstance(node.op, Elementwise) or len(node.op.expr) != 1:
        return None
    expr = node.op.expr
    operands: list[Operand] = []
    for ref in expr.instrs[0].args:
        if isinstance(ref, In):
            operands.append(node.input(ref.i))
        elif isinstance(ref, Lit):
            operands.append(float(ref.value))
    return expr.instrs[0].fn, operands, node


def _args_of(value: Operand | None, fn: str) -> list[Operand]:
    """The operands of `value` if it is a single call of `fn`, else none."""
    found = single_call(value)
    return found[1] if found is not None and found[0] == fn else []


def _mean_of(value: Operand) -> tuple[Value, tuple[int, ...]] | None:
    node = value.producer if isinstance(value, Value) else None
    if node is None or not isinstance(node.op, Reduce) or node.op.kind != "mean" or not node.op.keepdims:
        return None
    axes, rank = node.op.axes, len(node.x.shape)
    return (node.x, axes) if axes == tuple(range(axes[0], rank)) and node.epilogue is None else None


def _centered(value: Operand) -> tuple[Value, tuple[int, ...]] | None:
    """(x, axes) if `value` is x minus its mean over trailing axes."""
    match _args_of(value, "sub"):
        case [x, mean] if (found := _mean_of(mean)) is not None and found[0] is x:
            return found
    return None


def _squared(value: Value) -> Operand | None:
    match single_call(value):
        case ("pow", [a, 2.0], _):
            return a
        case ("mul", [a, b], _) if a is b:
            return a
    return None


def _normalized(node: Node, x: Value, op: Normalize) -> Patch:
    made = node.with_(op=op, inputs=[x, None, None], origin=origins_between([x], node))
    return Patch.replacing(node, made)


def recognize_layer_norm(node: Node, sweep: Sweep) -> Patch | str | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) over the trailing axes becomes Normalize(layer).

    So does the difference times the inverse of the square root.
    """
    why = None
    for centered, root in _quotients(node):
        if (found := _centered(centered)) is None:
            continue
        x, axes = found
        match _args_of(root, "add"):
            case [Value() as mean, float() as epsilon]:
                variance = _mean_of(mean)
            case _:
                why = "no epsilon in the square root"
                continue
        inner = None if variance is None or variance[1] != axes else _squared(variance[0])
        if inner is not None and (inner is centered or _centered(inner) == found) and x.shape == node.y.shape:
            return _normalized(node, x, Normalize("layer", epsilon=epsilon, axis=axes[0]))
    return why


def recognize_rms_norm(node: Node, sweep: Sweep) -> Patch | str | None:
    """x / sqrt(mean(x^2) + eps) over the trailing axes, or x * (1 / sqrt), becomes Normalize(rms)."""
    for x, root in _quotients(node):
        match _args_of(root, "add"):
            case [mean, float() as epsilon] if isinstance(x, Value) and (found := _mean_of(mean)) is not None:
                if _squared(found[0]) is x and x.shape == node.y.shape:
                    return _normalized(node, x, Normalize("rms", epsilon=epsilon, axis=found[1][0]))
    return None


def _quotients(node: Node) -> list[tuple[Operand, Operand]]:
    """(x, y) for each way in which `node` computes x / sqrt(y)."""
    match single_call(node.outputs[0]):
        case ("div", [a, b], _):
            pairs = [(a, _root_in(b))]
        case ("mul", [a, b], _):
            pairs = [(a, _inverse_root_in(b)), (b, _inverse_root_in(a))]
        case _:
            return []
    return [(x, root) for x, root in pairs if root is not None]


def _root_in(value: Operand) -> Operand | None:
    """The argument of the square root that `value` is."""
    return next(iter(_args_of(value, "sqrt")), None)


def _inverse_root_in(value: Operand) -> Operand | None:
    """The argument of the square root whose inverse `value` is."""
    match single_call(value):
        case ("rsqrt", [x], _):
            return x
        case ("recip", [root], _) | ("div", [1.0, root], _):
            return _root_in(root)
    return None


def recognize_attention(node: Node, sweep: Sweep) -> Patch | str | None:
    """softmax(q @ k^T * scale + masks) @ v becomes Attention, also with NaN replaced by zero after the softmax.

    Tensors have rank 3, with the heads first, 4, or more, with several batch axes.
    """
    if not isinstance(node.op, MatMul) or node.op.trans_a or node.op.trans_b or node.epilogue is not None:
        return None
    repaired = _without_nan(node.x, sweep)
    softmax = node.x.producer if repaired is None else repaired.producer
    rank = len(node.y.shape)
    if softmax is None or not isinstance(softmax.op, Softmax) or softmax.op.log or rank < 3:
        return None
    if softmax.op.axis != rank - 1 or sweep.only_use(node.x) is not node:
        return "the attention weights have other readers"
    added = Added()
    scores, scale, masks = _scores(softmax.x, sweep, softmax)
    product = scores.producer
    if product is None or not isinstance(product.op, MatMul) or product.op.trans_a or product.epilogue is not None:
        return None
    q, kt, v = product.x, product.input(1), node.input(1)
    if not (len(q.shape) == len(kt.shape) == len(v.shape) == rank) or not q.dtype.is_float:
        return None
    if q.shape[:-2] != kt.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        return "heads are broadcast"
    mask = _joined(masks, node, added)
    if masks and mask is None:
        return "the mask does not broadcast to the scores"
    k = kt
    if not product.op.trans_b:
        k = added.put(product.make_helper(Transpose((*range(rank - 2), rank - 1, rank - 2)), [kt]))
    op = Attention(scale, causal=False, softcap=0.0, blind_nan=repaired is None, nan_to_zero=repaired is not None)
    origin = origins_between([q, kt, v, *(m.value for m in masks)], node)
    if rank == 4:
        made = node.with_(op=op, inputs=[q, k, v, mask], origin=origin)
        return Patch.replacing(node, *added, made)
    q, k, v = (added.put(node.make_helper(Reshape(_of_heads(each.shape)), [each])) for each in (q, k, v))
    made = node.make_helper(op, [q, k, v, mask])
    made.origin = origin
    return Patch.replacing(node, *added, made, node.with_(op=Reshape(node.y.shape), inputs=[made.y]))


def _of_heads(shape: Shape) -> Shape:
    """[..., H, S, D] or [H, S, D] as [B, H, S, D]."""
    return (math.prod(shape[:-3]), *shape[-3:])


@dataclass(frozen=True)
class _Mask:
    """An addend of the scores, or a condition with the number that replaces scores where it is `replaced`.

    scores: the shape of the scores there; several batch axes may be one axis in the product.
    """

    value: Value
    scores: Shape
    number: float | None = None
    replaced: bool = True


def _joined(masks: list[_Mask], node: Node, added: Added) -> Value | None:
    """The sum of the masks, which broadcasts to [B, H, S, T]; None without masks, or if a mask does not broadcast."""
    found: Value | None = None
    # Masks are listed from the softmax on; a number replaces all that was added before.
    for mask in reversed(masks) if any(m.number is not None for m in masks) else masks:
        made, scores = mask.value, mask.scores
        # The sum has guarded that both sizes are equal; the scores' own is used.
        if len(made.shape) > len(scores) or not always_equal(broadcast_shape([scores, made.shape]), scores):
            return None
        if len(scores) > 4 and len(made.shape) > 3:
            lead, given = scores[:-3], (1,) * (len(scores) - len(made.shape)) + made.shape
            if not all(always_equal(d, 1) for d in given[:-3]) and not always_equal(given[:-3], lead):
                given = (*lead, *made.shape[-3:])
                made = added.put(node.make_helper(Elementwise(trace(lambda x: x, made.dtype), given), [made]))
            made = added.put(node.make_helper(Reshape(_of_heads(given)), [made]))
        if mask.number is not None:
            made = _replacing(mask, made, found, node, added)
        elif found is not None:
            made = added.put(node.make_helper(Elementwise(call("add", found.dtype, made.dtype)), [found, made]))
        found = made
    return found


def _replacing(mask: _Mask, condition: Value, found: Value | None, node: Node, added: Added) -> Value:
    """The mask's number where it replaces scores; elsewhere `found`, or 0 without it."""
    assert mask.number is not None
    dtype = node.y.dtype
    b = Builder([condition.dtype, *([] if found is None else [dtype])])
    kept: Ref = Lit(0.0, dtype) if found is None else In(1)
    chosen = (Lit(mask.number, dtype), kept) if mask.replaced else (kept, Lit(mask.number, dtype))
    expr = b.finish(b.emit("where", [In(0), *chosen]))
    return added.put(node.make_helper(Elementwise(expr), [condition, *([] if found is None else [found])]))


def _without_nan(value: Value, sweep: Sweep) -> Value | None:
    """x if `value` is `where(isnan(x), 0, x)` without other readers of x."""
    match single_call(value):
        case ("where", [condition, 0.0, Value() as x], chosen):
            asked = single_call(condition)
        case _:
            return None
    if asked is None or asked[:2] != ("isnan", [x]):
        return None
    only = sweep.only_use(asked[2].y) is chosen and x not in sweep.exposed
    return x if only and set(sweep.uses[x]) == {asked[2], chosen} else None


HIDES = -1e9
"""The largest number in place of scores that may be added to them instead: float32 keeps nothing of a score."""


def _replaced(operands: list[Operand], scores: Shape) -> tuple[Value, _Mask] | None:
    """(scores, a mask) if the operands of `where` put a number in place of scores that hides them from a softmax."""
    match operands:
        case [Value() as condition, Value() as value, float() as number]:
            mask = _Mask(condition, scores, number, replaced=False)
        case [Value() as condition, float() as number, Value() as value]:
            mask = _Mask(condition, scores, number)
        case _:
            return None
    hides = number == -math.inf or (value.dtype is DType.FLOAT32 and number <= HIDES)
    return (value, mask) if hides and always_equal(value.shape, scores) else None


def _scores(value: Value, sweep: Sweep, reader: Node) -> tuple[Value, float, list[_Mask]]:
    """(scores before scalings and masks, scale, masks), from the softmax back to the product."""
    scale, masks = 1.0, list[_Mask]()
    while sweep.only_use(value) is reader:
        inner, view = _viewed(value, sweep)
        found = single_call(inner)
        if found is None:
            break
        fn, operands, node = found
        if fn in ("mul", "div") and view is None and isinstance(operands[0], Value) and isinstance(operands[1], float):
            scale = scale * operands[1] if fn == "mul" else scale / operands[1]
            value = operands[0]
        elif fn == "add" and scale == 1.0 and all(isinstance(o, Value) for o in operands):
            a, b = (o for o in operands if isinstance(o, Value))
            if _leads_to_product(b) and not _leads_to_product(a):
                a, b = b, a
            if not always_equal(a.shape, node.y.shape):
                break
            if view is not None:
                before = a.producer
                if before is None or not isinstance(before.op, Reshape) or sweep.only_use(a) is not node:
                    break
                if not always_equal(before.x.shape, value.shape):
                    break
                a, node = before.x, before
            masks.append(_Mask(b, inner.shape))
            value = a
        elif fn == "where" and view is None and scale == 1.0 and (parts := _replaced(operands, inner.shape)):
            value, mask = parts
            masks.append(mask)
        else:
            break
        reader = node
    return value, scale, masks


def _viewed(value: Value, sweep: Sweep) -> tuple[Value, Node | None]:
    """The input of a Reshape that computes `value`, if it has the same heads and more batch axes."""
    view = value.producer
    if view is None or not isinstance(view.op, Reshape) or sweep.only_use(view.x) is not view:
        return value, None
    same = len(value.shape) == 4 < len(view.x.shape) and always_equal(view.x.shape[-3:], value.shape[-3:])
    return (view.x, view) if same else (value, None)


def _leads_to_product(value: Value) -> bool:
    """Whether a product precedes the value, through scalings, additions and views."""
    node = value.producer
    if node is None or isinstance(node.op, MatMul):
        return node is not None
    if isinstance(node.op, Reshape):
        return _leads_to_product(node.x)
    found = single_call(value)
    if found is None or found[0] not in ("mul", "div", "add", "where"):
        return False
    return any(isinstance(o, Value) and _leads_to_product(o) for o in found[1])
