"""Choose the arithmetic of int8 products: integer dot products, made from dequantized operands, or floats."""

from __future__ import annotations

import math

import numpy as np

from ...expr.trace_function import Sym, trace
from ...ir.constants.lazy_array import Array
from ...ir.constants.quantized_constant import QuantizedConstant
from ...ir.device.device_family import PTX_MMA
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.place import Memory
from ...ir.precision import Precision, PrecisionPolicy
from ...ir.tensor_type import TensorType
from ...kernels.kernel import Tier
from ...layout.kernel_candidates import Answers, least_seconds
from ...ops.affine_quantization import centred, dequantize_expr
from ...ops.conv import Conv, Convolution
from ...ops.data_movement import Reshape
from ...ops.elementwise import Elementwise
from ...ops.integer_conv_matmul import BYTES, IntegerConv, IntegerMatMul
from ...ops.matmul import MatMul, MatrixProduct, matrix_dims
from ...ops.operator import Op
from ...ops.pool import Pool
from ..rewrite_driver import Added, Rule, Sweep, joined_origin

_LARGEST = 2**31 - 1
_EXACT = 2.0**24  # float32 holds every integer below


def has_int8_dot(device: DeviceInfo | None) -> bool:
    """Whether int8 products are fast on `device`: it has a 4-way dot product instruction."""
    return device is not None and not device.on_host and bool(device.dot_product)


def _multiplies_rows(device: DeviceInfo | None, node: Node, w_zero: Value | None) -> bool:
    """Whether a CPU's vector kernel takes the int8 product: rows times one constant matrix."""
    if device is None or not device.is_cpu or device.byte_dots != "fours" or not isinstance(node.op, MatrixProduct):
        return False
    constant = all(v is None or v.is_const for v in (node.input(1), w_zero))
    return constant and not node.op.trans_a and math.prod(node.input(1).shape[:-2]) == 1


def _sums_fours(device: DeviceInfo | None, tier: Tier) -> bool:
    """Whether the optimized kernels of a CPU use VNNI; generic kernels convolve floats only."""
    return device is not None and device.is_cpu and device.byte_dots == "fours" and tier == "optimized"


def _pays(device: DeviceInfo | None, made: Node, floats: Node | None, answers: Answers | None) -> bool:
    """Whether a kernel computes the int8 convolution `made`, faster than any kernel computes the float one."""
    assert device is not None
    apart = math.inf if floats is None else least_seconds(floats, device, Memory.BUFFER, answers)
    return least_seconds(made, device, Memory.BUFFER, answers) < apart


def _of_floats(node: Node, op: IntegerConv) -> Node:
    """The float convolution equivalent to `node`, for cost estimates."""
    x, w = (new_value(v.name, TensorType(DType.FLOAT32, v.shape)) for v in node.inputs[:2] if v is not None)
    w.data = np.broadcast_to(np.float32(0), w.shape)
    y = new_value(node.y.name, TensorType(DType.FLOAT32, node.y.shape))
    return node.with_(op=Conv(op.strides, op.pads, op.dilations, op.group), inputs=[x, w], outputs=[y], epilogue=None)


