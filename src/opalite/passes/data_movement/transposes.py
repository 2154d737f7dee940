"""Fuse transposes with reshapes between them."""

from __future__ import annotations

import math

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import is_symbolic
from ...ops.data_movement import Reshape, Transpose
from ...ops.strided_view import Movement, Run, merged_runs
from ..rewrite_driver import Sweep, joined_origin

_LONGEST = 16  # longest chain of movements


def fuse_transposes(node: Node, sweep: Sweep) -> Patch | str | None:
    """Two or more Transposes of one source become one Transpose of split axes."""
    if not isinstance(node.op, Transpose):
        return None
    chain = [node]
    found: tuple[list[Node], list[Run]] | None = None
    while len(chain) < _LONGEST:
        v = chain[-1].x
        before = v.producer
        if before is None or not isinstance(before.op, Transpose | Reshape) or sweep.only_use(v) is not chain[-1]:
            break
        chain.append(before)
        if isinstance(before.op, Transpose):
            if is_symbolic([n.x.shape for n in chain]):
                return "its sizes are open"
            runs = _runs(before.x, chain)
            if runs is not None:
                found = list(chain), runs
    if found is None:
        return None
    chain, runs = found
    order = sorted(range(len(runs)), key=lambda i: -runs[i][1])  # of x's axes
    shape = tuple(runs[i][0] for i in order)
    perm = tuple(sorted(range(len(order)), key=order.__getitem__))
    apart = node.make_helper(Reshape(shape), [chain[-1].x])
    turned = node.with_(op=Transpose(perm), inputs=[apart.y], outputs=[], origin=joined_origin(*reversed(chain)))
    turned.outputs = [node.make_helper(Transpose(perm), [apart.y], like=node.y.name).y]
    turned.y.producer = turned
    whole = node.make_helper(Reshape(node.y.shape), [turned.y])
    return Patch.replacing(node, apart, turned, whole, also=chain[1:])


def _runs(x: Value, chain: list[Node]) -> list[Run] | None:
    """Lengths and strides in `x` of the split axes after `chain`; None if axes cannot be split."""
    if 0 in x.shape:
        return None
    moved: Movement | None = Movement.of(x.shape)
    for node in reversed(chain):
        if moved is None:
            return None
        moved = moved.transpose(node.op.perm) if isinstance(node.op, Transpose) else moved.reshape(node.y.shape)
    if moved is None:
        return None
    runs = list(merged_runs([run for axis in moved.axes for run in axis]))
    return runs if math.prod(n for n, _ in runs) == x.type.count else None
