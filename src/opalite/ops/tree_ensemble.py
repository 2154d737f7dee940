"""TreeEnsemble: for each row, sums of the weights of the leaves that the row reaches in all trees."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, tensor

COMPARISONS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
"""Comparison of a feature (left) with a node's threshold (right), by number in the node's flags."""

MISSING_IS_YES = 8
"""Flag bit of a node: NaN takes the yes branch."""

AGGREGATES = ("sum", "average", "min", "max")
_ROWS = 1 << 18  # rows times trees that the reference processes at once


@frozen_op
class TreeEnsemble(Op):
    """y[n, c] = sum (average over the trees, smallest, largest) of the weights that row n's leaves give to column c.

    Inputs: x[N, F] floats; limits[M], floats like x; nodes i32[M, 4] of (feature, flags, next node if yes, if no);
    roots i32[T], the first node of each tree; leaves i32[M, 2], the first of a node's weights and the one after its
    last; columns i32[W] and weights[W], floats like x. A leaf is its own next node for both outcomes. flags: number of
    the comparison (COMPARISONS) and MISSING_IS_YES. A column without weights is zero. Attributes: columns (of y),
    aggregate (one of AGGREGATES), depth (steps from a root to the deepest leaf). 16-bit floats are computed in float32.
    """

    columns: int
    aggregate: str
    depth: int

    arity = 7

    def check_shape(self, ins: Types) -> None:
        x, limits, nodes = tensor(ins, 0, "x"), tensor(ins, 1, "limits"), tensor(ins, 2, "nodes")
        roots, leaves = tensor(ins, 3, "roots"), tensor(ins, 4, "leaves")
        columns, weights = tensor(ins, 5, "columns"), tensor(ins, 6, "weights")
        need(x.rank == 2 and x.dtype.is_float, f"x must be floats of [N,F], got {x}")
        same = limits.dtype is x.dtype and weights.dtype is x.dtype
        need(same, f"limits {limits} and weights {weights} differ from x {x}")
        need(nodes.shape == (*limits.shape, 4), f"nodes must be [{limits.count},4] for limits {limits}, got {nodes}")
        need(leaves.shape == (*limits.shape, 2), f"leaves must be [{limits.count},2] for limits {limits}, got {leaves}")
        need(roots.rank == 1 and columns.shape == weights.shape, f"roots {roots}, columns {columns}, weights {weights}")
        for t in (nodes, roots, leaves, columns):
            need(t.dtype is DType.INT32, f"nodes, roots, leaves and columns must be i32, got {t}")
        need(self.aggregate in AGGREGATES, f"aggregate must be one of {', '.join(AGGREGATES)}")

    def check_contents(self, ins: Types, arrays: Arrays) -> bool:
        nodes, roots, leaves, columns = arrays[2:6]
        if nodes is None or roots is None or leaves is None or columns is None:
            raise ShapeError("the trees are no constants")
        count, features, weights = len(nodes), tensor(ins, 0, "x").shape[1], tensor(ins, 6, "weights").count
        for what, part, end in (("a next node", nodes[:, 2:], count), ("a root", roots, count)):
            need(((part >= 0) & (part < end)).all(), f"{what} lies outside of the {count} nodes")
        need(((nodes[:, 0] >= 0) & (nodes[:, 0] < features)).all(), f"a node asks for none of {features} features")
        need(((nodes[:, 1] >= 0) & (nodes[:, 1] & 7 < len(COMPARISONS))).all(), "a comparison is not known")
        need(((leaves >= 0) & (leaves <= weights)).all(), f"a leaf has more than all {weights} weights")
        need(((columns >= 0) & (columns < self.columns)).all(), f"a weight is for none of {self.columns} columns")
        need(_is_within(nodes, roots, self.depth), f"a leaf is more than {self.depth} steps away, or there is none")
        return True

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(x.dtype, (x.shape[0], self.columns))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, limits, nodes, roots, leaves, columns, weights = (np.asarray(a) for a in arrays)
        wide = compute_dtype(x.dtype)
        y = np.zeros((len(x), self.columns), wide)
        step = max(1, _ROWS // max(1, len(roots)))
        for i in range(0, len(x), step):
            reached = _walk(x[i : i + step].astype(wide), limits.astype(wide), nodes, roots, self.depth)
            y[i : i + step] = _gather(reached, leaves, columns, weights.astype(wide), self)
        return [y.astype(x.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        """Five operations and half a cache line for each step down."""
        rows, trees = tensor(ins, 0, "x").shape[0], tensor(ins, 3, "roots").count
        steps = 1.0 * rows * trees * max(1, self.depth)
        return Cost(5.0 * steps, moved_bytes(ins, outs))


def _is_within(nodes: Array, roots: Array, depth: int) -> bool:
    """Whether all leaves are at most `depth` steps from the roots; a leaf is its own next node."""
    at = np.unique(roots)
    for _ in range(depth + 1):
        at = at[(nodes[at, 2:] != at[:, None]).any(axis=1)]
        if not at.size:
            return True
        at = np.unique(nodes[at, 2:])
    return False


def _walk(x: Array, limits: Array, nodes: Array, roots: Array, depth: int) -> Array:
    """The leaf that each row reaches in each tree: [N, T]."""
    at = np.broadcast_to(roots, (len(x), len(roots)))
    rows = np.arange(len(x))[:, None]
    feature, flags, yes, no = nodes.T
    rules = np.unique(flags & 7)
    for _ in range(depth):
        value, limit, flag = x[rows, feature[at]], limits[at], flags[at]
        goes = np.isnan(value) & ((flag & MISSING_IS_YES) > 0)
        for rule in rules:
            goes |= COMPARISONS[rule](value, limit) & ((flag & 7) == rule)
        at = np.where(goes, yes[at], no[at])
    return np.asarray(at)


def _gather(reached: Array, leaves: Array, columns: Array, weights: Array, op: TreeEnsemble) -> Array:
    """Aggregated weights of the leaves `reached` [N, T]: [N, columns]."""
    kind, rows = op.aggregate, len(reached)
    start = {"min": np.inf, "max": -np.inf}.get(kind, 0.0)
    y = np.full((rows, op.columns), start, weights.dtype)
    first, end = leaves[reached, 0], leaves[reached, 1]
    add = {"min": np.minimum, "max": np.maximum}.get(kind, np.add)
    for k in range(int((end - first).max(initial=0))):
        row, tree = np.nonzero(first + k < end)
        at = first[row, tree] + k
        add.at(y, (row, columns[at]), weights[at])
    if kind == "average":
        y /= max(1, reached.shape[1])
    return np.where(y == start, 0, y).astype(weights.dtype)
