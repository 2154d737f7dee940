"""Convolutions channels last: depthwise ones, and those of adjacent windows, which are products of patches.

Networks such as ConvNeXt (Liu et al., 2022) and SegFormer (Xie et al., 2021) transpose images around each depthwise
convolution, because their products and normalizations run along channels.
"""

from __future__ import annotations

from ...expr.parse import parse_expr
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.symbols import is_symbolic
from ...ops.conv import Conv, DepthwiseNhwc, neutral_zeros
from ...ops.data_movement import Reshape, Transpose
from ...ops.elementwise import Elementwise
from ...ops.matmul import MatMul
from ..fusion.fold_into_conv import constant_like
from ..rewrite_driver import Added, value_like
from .axis_orders import Order, Reordered

_WIDEST = 16  # widest depthwise filter, in columns
_LAST: Order = (0, 2, 3, 1)


def reorder_conv(node: Node, order: Order) -> Reordered | None:
    """A convolution that `conv_last` computes channels last, as `axis_orders.reorder`; None for others."""
    if not isinstance(node.op, Conv) or order != _LAST or node.epilogue is not None:
        return None
    dtype = node.x.dtype
    if not dtype.is_float or dtype is DType.FLOAT64 or not (_is_depthwise(node) or is_patches(node)):
        return None
    return Reordered(node.op, (_LAST, *(None,) * (len(node.inputs) - 1)), _LAST)


def _is_depthwise(node: Node) -> bool:
    op, w = node.as_(Conv), node.input(1)
    if len(w.shape) != 4 or not w.is_const or any(p < 0 for p in op.pads):
        return False
    bias = node.get(2)
    wide = (w.shape[3] - 1) * op.dilations[1] + 1
    same = not is_symbolic(node.x.shape[1]) and op.group == w.shape[0] == node.x.shape[1] and op.group > 1
    fits = same and wide <= _WIDEST and (bias is None or bias.is_const) and not op.exact
    return fits and neutral_zeros(w)  # reads the contents


def is_patches(node: Node) -> bool:
    """Whether windows tile the input without overlap, so that the convolution is a product of patches."""
    op, w, x = node.as_(Conv), node.input(1), node.x.shape
    if len(w.shape) != 4 or not w.is_const or op.group != 1 or any(op.pads) or op.strides != w.shape[2:]:
        return False
    bias = node.get(2)
    if is_symbolic(x) or any(n % k for n, k in zip(x[2:], w.shape[2:], strict=True)):
        return False
    return op.dilations == (1, 1) and (bias is None or bias.is_const) and not op.exact


def transposes_patches(node: Node) -> bool:
    """Whether `conv_last` transposes the input, to make rows of patches."""
    return isinstance(node.op, Conv) and not _is_depthwise(node) and node.op.strides != (1, 1)


def conv_last(node: Node, x: Value, out: Value, added: Added) -> Node:
    """The convolution `node` of `x` [N,H,W,C] with the output `out`, channels last; its helpers are in `added`."""
    if _is_depthwise(node):
        conv = node.as_(Conv)
        rows = DepthwiseNhwc(conv.strides, conv.pads, conv.dilations)
        return node.with_(op=rows, inputs=[x, *node.inputs[1:]], outputs=[out])
    w = node.input(1)
    m, c, kh, kw = w.shape
    n, h, wide, _ = out.shape
    if (kh, kw) != (1, 1):
        apart = added.put(node.make_helper(Reshape((n, h, kh, wide, kw, c)), [x]))
        together = added.put(node.make_helper(Transpose((0, 1, 3, 2, 4, 5)), [apart]))
        x = added.put(node.make_helper(Reshape((n, h, wide, kh * kw * c)), [together]))
    matrix = constant_like(w, w.array.transpose(2, 3, 1, 0).reshape(kh * kw * c, m))
    return product_with_bias(node, x, matrix, node.with_(outputs=[out]), added)


def product_with_bias(conv: Node, rows: Value, matrix: Value, last: Node, added: Added) -> Node:
    """`last` computing the product of the rows of patches and `matrix`, plus the bias of `conv`."""
    product, bias = MatMul(trans_a=False, trans_b=False), conv.get(2)
    if bias is None:
        return last.with_(op=product, inputs=[rows, matrix], outputs=last.outputs)
    inner = value_like(conv.y, last.y.shape)
    added.append(conv.with_(op=product, inputs=[rows, matrix], outputs=[inner]))
    add = Elementwise(parse_expr("add($0, $1)", [conv.y.dtype] * 2))
    return last.with_(op=add, inputs=[inner, bias], outputs=last.outputs)
