"""Base of the shape-generic kernels: tier, refusals, vector widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...expr.expression import Expr, In, Lit, Tmp
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.precision import Precision
from ...ir.tensor_type import Shape
from ..kernel import Kernel
from ..launch import Args, Defines

INT_MAX = 2**31 - 1
WIDE = float("inf")


@dataclass(frozen=True)
class Build:
    """A program of a device: file, defines, generated prelude."""

    source: str
    defines: Mapping[str, Any] = field(default_factory=dict)
    prelude: str = ""


class GenericKernel(Kernel):
    """A kernel whose program is the same for all models; sizes, strides, windows and kinds are its arguments.

    It computes in float32 on row-major tensors, or moves elements of any type. It has no tuning parameters.
    """

    tier = "generic"

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        """All programs that its launches on `device` use."""
        raise NotImplementedError


def float_refusal(node: Node) -> str | None:
    """The reason why a kernel from float32 to float32 does not take `node`, or None."""
    for v in (*node.inputs, *node.outputs):
        if v is not None and storage_of(node, v) is not DType.FLOAT32:
            return f"{v!r} is {storage_of(node, v)}; the general kernel computes float32"
    if node.precision not in (Precision.FP32, Precision.WIDE):
        return f"the general kernel stores float32, not {node.precision.value}"
    return None


def storage_of(node: Node, v: Value) -> DType:
    """Element type in memory of value `v` of `node`, which may be cast for it."""
    return node.precision.override(v.dtype) or v.type.storage


def clamped_refusal(node: Node) -> str | None:
    """The reason why a float32 kernel with a clamping store does not take `node`, or None."""
    if clamp_bounds(node.epilogue) is None:
        return "of epilogues, the general kernel clamps alone"
    return float_refusal(node)


def sum_refusal(node: Node, by_column: bool) -> str | None:
    """The reason why a float32 kernel that adds one tensor and clamps does not take `node`, or None.

    by_column: whether it also adds one number for each column of y, beside what is like y and a single number.
    """
    if clamp_bounds(node.epilogue) is not None:
        return float_refusal(node)
    if clamp_bounds(node.epilogue, adds=True) is None:
        return "of epilogues, the general kernel adds a tensor and clamps"
    added = node.inputs[node.op.arity]
    if added is None or not (
        added.shape == node.y.shape
        or added.type.count == 1
        or (by_column and added.shape[-1] == added.type.count == node.y.shape[-1])
    ):
        return f"{added!r} is broadcast; the general kernel adds what is like the output"
    return float_refusal(node)


def clamped_sum(node: Node, y: Shape) -> Args:
    """The arguments of an epilogue that `sum_refusal` accepts: the added operand, if any, and the bounds."""
    clamp, added = clamp_bounds(node.epilogue), None
    if clamp is None:
        clamp, added = clamp_bounds(node.epilogue, adds=True), node.inputs[node.op.arity]
    assert clamp is not None
    args: Args = {"low": clamp[0], "high": clamp[1], "added": added or node.x, "has_added": int(added is not None)}
    return args | {"added_step": int(added is not None and added.shape == y)}


def vector_defines(device: DeviceInfo) -> Defines:
    """PACK and VECTORS of a device: a CPU's registers full, few elsewhere."""
    if not device.is_cpu:
        return {"PACK": 4, "VECTORS": 1}
    pack = max(4, min(16, device.native_float_width))
    return {"PACK": pack, "VECTORS": 4 if pack == 16 else 2}


def clamp_bounds(epilogue: Expr | None, adds: bool = False) -> tuple[float, float] | None:
    """(low, high) of an epilogue that only clamps the result between numbers; None for any other.

    adds: the epilogue first adds an operand.
    """
    low, high = -WIDE, WIDE
    if epilogue is None:
        return None if adds else (low, high)
    if len(epilogue.dtypes) != 1 + adds or any(d is not DType.FLOAT32 for d in (*epilogue.dtypes, epilogue.dtype)):
        return None
    for k, ins in enumerate(epilogue.instrs):
        before = In(0) if k == 0 else Tmp(k - 1)
        if adds and k == 0:
            if ins.fn != "add" or set(ins.args) != {In(0), In(1)}:
                return None
            continue
        if ins.fn not in ("max", "min") or before not in ins.args:
            return None
        bound = ins.args[1] if ins.args[0] == before else ins.args[0]
        if not isinstance(bound, Lit) or bound.value != bound.value:
            return None
        value = float(bound.value)
        low, high = (max(low, value), max(high, value)) if ins.fn == "max" else (min(low, value), min(high, value))
    return low, high
