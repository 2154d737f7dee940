"""PermuteRows: copies rows from the positions in a table."""

from __future__ import annotations

import math

import numpy as np

from ...ops.permute_rows import PermuteRows, moved_shape, table_of
from ..codegen.vector_types import Vec
from ..kernel import Kernel, Params, Problem, register
from ..launch import ELEMENT, Args, Launch, PerShapeTable, Table, ceil_div
from .strided_copy import accesses

_WORDS = ((16, Vec("uint", 4)), (8, Vec("uint", 2)), (4, Vec("uint", 1)), (2, Vec("ushort", 1)), (1, Vec("uchar", 1)))
"""Types by their size in bytes; rows are aligned to the first that divides them."""


@register
class PermuteRowsTable(Kernel):
    """A GPU work-item copies one word of a row, a CPU work-item several rows."""

    op = "PermuteRows"
    space = {"EACH": (1, 4, 16, 64)}
    untuned = {"EACH": 16}, {"EACH": 1}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        row, size, count = node.as_(PermuteRows).row, node.x.type.storage.size, node.y.type.count
        rows = count // row
        if p.device.is_cpu:
            word, columns, vec = Vec(ELEMENT[size], 1), row, min(16, 64 // size)
            while vec > row:
                vec //= 2
            load, store = accesses(size, vec)
            zeros, span = f"({Vec(word.base, vec)})(0)", row
        else:
            bytes_, word = next(w for w in _WORDS if row * size % w[0] == 0)
            columns, vec, span = row * size // bytes_, 1, 1
            load, store, zeros = "(*(p))", "(*(p) = (v))", f"({word})(0)"
        each = params["EACH"]
        defines = {"T": word, "VEC": vec, "SPAN": span, "EACH": each}
        prelude = f"#define VLOADV(p) {load}\n#define VSTOREV(v, p) {store}\n#define ZEROS {zeros}\n"
        args: Args = {"x": node.x, "rows": _table(p), "y": node.y, "columns": columns, "count": rows}
        return [Launch("move_rows", args, (ceil_div(columns, span), ceil_div(rows, each)), None, defines, prelude)]


def _table(p: Problem) -> Table:
    op, shape = p.node.as_(PermuteRows), p.node.x.shape
    table = table_of(op, shape)
    if table is not None:
        return table
    given = op.rows_shape(shape), op.steps
    return PerShapeTable("row_table", given, math.prod(moved_shape(*given)), np.dtype(np.int32))
