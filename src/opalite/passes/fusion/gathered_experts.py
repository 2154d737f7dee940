"""Products with gathered matrices of a constant: experts of a mixture as newer exporters write them."""

from __future__ import annotations

import numpy as np

from ...ir.constants.lazy_array import Array, LazyArray, reshaped
from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...ir.tensor_type import TensorType
from ...ops.data_movement import Reshape
from ...ops.expert_matmul import ExpertMatMul
from ...ops.gather import Gather, GatherND
from ...ops.matmul import MatMul
from ...ops.quantized_matmul import FLOATS
from ..rewrite_driver import Added, Sweep


def multiply_picked_matrices(node: Node, sweep: Sweep) -> Patch | str | None:
    """Replace Gather(w[E,R,K], picks[n])[n,R,K] @ x[n,K,1], or x[n,1,K] @ a gathered [n,K,R], by ExpertMatMul.

    A gathered matrix for each row would take as much memory as all rows' experts; a prompt of 512 tokens that picks 8
    experts of 1,024 x 512 gathered 8 GB.
    """
    if not isinstance(node.op, MatMul) or node.epilogue is not None or node.y.dtype not in FLOATS:
        return None
    for side in (0, 1):
        gather = node.input(side).producer
        if gather is None or not isinstance(gather.op, Gather | GatherND) or sweep.only_use(gather.y) is not node:
            continue
        table, picks, rows = gather.x, _picks(gather), node.input(1 - side)
        if picks is None or not table.is_const or len(table.shape) != 3 or table.quantized is not None:
            continue
        if len(rows.shape) != 3 or not always_equal(rows.shape[0], picks.shape[0]):
            continue
        swapped, others = ((node.op.trans_a, node.op.trans_b), (node.op.trans_b, node.op.trans_a))[side]
        inner = 1 if (side == 0) != others else 2  # axis of x that is multiplied
        if rows.shape[3 - inner] != 1:
            return "several rows share a gathered matrix"
        by_rows = swapped == (side == 1)  # [E, rows, columns] with the summed axis last
        experts, (count, columns) = table.shape[0], table.shape[1:] if by_rows else table.shape[:0:-1]
        weights = _stacked(table, by_rows)
        added = Added()
        n = picks.shape[0]
        x = added.put(node.make_helper(Reshape((n, columns)), [rows]))
        numbers = added.put(node.make_helper(Reshape((n, 1)), [picks]))
        y = added.put(node.make_helper(ExpertMatMul(experts), [x, numbers, weights], node.y.name))
        made = node.with_(op=Reshape(node.y.shape), inputs=[y])
        assert y.shape == (n, 1, count)
        return Patch.replacing(node, *added, made, also=[gather])
    return None


def _picks(gather: Node) -> Value | None:
    """Return the numbers of matrices that a node gathers, one for each row; None for other gathers."""
    picks = gather.input(1)
    if isinstance(gather.op, Gather):
        return picks if gather.op.axis == 0 and len(picks.shape) == 1 else None
    fits = gather.as_(GatherND).batch_dims == 0 and len(picks.shape) == 2 and picks.shape[1] == 1
    return picks if fits else None


def _stacked(table: Value, by_rows: bool) -> Value:
    """Return matrices [E,R,K], or [E,K,R] if not by_rows, as [E*R,K], without loading them."""
    held = table.lazy_data
    assert held is not None
    experts, rows, columns = table.shape if by_rows else (table.shape[0], *table.shape[:0:-1])
    shape = (experts * rows, columns)
    data: Array | LazyArray
    if by_rows:
        data = reshaped(held, shape) if isinstance(held, LazyArray) else held.reshape(shape)
    elif isinstance(held, LazyArray):
        whole = held

        def part(first: int, last: int) -> Array:
            start = first // rows
            found = whole.read_rows(start, -(-last // rows)).transpose(0, 2, 1).reshape(-1, columns)
            return np.ascontiguousarray(found[first - start * rows : last - start * rows])

        key = ("picked", held.key)
        data = LazyArray(held.dtype, shape, lambda: part(0, shape[0]), load_rows=part, key=key)
    else:
        data = np.ascontiguousarray(held.transpose(0, 2, 1)).reshape(shape)
    made = new_value(table.name, TensorType(table.dtype, shape))
    made.data = data  # type: ignore[assignment]
    return made
