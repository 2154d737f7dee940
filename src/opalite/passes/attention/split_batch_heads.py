"""Split a merged axis of batches and heads, [N * H, L, D], into two, so that attention can read strided views.

PyTorch's nn.MultiheadAttention multiplies such batches of matrices by default, as do many exported transformers. The
merged axis has no constant stride in a tensor of N batches.
"""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...ops.attention import OPERANDS, Attention
from ...ops.data_movement import Reshape
from ...ops.strided_view import Movement, Run, merged_runs
from ..rewrite_driver import Sweep
from .attention_strided_views import followed


def split_batch_heads(node: Node, sweep: Sweep) -> Patch | str | None:
    """q, k and v [1,N*H,L,D], each with N batches and H heads merged, become [N,H,L,D]."""
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
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    added: list[Node] = []
    parted = [_parted(each, axes, node, added) for each in (q, k, v)]
    if mask is not None and len(mask.shape) > 2 and not always_equal(mask.shape[-3], 1):
        if not always_equal(mask.shape[-3], q.shape[1]):
            return "the mask's size for heads is open"
        mask = _parted(mask, axes, node, added)
    made = node.make_helper(op, [*parted, mask], like=node.y.name)
    made.origin = node.origin
    return Patch.replacing(node, *added, made, node.with_(op=Reshape(node.y.shape), inputs=[made.y]))


def _parted(value: Value, axes: tuple[int, int], node: Node, added: list[Node]) -> Value:
    """[1,N*H,...] or [N*H,...] as [N,H,...]."""
    added.append(node.make_helper(Reshape((*axes, *value.shape[-2:])), [value]))
    return added[-1].y


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