def to_integer_product(
    device: DeviceInfo | None,
    policy: PrecisionPolicy | None = None,
    tier: Tier = "optimized",
    answers: Answers | None = None,
) -> Rule:
    """Rule: a float product of dequantized operands becomes an integer product with a scaled result.

    The second operand is a constant with one scale, or one for each output channel; the first has one constant scale.
    Sums must fit in int32. Products stay in floats where tensor cores multiply halves faster: on an H200 1.3 to 4 times
    as fast as its dot products. On CPUs a convolution becomes int8 if the cost model expects less time.
    """
    halves = policy is not None and policy.precision in (Precision.FP16, Precision.FP16_FAST)
    units = device is not None and PTX_MMA in device.quirks
    pays = has_int8_dot(device) and not (halves and units)

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, Conv | MatMul) or node.y.dtype is not DType.FLOAT32:
            return None
        sums = isinstance(node.op, Conv) and _sums_fours(device, tier)
        if not pays and not sums and not _multiplies_rows(device, node, None):
            return None
        source, w = node.x.producer, node.input(1)
        if source is None or w.quantized is None or w.quantized.codes.dtype not in (np.int8, np.uint8):
            return None
        if not isinstance(source.op, Elementwise) or source.x.dtype not in BYTES or source.x.shape != node.x.shape:
            return None
        scale = source.get(1)
        if source.op.expr != dequantize_expr(tuple(v.dtype for v in source.inputs if v is not None)):
            return None
        if scale is None or not scale.is_const or any(v is not None and v.type.count != 1 for v in source.inputs[1:]):
            return "the first operand has several scales, or none that is constant"
        if pays and isinstance(node.op, Conv) and not _kept_conv(node, node.op):
            return "grouped convolutions have float kernels only"
        axis = _channel_axis(node)
        by_channel = _by_channel(w.quantized, axis)
        if by_channel is None:
            return "the constant's scales are not along the output channels"
        w_scale, w_zero = by_channel
        room = _LARGEST - _largest_sum(w.quantized.q, w_zero, axis)
        if room < 0:
            return "sums of integers may exceed 32 bits"
        patch = _as_integers(node, node.op, source, scale.array.reshape(()), w_scale, w_zero, room)
        if not pays and isinstance(node.op, Conv):
            made = next(n for n in patch.add if isinstance(n.op, IntegerConv))
            if not _pays(device, made, node, answers):
                return "float products are estimated to be faster"
        return patch

    return rule


def _kept_conv(node: Node, op: Convolution) -> bool:
    """Whether int8 kernels take the convolution: it has one group, or one for each channel."""
    return op.group == 1 or op.group == node.x.shape[1] == node.y.shape[1]


def _channel_axis(node: Node) -> int:
    """Axis of the second operand for output channels, counted from the end for products."""
    if isinstance(node.op, Convolution):
        return 0
    return -2 if node.as_(MatrixProduct).trans_b else -1


def _by_channel(levels: QuantizedConstant, axis: int) -> tuple[Array, Array | None] | None:
    """(scale, zero point) as scalars or vectors along `axis` of the integers; None for other shapes."""
    if levels.block or levels.turned or levels.table:
        return None
    rank = len(levels.codes.shape)
    found: list[Array | None] = []
    for part in (levels.scales, levels.zero):
        if part is None or part.size == 1:
            found.append(None if part is None else part.reshape(()))
            continue
        shape = (1,) * (rank - part.ndim) + part.shape
        if any(d != 1 and i != axis % rank for i, d in enumerate(shape)):
            return None
        found.append(part.reshape(-1))
    scale, zero = found
    return None if scale is None else (scale, zero)


def _largest_sum(q: Array, zero: Array | None, axis: int) -> float:
    """Bound of every partial sum in kernels, with and without the zero point of x."""
    wide = np.moveaxis(q.astype(np.float64), axis, 0)
    wide = wide.reshape(wide.shape[0], -1)
    own = np.abs(wide).sum(1).max(initial=0.0)
    if zero is not None:
        own = max(own, np.abs(wide - zero.reshape(-1, 1)).sum(1).max(initial=0.0))
    return float(own * 255)


def _as_integers(
    node: Node, op: Conv | MatMul, source: Node, x_scale: Array, w_scale: Array, w_zero: Array | None, room: float
) -> Patch:
    """Patch to the integer product. room: the largest magnitude that an integer bias may add without overflow."""
    w, levels = node.input(1), node.input(1).quantized
    assert levels is not None
    factor = np.float32(x_scale) * w_scale.astype(np.float32)
    bias = node.get(2) if isinstance(op, Conv) else None
    whole = _whole_bias(bias, factor)
    if whole is not None and room < np.abs(whole.astype(np.int64)).max(initial=0):
        whole = None
    inputs: list[Value | None] = [source.x, _constant(w, levels.q)]
    integer: Op
    if isinstance(op, Conv):
        inputs.append(None if whole is None or bias is None else _constant(bias, whole))
        integer = IntegerConv(op.strides, op.pads, op.dilations, op.group)
    else:
        integer = IntegerMatMul(op.trans_a, op.trans_b)
    inputs += [source.get(2), None if w_zero is None else _constant(w, w_zero)]
    acc = new_value(node.y.name, integer.infer_shape([None if v is None else v.type for v in inputs])[0])
    made = node.with_(op=integer, inputs=inputs, outputs=[acc], origin=joined_origin(source, node))
    spread = (-1, *(1,) * (len(node.y.shape) - 2)) if isinstance(op, Conv) else (-1,)
    operands = [acc, _constant(w, factor.reshape(spread) if factor.ndim else factor)]
    added = Added()
    if bias is not None and whole is None:
        operands.append(_reshaped(bias, (bias.type.count, *spread[1:]), node, added))

    def scaled(a: Sym, f: Sym, *b: Sym) -> Sym:
        y = a.cast(DType.FLOAT32) * f
        return y + b[0] if b else y

    expr = trace(scaled, *(v.dtype for v in operands))
    tail = node.make_helper(Elementwise(expr), operands, like=node.y.name)
    return Patch.replacing(node, *added, made, tail)


