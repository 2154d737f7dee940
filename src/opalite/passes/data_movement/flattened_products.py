"""Products of flattened tensors with constant weights: the weights are permuted in place of the tensor."""

from __future__ import annotations

import math

from ...ir.graph import Node, Value
from ...ir.symbols import always_equal, is_symbolic
from ...ops.data_movement import Reshape
from ...ops.integer_conv_matmul import IntegerMatMul
from ...ops.matmul import MatMul, MatrixProduct
from ..fusion.fold_into_conv import constant_like
from ..rewrite_driver import Sweep
from .axis_orders import Order, unchanged

_LARGEST = 1 << 22  # elements of weights that are read and permuted for one Transpose less


def flattened_product(node: Node, order: Order, sweep: Sweep) -> Node | None:
    """The only reader of the Reshape `node`, a product that can read the flattened tensor in `order`; None for others.

    The Reshape merges the last axes of its input and leaves the first ones alone.
    """
    product = sweep.only_use(node.y) if isinstance(node.op, Reshape) else None
    if product is None or not isinstance(product.op, MatMul | IntegerMatMul) or product.x is not node.y:
        return None
    x, y, w = node.x.shape, node.y.shape, product.input(1)
    lead = len(y) - 1
    if is_symbolic(x[lead:]) or not always_equal(x[:lead], y[:-1]) or order[:lead] != unchanged(lead):
        return None
    if product.op.trans_a or not w.is_const or len(w.shape) != 2 or w.quantized is not None:
        return None
    return product if w.type.count <= _LARGEST else None


def permuted_weights(node: Node, order: Order, product: Node) -> Value:
    """The weights of `product` for the input of the Reshape `node` flattened in `order`."""
    lead, w = len(node.y.shape) - 1, product.input(1)
    rows, axis = node.x.shape[lead:], 1 if product.as_(MatrixProduct).trans_b else 0
    columns = w.array if axis == 0 else w.array.T
    apart = columns.reshape(*rows, columns.shape[1]).transpose(*(a - lead for a in order[lead:]), len(rows))
    joined = apart.reshape(math.prod(rows), columns.shape[1])
    return constant_like(w, joined if axis == 0 else joined.T)
