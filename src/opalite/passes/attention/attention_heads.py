"""Heads of attention: batches and heads on one axis are split, and repeated keys and values are read in place.

PyTorch's nn.MultiheadAttention multiplies batches of matrices [N * H, L, D] by default, as do many exported
transformers. The merged axis has no constant stride in a tensor of N batches.
"""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...ops.attention import OPERANDS, Attention
from ...ops.data_movement import Reshape
from ...ops.elementwise import Elementwise
from ...ops.strided_view import Movement, Run, merged_runs
from ..rewrite_driver import Added, Sweep
from .attention_views import followed


def split_batch_heads(node: Node, sweep: Sweep) -> Patch | str | None:
    """Split the merged batches and heads of q, k and v: [1,N*H,L,D] becomes [N,H,L,D]."""
    op = node.op
    if not isinstance(op, Attention) or any(view is not None for view in op.views) or op.out_axes != (0, 1, 2, 3):
        return None
    q, k, v = (node.input(i) for i in range(len(OPERANDS)))
    if not always_equal(q.shape[0], 1) or not always_equal(q.shape[1], k.shape[1]):
        return None
    found = [_axes(each, may_scale=each is not v) for each in (q, k, v)]
    axes = found[0]
    if axes is None or not all(other is not None and always_equal(axes, other) for other in found):
        return "q, k and v have no common split into batches and heads"
    mask, heads = node.get(3), q.shape[1]
    added = Added()

    def parted(value: Value) -> Value:
        """[1,N*H,...] or [N*H,...] as [N,H,...]."""
        return added.put(node.make_helper(Reshape((*axes, *value.shape[-2:])), [value]))

    q, k, v = map(parted, (q, k, v))
    if mask is not None and len(mask.shape) > 2 and not always_equal(mask.shape[-3], 1):
        if not always_equal(mask.shape[-3], heads):
            return "the mask's size for heads is open"
        mask = parted(mask)
    made = node.make_helper(op, [q, k, v, mask], like=node.y.name)
    made.origin = node.origin
    return Patch.replacing(node, *added, made, node.with_(op=Reshape(node.y.shape), inputs=[made.y]))


def _axes(value: Value, *, may_scale: bool) -> tuple[int, int] | None:
    """The two axes that movements merged into the heads of `value` [1,heads,L,D]."""
    found: tuple[int, int] | None = None
    for _, moved, _ in followed(value, may_scale=may_scale, of=_spread):
        if moved is not None:
            runs = merged_runs(moved.axes[1])
            if len(runs) == 2 and all(len(merged_runs(a)) < 2 for a in (moved.axes[0], *moved.axes[2:])):
                found = runs[0][0], runs[1][0]
    return found


def _spread(shape: tuple[int, ...]) -> Movement:
    """A tensor of `shape` with gaps between axes, so that no two of them merge."""
    axes: list[tuple[Run, ...]] = []
    step = 1
    for size in reversed(shape):
        axes.append(((size, step),))
        step = step * size + 1
    return Movement(tuple(reversed(axes)))


def share_kv_heads(node: Node, sweep: Sweep) -> Patch | str | None:
    """k and v [B,G*n,T,D], expanded from [B,G,1,T,D], become [B,G,T,D], shared by n query heads each."""
    op = node.op
    if not isinstance(op, Attention) or any(view is not None for view in op.views):
        return None
    sources = [_repeated(node.input(i)) for i in (1, 2)]
    k, v = sources
    if k is None or v is None:
        return None if k is v else "only one of keys and values is repeated"
    if not always_equal(k.shape[1], v.shape[1]):
        return "keys and values are repeated differently"
    added = [node.make_helper(Reshape((s.shape[0], s.shape[1], *s.shape[3:])), [s]) for s in (k, v)]
    inputs = [node.input(0), *(a.y for a in added), *node.inputs[3:]]
    return Patch.replacing(node, *added, node.with_(inputs=inputs))


def _repeated(value: Value) -> Value | None:
    """The source [B,G,1,T,D] that is expanded to [B,G,n,T,D] and reshaped to `value`."""
    join = value.producer
    if join is None or not isinstance(join.op, Reshape):
        return None
    expand = join.x.producer
    if expand is None or not isinstance(expand.op, Elementwise) or len(expand.op.expr) or expand.epilogue is not None:
        return None
    x, wide = expand.x, expand.y.shape
    if len(x.shape) != 5 or len(wide) != 5 or not always_equal(x.shape[2], 1):
        return None
    if not always_equal((*x.shape[:2], *x.shape[3:]), (*wide[:2], *wide[3:])):
        return None
    return x if always_equal(value.shape, (wide[0], wide[1] * wide[2], *wide[3:])) else None