def _whole_bias(bias: Value | None, factor: Array) -> Array | None:
    """The integer form of a bias with the scale of the sums, as quantizers make it; None for any other."""
    levels = None if bias is None else bias.quantized
    if levels is None or levels.codes.dtype != np.int32 or len(levels.codes.shape) != 1:
        return None
    if levels.zero is not None and levels.zero.any():
        return None
    scales = levels.scales.astype(np.float32)
    if scales.size not in (1, levels.q.size) or not np.allclose(scales, factor, rtol=1e-5, atol=0):
        return None
    return levels.q


def _constant(like: Value, data: Array) -> Value:
    made = new_value(like.name, TensorType(DType.of(data), data.shape))
    made.data = np.ascontiguousarray(data).reshape(data.shape)
    return made


def widen_integer_product(device: DeviceInfo | None, tier: Tier = "optimized", answers: Answers | None = None) -> Rule:
    """Rule: int8 products without a kernel are computed in floats if sums stay exact, else in int32.

    Zero points are subtracted first. Floats hold integers below 2^24 exactly and multiply faster: a vector of int32
    takes an x86 processor three times as long.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if isinstance(op, Pool) and not has_int8_dot(device):
            return _pooled_floats(node, op)
        if not isinstance(op, IntegerConv | IntegerMatMul):
            return None
        first = op.arity - 2  # number of the first operand's zero point
        x_zero, w_zero = node.get(first), node.get(first + 1)
        if has_int8_dot(device):
            constant = all(v is None or v.is_const for v in (node.input(1), w_zero, *node.inputs[2:first]))
            if isinstance(op, IntegerMatMul) or (constant and _kept_conv(node, op) and len(node.x.shape) <= 5):
                return _without_zero(node, first + 1)
        if _multiplies_rows(device, node, w_zero):
            return _without_zero(node, first + 1)
        exact = _largest_product(node, first) < _EXACT
        if isinstance(op, IntegerConv) and _sums_fours(device, tier):
            patch = _without_zero(node, first + 1)
            if patch is not None or _pays(device, node, _of_floats(node, op) if exact else None, answers):
                return patch
        dtype = DType.FLOAT32 if exact else DType.INT32
        added = Added()
        wide: list[Value | None] = []
        for v, zero in ((node.x, x_zero), (node.input(1), w_zero)):
            operands = [v] if zero is None else [v, _along_channels(zero, node, added)]
            expr = trace(lambda q, *z: centred(q, z[0] if z else None).cast(dtype), *(o.dtype for o in operands))
            wide.append(added.put(node.make_helper(Elementwise(expr), operands)))
        for bias in node.inputs[2:first]:
            if exact and bias is not None and bias.is_const:
                bias = _constant(bias, bias.array.astype(np.float32))
            wide.append(bias)
        widened: Op
        if isinstance(op, IntegerConv):
            widened = Conv(op.strides, op.pads, op.dilations, op.group, exact)
        else:
            widened = MatMul(op.trans_a, op.trans_b, exact)
        if not exact:
            return Patch.replacing(node, *added, node.with_(op=widened, inputs=wide))
        sums = new_value(node.y.name, TensorType(DType.FLOAT32, node.y.shape))
        added.append(node.with_(op=widened, inputs=wide, outputs=[sums]))
        added.append(node.make_helper(Elementwise(trace(lambda v: v.cast(DType.INT32), DType.FLOAT32)), [sums]))
        return Patch.replacing(node, *added)

    return rule


def _pooled_floats(node: Node, op: Pool) -> Patch | None:
    """A maximum of int8 as one of floats, so that neighbours can be computed in floats."""
    if op.kind != "max" or node.x.dtype not in BYTES or len(node.outputs) > 1:
        return None
    wide = node.make_helper(Elementwise(trace(lambda v: v.cast(DType.FLOAT32), node.x.dtype)), [node.x])
    most = new_value(node.y.name, TensorType(DType.FLOAT32, node.y.shape))
    pooled = node.with_(inputs=[wide.y], outputs=[most])
    bytes_ = node.make_helper(Elementwise(trace(lambda v: v.typed("saturate", node.y.dtype), DType.FLOAT32)), [most])
    return Patch.replacing(node, wide, pooled, bytes_)


def _largest_product(node: Node, first: int) -> float:
    """Bound of every sum of products of integers minus zero points, bias included; inf if unknown."""
    x, w, x_zero, w_zero = node.x, node.input(1), node.get(first), node.get(first + 1)
    reach = 255.0
    if x_zero is None or x_zero.is_const:
        ends, zero = np.iinfo(x.dtype.np), 0 if x_zero is None else int(x_zero.array.reshape(-1)[0])
        reach = float(max(abs(ends.min - zero), abs(ends.max - zero)))
    axis = _channel_axis(node) % len(w.shape)
    is_conv = isinstance(node.op, IntegerConv)
    trans_b = isinstance(node.op, IntegerMatMul) and node.op.trans_b
    if not w.is_const or (w_zero is not None and not w_zero.is_const):
        terms = math.prod(w.shape[1:]) if is_conv else matrix_dims(w.shape, trans_b)[0]
        largest = 255.0 * terms * reach
    else:
        own = w.array.astype(np.float64)
        if w_zero is not None:
            own = own - w_zero.array.astype(np.float64).reshape([-1 if i == axis else 1 for i in range(own.ndim)])
        summed = tuple(range(1, own.ndim)) if is_conv else -1 if trans_b else -2
        largest = float(np.abs(own).sum(summed).max(initial=0.0)) * reach
    for bias in node.inputs[2:first]:
        if bias is not None:
            largest += float(np.abs(bias.array.astype(np.float64)).max(initial=0.0)) if bias.is_const else np.inf
    return largest


def _along_channels(zero: Value, node: Node, added: Added) -> Value:
    """A zero point reshaped to broadcast against its operand; a vector is along output channels."""
    if zero.type.count == 1:
        return zero
    rank = len(node.input(1).shape)
    shape = (zero.type.count, *(1,) * (rank - 1 - _channel_axis(node) % rank))
    return _reshaped(zero, shape, node, added)


def _reshaped(v: Value, shape: tuple[int, ...], node: Node, added: Added) -> Value:
    return v if v.shape == shape else added.put(node.make_helper(Reshape(shape), [v]))


def _without_zero(node: Node, at: int) -> Patch | None:
    """Patch: the constant operand minus its zero points (input `at`), if that fits in 8 bits."""
    w, zero = node.input(1), node.get(at)
    if zero is None or not w.is_const or not zero.is_const:
        return None
    axis, rank = _channel_axis(node) % len(w.shape), len(w.shape)
    along = tuple(-1 if i == axis else 1 for i in range(rank))
    zeros = zero.array
    less = w.array.astype(np.int32) - (zeros.reshape(along) if zeros.size > 1 else int(zeros.reshape(())))
    low, high = int(less.min(initial=0)), int(less.max(initial=0))
    held = np.int8 if low >= -128 and high <= 127 else np.uint8 if low >= 0 and high <= 255 else None
    if held is None:
        return None
    inputs = list(node.inputs)
    inputs[1], inputs[at] = _constant(w, less.astype(held)), None
    return Patch.replacing(node, node.with_(inputs=inputs))
