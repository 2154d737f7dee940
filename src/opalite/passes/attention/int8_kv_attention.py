"""Attention of few queries reads int8 KV caches directly, without dequantized copies."""

from __future__ import annotations

from dataclasses import replace

from ...ir.constants.int8_rows import TAIL
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.place import Memory
from ...ir.symbols import always_equal
from ...layout.kernel_candidates import find_options
from ...ops.append import DequantizeRows
from ...ops.attention import Attention
from ...ops.data_movement import Reshape, Slice
from ..rewrite_driver import Added, Rule, Sweep
from .recognize_norm_attention import single_call


def read_int8_cache(device: DeviceInfo | None) -> Rule:
    """Rule: keys and values from DequantizeRows, or cast from int8, are read as int8 if a kernel supports it."""

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if device is None or not isinstance(op, Attention) or any(view is not None for view in op.views):
            return None
        added = Added()
        found = [_bytes(node, node.input(i), added) for i in (1, 2)]
        kinds = {None if f is None else f[1] for f in found}
        if len(kinds) > 1 or None in kinds:
            return None
        (scaled,) = kinds
        k, v = (f[0] for f in found if f is not None)
        made = node.with_(op=replace(op, scaled=bool(scaled)), inputs=[node.x, k, v, *node.inputs[3:]])
        options, refusals = find_options(made, device, Memory.BUFFER, timed=False)
        if not options:
            return next(iter(refusals.values()), "no kernel reads int8 keys and values")
        return Patch.replacing(node, *added, made)

    return rule


def _bytes(node: Node, value: Value, added: Added) -> tuple[Value, bool] | None:
    """(int8 source of `value`, recomputed by nodes in `added`; whether each row has a scale)."""
    found, moves = _source(value)
    maker = found.producer
    if maker is not None and isinstance(maker.op, DequantizeRows):
        x, op = maker.x, maker.op
        cut = (*x.shape[: op.axis], op.size, *x.shape[op.axis + 1 :])
        moves = [Slice((0,) * len(cut), (1,) * len(cut), cut), *(_longer(m) for m in moves)]
    else:
        match single_call(found):
            case ("cast", [Value(dtype=DType.INT8) as x], _) if value.dtype is not DType.FLOAT64:
                if not always_equal(x.shape, found.shape):
                    return None
            case _:
                return None
    for each in moves:
        x = added.put(node.make_helper(each, [x]))
    return x, maker is not None and isinstance(maker.op, DequantizeRows)


def _source(value: Value) -> tuple[Value, list[Reshape | Slice]]:
    """The source of `value` before movements of whole rows, and these movements."""
    moves: list[Reshape | Slice] = []
    while value.producer is not None and isinstance(value.producer.op, Reshape | Slice):
        op, x = value.producer.op, value.producer.x
        whole = isinstance(op, Reshape) or (op.starts[-1] == 0 and op.steps[-1] == 1)
        if not whole or not x.shape or not value.shape or not always_equal(x.shape[-1], value.shape[-1]):
            break
        moves.insert(0, op)
        value = x
    return value, moves


def _longer(op: Reshape | Slice) -> Reshape | Slice:
    """The same operator on rows with scales."""
    if isinstance(op, Reshape):
        return Reshape((*op.shape[:-1], op.shape[-1] + TAIL))
    return replace(op, sizes=(*op.sizes[:-1], op.sizes[-1] + TAIL))
