"""Normalize on row-major tensors: the elements of one statistic form a row, whatever the kind."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...ir.device.device_family import PTX_MMA
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import FLAT
from ...ir.symbols import may_have_remainder
from ...ops.normalize import TRAILING, Normalize
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, operand_layouts, rows_epilogue
from ..kernel import Binding, Bindings, Params, Problem, register
from ..launch import STORAGE, Arg, Args, Array, Launch, Weight, ceil_div
from ..reduce.work_group_rows import ROW_SPACE, RowKernel, row_group, row_prelude, row_width

VECTOR = 4  # elements that a GPU's work-item takes at once
MOST_HELD = 4  # vectors of a row that a work-item keeps in registers, where they hold all of it
NONE, BY_SEGMENT, BY_COLUMN = 0, 1, 2


@dataclass(frozen=True)
class RowView:
    """x as [rows, segments * run]: statistics are per row; by-channel kinds have one scale per segment.

    Rows r and r + period share scale and bias.
    """

    rows: int
    segments: int
    run: int
    period: int

    @classmethod
    def of(cls, node: Node) -> RowView:
        """The view of a Normalize node's x."""
        shape, kind = node.x.shape, node.as_(Normalize).kind
        if kind in TRAILING:
            axis = node.as_(Normalize).axis
            return cls(math.prod(shape[:axis]), 1, math.prod(shape[axis:]), 1)
        n, c, *rest = shape
        groups = node.as_(Normalize).num_groups if kind == "group" else c
        return cls(n * groups, c // max(groups, 1), math.prod(rest), max(groups, 1))

    @property
    def columns(self) -> int:
        """Elements per row."""
        return self.segments * self.run


def epsilon_arg(node: Node) -> Arg:
    """epsilon in the kernel's compute type."""
    value = float(node.as_(Normalize).epsilon)
    return np.float64(value) if node.x.type.storage is DType.FLOAT64 else value


@register
class NormalizeRows(RowKernel):
    """Every kind of Normalize; a work-item per row on a CPU, several per row on a GPU."""

    op = "Normalize"
    space = {"PACK": (2, 16, 8, 4, 1), **ROW_SPACE}

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        for i, what in ((1, "scale"), (2, "bias")):
            v = node.get(i)
            if v is not None and _form(node, v) is None:
                return f"{what} {v.type} varies along some of the normalised axes and is not constant"
        return epilogue_refusal(node, "rows", RowView.of(node).run)

    def bindings(self, p: Problem) -> Bindings:
        parameters = (None if v is None or v.is_const else FLAT for v in p.node.inputs[1:3])
        return (Binding((FLAT, *parameters, *operand_layouts(p.node, "rows", FLAT)), (FLAT,)),)

    def defaults(self, p: Problem) -> Params:
        view = RowView.of(p.node)
        pack = VECTOR if not p.device.is_cpu and _is_aligned(view, VECTOR) else row_width(view.columns, p.device)
        return {"PACK": pack, **row_group(view.columns, view.rows, p.device)}

    def seconds(self, p: Problem, cost: Cost) -> float:
        """Few rows leave most of the device idle."""
        idle = max(1.0, p.device.compute_units / max(RowView.of(p.node).rows, 1))
        return super().seconds(p, Cost(idle * cost.flops, idle * cost.bytes))

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        view = RowView.of(node)
        epilogue = rows_epilogue(node, p.device, view.run)
        forms = [NONE if v is None else _form(node, v) for v in (node.get(1), node.get(2))]
        defines = {**params, "STORAGE": STORAGE[node.x.type.storage], "RMS": node.as_(Normalize).kind == "rms"}
        defines |= {"ALIGNED": params["PACK"] == VECTOR and _is_aligned(view, VECTOR) and not p.device.is_cpu}
        defines |= {"SCALE": forms[0], "BIAS": forms[1], "HELD": _held(view, params, p.device)}
        defines |= {"INLINE_PTX": PTX_MMA in p.device.quirks}
        given = {"scale": node.get(1), "bias": node.get(2)}
        args: Args = {k: _parameter(node, v) for k, v in given.items() if v is not None}
        args |= {"x": node.x, "y": node.y, "rows": view.rows, "segments": view.segments, "run": view.run}
        args |= {"period": view.period, "epsilon": epsilon_arg(node), **epilogue.args}
        group = (params["WG"], params["ROWS"])
        prelude = row_prelude(p.device) + epilogue.prelude
        return [Launch("normalize_rows", args, (group[0], view.rows), group, defines, prelude)]


def _held(view: RowView, params: Params, device: DeviceInfo) -> int:
    """Vectors of a row that a work-item keeps in registers; 0: the row is read three times."""
    columns, taken = view.columns, params["WG"] * params["PACK"]
    if params["WG"] == 1 or device.block_loads or not (view.segments == 1 and type(columns) is int):
        return 0
    count = ceil_div(columns, taken)
    return count if count <= MOST_HELD and not may_have_remainder(columns, params["PACK"]) else 0


def _is_aligned(view: RowView, width: int) -> bool:
    """Whether vectors of `width` elements fill every segment."""
    return not may_have_remainder(view.run, width)


def _form(node: Node, v: Value) -> int | None:
    """The kernel's access mode for scale or bias; None if unsupported."""
    if node.as_(Normalize).kind not in TRAILING or v.type.count == 1:
        return BY_SEGMENT
    return BY_COLUMN if v.is_const or v.type.count == RowView.of(node).columns else None


def _parameter(node: Node, v: Value) -> Arg:
    """Scale or bias as an argument; a constant that varies along some axes only is expanded along all."""
    if not v.is_const:
        return v
    storage = node.x.type.storage
    axes = node.x.shape[node.as_(Normalize).axis :] if _form(node, v) == BY_COLUMN else v.shape

    def spread(data: Array) -> Array:
        wide = data.reshape(data.shape[-len(axes) :]) if data.ndim > len(axes) else data
        return np.ascontiguousarray(np.broadcast_to(wide, axes).astype(storage.np))

    return Weight(v, f"spread to {'x'.join(map(str, axes))} {storage}", spread)
