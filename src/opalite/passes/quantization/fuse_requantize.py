"""Fuse DequantizeLinear and QuantizeLinear around movements: int8 data is moved instead of floats."""

from __future__ import annotations

import numpy as np

from ...ir.dtype import DType
from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.tensor_type import TensorType
from ...ops.affine_quantization import dequantize_expr, quantize_expr
from ...ops.data_movement import Concat, Reshape, Slice, Transpose
from ...ops.elementwise import Elementwise
from ..rewrite_driver import Added, Sweep

_MOVES = (Reshape, Transpose, Slice, Concat)
_HELD = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)  # exact in a round trip through float32
_SCALES = (1e-30, 1e30)  # scales with an exact round trip


def fuse_requantize(node: Node, sweep: Sweep) -> Patch | str | None:
    """QuantizeLinear of a moved DequantizeLinear with the same scale and zero point moves the integers.

    rint((q - z) * s / s) + z is q: both roundings are within 2^-23 of a 16-bit integer. Quantizers put such pairs
    around every reshape, transpose, split and concatenation.
    """
    if not isinstance(node.op, Elementwise) or node.y.dtype not in _HELD:
        return None
    if node.op.expr != quantize_expr(_dtypes(node), node.y.dtype) or node.x.dtype is not DType.FLOAT32:
        return None
    scale, zero = node.input(1), node.get(2)
    if not _is_plain(scale) or (zero is not None and (not zero.is_const or zero.type.count != 1)):
        return None
    added = Added()
    moved = _integers(node.x, node, sweep, added)
    if moved is None:
        return None
    return Patch([node], added, {node.y: moved})


def _integers(v: Value, like: Node, sweep: Sweep, added: Added) -> Value | None:
    """The integers that dequantize to `v` with scale and zero point of `like`; movements of them are in `added`."""
    source = v.producer
    if source is None:
        return None
    if isinstance(source.op, Elementwise):
        return source.x if _reverses(source, source.op, like) else None
    if not isinstance(source.op, _MOVES) or sweep.only_use(v) is None:
        return None
    operands: list[Value | None] = []
    for each in source.inputs:
        found = None if each is None else _integers(each, like, sweep, added)
        if found is None:
            return None
        operands.append(found)
    out = new_value(v.name, TensorType(like.y.dtype, v.shape))
    return added.put(source.with_(inputs=operands, outputs=[out]))


def _reverses(source: Node, op: Elementwise, like: Node) -> bool:
    """Whether `source` dequantizes with the type, scale and zero point with which `like` quantizes."""
    if source.x.dtype is not like.y.dtype or source.x.shape != source.y.shape:
        return False
    if op.expr != dequantize_expr(_dtypes(source)):
        return False
    scale = source.input(1)
    if not _is_plain(scale) or not np.array_equal(_number(scale), _number(like.input(1))):
        return False
    zeros = [0 if z is None else _number(z) if z.is_const else None for z in (source.get(2), like.get(2))]
    return None not in zeros and bool(zeros[0] == zeros[1])


def _is_plain(scale: Value) -> bool:
    """Whether the scale is one constant positive number of ordinary size."""
    if not scale.is_const or scale.type.count != 1:
        return False
    return bool(_SCALES[0] < float(scale.array.reshape(())) < _SCALES[1])


def _number(v: Value) -> np.generic:
    found: np.generic = v.array.reshape(-1)[0]
    return found


def _dtypes(node: Node) -> tuple[DType, ...]:
    return tuple(v.dtype for v in node.inputs if v is not None)
