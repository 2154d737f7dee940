"""Move row permutations past row-wise operators, up or down, until they meet and fuse.

A window block (Liu et al., Swin Transformer, 2021) normalizes rows, permutes them into windows, multiplies, permutes
back and adds the residual. After these passes rows stay in window order until the next block needs another one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.symbols import is_symbolic
from ...ops.data_movement import Reshape
from ...ops.elementwise import Elementwise
from ...ops.normalize import Normalize
from ...ops.operator import Array
from ...ops.permute_rows import NONE, PermuteRows, Steps, table_of
from ..rewrite_driver import Added, Sweep, value_like
from .fuse_row_permutations import does_nothing
from .rowwise_ops import along_rows, is_by_row, on_rows, readers_behind, rows_before, rows_from


def hoist_row_permutation(node: Node, sweep: Sweep) -> Patch | str | None:
    """Move a row permutation before a normalization, so that the product can fuse the normalization.

    A permutation also moves before other row-wise nodes that follow another permutation.
    """
    table = _table(node)
    if table is None:
        return None
    maker = node.x.producer
    if maker is None or not is_by_row(maker, {maker.x: maker}) or sweep.only_use(node.x) is not node:
        return None
    if len(table) * node.as_(PermuteRows).row > node.x.type.count:
        return "rows would be computed several times"
    if NONE in table:
        return "it adds rows of zeros"
    if not isinstance(maker.op, Normalize) and not _follows_movement(maker, sweep):
        return None
    x, added = maker.x, Added()
    lead = node.y.shape[:-1]
    op = node.as_(PermuteRows)
    if isinstance(maker.op, Reshape):
        steps: Steps = (("reshape", op.rows_shape(node.x.shape)), *op.steps)
        return Patch.replacing(node, node.with_(op=replace(op, steps=steps), inputs=[x]), also=[maker])
    shape = (*lead, x.shape[-1])
    op = replace(op, shape=shape, row=x.shape[-1])
    moved = node.with_(op=op, inputs=[x], outputs=[value_like(x, shape)])
    made = on_rows(maker, {x: moved.y}, lead, added)
    made.y.name = node.y.name
    return Patch.replacing(node, moved, *added, made, also=[maker])


def _follows_movement(node: Node, sweep: Sweep) -> bool:
    """Whether rows reach `node` from another PermuteRows without other readers on the way."""
    while is_by_row(node, {node.x: node}) and sweep.only_use(node.x) is node and node.x.producer is not None:
        node = node.x.producer
        if isinstance(node.op, PermuteRows):
            return True
    return False


def align_row_permutations(node: Node, sweep: Sweep) -> Patch | str | None:
    """An expression of permuted rows is computed before the permutation, if all operands have that order."""
    if not isinstance(node.op, Elementwise) or node.op.expr.uses_coords:
        return None
    reason = None
    for v in node.inputs:
        mover = None if v is None else v.producer
        if mover is None or v is None or v.shape != node.y.shape or sweep.only_use(v) is not node:
            continue
        if _table(mover) is None or not _is_permutation(_moves(mover)):
            continue
        added = Added()
        operands = [_before(other, mover, node, sweep, added) for other in node.inputs]
        if None in operands:
            reason = "an operand is not available in the order before the permutation"
            continue
        shape = mover.x.shape
        out = value_like(node.y, shape)
        made = node.with_(op=replace(node.op, shape=node.op.shape and shape), inputs=operands, outputs=[out])
        moved = mover.with_(inputs=[out], outputs=[new_value(node.y.name, node.y.type)])
        return Patch.replacing(node, *added, made, moved, also=[mover])
    return reason


def _before(v: Value | None, mover: Node, node: Node, sweep: Sweep, added: Added) -> Value | None:
    """The value that `mover`, whose output `node` reads, would map to `v`; None if there is none."""
    assert v is not None
    if v is mover.y:
        return mover.x
    if v.shape != node.y.shape:
        return along_rows(v, mover, added)
    found: Value | None = None
    maker = v.producer
    if maker is not None and _same(_table(maker), _table(mover)):
        found = maker.x
    for user in sweep.uses.get(v, ()):
        back = _table(user)
        if back is not None and user.x is v and _same(back[_moves(mover)], np.arange(len(back))):
            found = user.y
    if found is None or found.shape == mover.x.shape:
        return found
    return added.put(node.make_helper(Reshape(mover.x.shape), [found]))


def sink_row_permutation(node: Node, sweep: Sweep) -> Patch | str | None:
    """A permutation of rows that are only used row-wise until the next permutation is fused with that one."""
    table = _table(node)
    if table is None or not _is_permutation(table):
        return None
    inside = rows_from(node, sweep)
    behind = readers_behind(inside, sweep)
    if behind is None:
        return "the rows are an output of the graph"
    for v, user in behind:
        if not isinstance(user.op, PermuteRows) or user.op.row != v.shape[-1] or is_symbolic(user.op.steps):
            return f"{user.label} reads the rows in their new order"
    added = Added()
    known = rows_before(inside, node, added)
    leaving, replaced = [user for _, user in behind], dict[Value, Value]()
    for user in leaving:
        x, op = known[user.x], user.as_(PermuteRows)
        steps: Steps = (*node.as_(PermuteRows).steps, ("reshape", op.rows_shape(user.x.shape)), *op.steps)
        joined = replace(op, steps=steps)
        new = Reshape(op.shape) if does_nothing(joined, x) else joined
        replaced[user.y] = added.put(user.with_(op=new, inputs=[x]))
    return Patch([*inside.values(), *leaving], added, replaced)


def _table(node: Node) -> Array | None:
    """The row table of a PermuteRows between matrices of known size with equal rows; None for others."""
    op = node.op
    if not isinstance(op, PermuteRows) or not node.x.shape[-1:] == node.y.shape[-1:] == (op.row,):
        return None
    return table_of(op, node.x.shape)


def _moves(node: Node) -> Array:
    table = _table(node)
    assert table is not None
    return table


def _is_permutation(table: Array) -> bool:
    return bool((np.sort(table) == np.arange(len(table))).all())


def _same(a: Array | None, b: Array | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)
