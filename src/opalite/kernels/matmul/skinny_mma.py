"""Skinny matrix products of halves (few rows) on matrix units; they share the packed weights of large products."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...cost.cost_tables import MatrixUnits
from ...ir.device.device_family import PTX_MMA
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.growable_tensor import FEW, PROMPT
from ...ir.symbols import hint_of
from ...ir.tensor_type import TensorType
from ...ops.matmul import MatMul, MatrixProduct
from ...ops.operator import Cost
from ...ops.row_norm_matmul import RowNormMatMul
from ..codegen.epilogue import rows_epilogue
from ..kernel import Kernel, Params, register
from ..launch import Args, Array, Defines, Launch, Weight, ceil_div
from .matmul_mma import MatmulMma, MatmulMmaStaged, MmaProduct, packed_weights
from .matmul_problem import MatmulProblem, skinny_rows
from .matmul_wgmma import MatmulWgmma

MOST_ROWS = FEW

FORMS: dict[int, MmaProduct] = {1: MatmulMma(), 2: MatmulMmaStaged(), 3: MatmulWgmma()}
"""Kernels for prompts by the form that few.cl knows theirs by."""

_WAVE = 32
_STEP = 16  # terms per step
_LOCAL_BYTES = 36 << 10  # bytes of local memory for rows and accumulators
_ROW_BYTES = 16 << 10  # bytes for rows, if they take several iterations
_MOST_ROUNDS = 8
_ON_ITS_WAY = 8  # loads in flight per work-item that suffice
_LARGEST = 256  # work-items per group


class PackedWeight(NamedTuple):
    """A constant matrix packed for a matrix-unit kernel.

    form: constant of skinny_mma.cl. steps: number of steps of 16 terms. columns: columns per tile.
    """

    form: int
    steps: int
    columns: int
    weight: Weight


class SkinnyProblem(MatmulProblem):
    """A matrix product of few rows."""

    @cached_property
    def packed(self) -> PackedWeight:
        """The matrix as packed by the fastest matrix-unit kernel for a prompt, else by MatmulMma."""
        long = self._of_prompt()
        legal = [(k.seconds(long, long.node.cost()), form, k) for form, k in FORMS.items() if k.refuse(long) is None]
        if not legal:
            return PackedWeight(1, ceil_div(self.sizes.k, _STEP), 16, packed_weights(self))
        _, form, kernel = min(legal, key=lambda found: found[0])
        params = kernel.defaults(long)
        launch = kernel.launch(long, params)[0]
        weight, steps = launch.args["weights"], launch.args["chunks" if form == 3 else "steps"]
        assert isinstance(weight, Weight)
        assert isinstance(steps, int)
        return (
            PackedWeight(form, 2 * steps, params["BN"], weight) if form == 3 else PackedWeight(form, steps, 16, weight)
        )

    def _of_prompt(self) -> MatmulProblem:
        """The product of PROMPT rows, without an epilogue."""
        node, s = self.node, self.sizes
        batch = (1,) * (len(node.input(1).shape) - 2)
        rows = Value("rows", TensorType(node.x.dtype, (*batch, PROMPT, s.k), node.x.type.place))
        y = Value("y", TensorType(node.y.dtype, (*batch, PROMPT, s.n), node.y.type.place))
        op = MatMul(False, bool(node.as_(MatrixProduct).trans_b))
        made = node.with_(op=op, inputs=[rows, node.input(1)], outputs=[y], epilogue=None)
        return MatmulProblem(made, self.device)


@register
class MatmulSkinnyMma(Kernel):
    """PARTS warps per 16 columns; each work-item keeps UNROLL loads of 16 bytes in flight."""

    op = "MatMul"
    problem = SkinnyProblem
    space = {"PARTS": (8, 4), "UNROLL": (8, 4, 16), "MR": (1, 2, 4, 8, 16)}

    def refuse(self, p: SkinnyProblem) -> str | None:
        s, rows = p.sizes, p.sizes.m
        if PTX_MMA not in p.device.quirks:
            return "the device has no matrix units, in whose order it reads weights"
        if p.node.y.type.storage is not DType.FLOAT16 or p.node.x.type.storage is not DType.FLOAT16:
            return f"it multiplies halves, here {p.node.y.type.storage} is stored"
        if not p.node.input(1).is_const or s.trans_a or s.batches != 1:
            return "a must be one matrix, stored by rows, and b a constant one"
        if rows > MOST_ROWS:  # a guard: a plan for few rows serves no prompt
            return f"a has {rows!r} rows; this kernel is for at most {MOST_ROWS}"
        if s.k % 4:
            return f"{s.k} terms are no multiple of 4"
        if p.device.max_work_group_size < min(self.space["PARTS"]) * _WAVE:
            return f"the device's work-groups are smaller than {min(self.space['PARTS']) * _WAVE} work-items"
        return p.refusal()

    def illegal(self, p: SkinnyProblem, params: Params) -> str | None:
        items, rows = params["PARTS"] * _WAVE, params["MR"]
        if items > min(_LARGEST, p.device.max_work_group_size, p.device.max_work_item_sizes[0]):
            return f"the device runs fewer than {items} work-items in a group"
        if not rows_of(p) <= 2 * rows <= 2 * rows_of(p):  # correct but slower
            return "the group has more rows than the product, or too few of them"
        if not fits(params, 1, p.device):
            return "the rows do not fit the local memory"
        return None

    def defaults(self, p: SkinnyProblem) -> Params:
        """The most rows at once, and as many loads in flight as a column's terms fill.

        More unrolling would make instruction fetch the bottleneck.
        """

        def order(point: Params) -> tuple[int, ...]:
            wasted = -p.sizes.k % chunk_terms(point)
            return -point["MR"], wasted >= p.sizes.k, -point["PARTS"], point["UNROLL"] > _ON_ITS_WAY, -point["UNROLL"]

        return min(self.points(p), key=order)

    def seconds(self, p: SkinnyProblem, cost: Cost) -> float:
        device = p.device
        arithmetic = cost.flops / (device.peak_flops * self.share(device))
        seconds = max(arithmetic, cost.bytes / device.bandwidth * MatrixUnits.of(device).streamed) + device.launch_s
        return seconds * 20 if device.is_cpu else seconds

    def launch(self, p: SkinnyProblem, params: Params) -> list[Launch]:
        node, s, packed = p.node, p.sizes, p.packed
        epilogue = rows_epilogue(node, p.device)
        group = params["PARTS"] * _WAVE
        sixteens, strips = ceil_div(s.n, 16), ceil_div(s.m, params["MR"])
        # One work-group per compute unit overlaps loads and reductions.
        blocks = max(1, ceil_div(hint_of(sixteens * strips), p.device.compute_units))
        grid = (ceil_div(sixteens, blocks) * group, strips)
        args: Args = {"a": node.x, "weights": packed.weight, "y": node.y, "M": s.m, "N": s.n, "K": s.k}
        args |= {"steps": packed.steps, "blocks": blocks, **epilogue.args}
        defines = p.defines(4) | {"FORM": packed.form, "TILE": packed.columns, **params}
        defines["ROUNDS"] = max(1, min(_MOST_ROUNDS, _ROW_BYTES // (2 * params["MR"] * chunk_terms(params))))
        return [Launch("matmul_few", args, grid, (group, 1), defines, epilogue.prelude)]


def rows_of(p: MatmulProblem) -> int:
    """Rows per group."""
    return skinny_rows(p, MOST_ROWS)


def chunk_terms(params: Params) -> int:
    """Terms of a row covered by the loads that a work-group has in flight."""
    return int(params["PARTS"] * params["UNROLL"] * _STEP)


def fits(params: Params, rounds: int, device: DeviceInfo) -> bool:
    """Whether `rounds` chunks of a group's rows, and its accumulators, fit local memory."""
    nbytes = params["MR"] * (2 * rounds * chunk_terms(params) + 2 * 64 * 2 * params["PARTS"])
    return bool(nbytes <= min(_LOCAL_BYTES, device.local_mem // 4 * 3))


_MOST_HELD = 8  # vectors of all rows that a work-item keeps, if it has more than one per row
_MOST_OF_ROW = 4


@register
class NormMatmulSkinnyMma(MatmulSkinnyMma):
    """MatmulSkinnyMma that normalises the rows while it copies them to local memory: each group all rows."""

    op = "RowNormMatMul"

    def refuse(self, p: SkinnyProblem) -> str | None:
        k = p.sizes.k
        for what, v in zip(("scale", "bias"), _parameters(p), strict=True):
            if v is not None and not v.is_const:
                return f"{what} {v.type} is not constant"
        if why := super().refuse(p):
            return why
        if next(self.points(p), None) is None:
            return f"{rows_of(p)} rows of {k} terms are more than a work-group holds as a whole"
        return None

    def illegal(self, p: SkinnyProblem, params: Params) -> str | None:
        if why := super().illegal(p, params):
            return why
        rows, rounds = params["MR"], _chunks_per_row(p, params)
        if rows < rows_of(p):
            return "groups of fewer rows would read the matrix several times"
        if not rounds or not fits(params, rounds, p.device):
            return f"rows of {p.sizes.k} terms do not fit the local memory as a whole"
        held = ceil_div(rounds * chunk_terms(params), params["PARTS"] * 32 * _vector(p))
        if held > 1 and (held > _MOST_OF_ROW or held * rows > _MOST_HELD):
            return f"a work-item would keep {held} vectors of each of {rows} rows"
        return None

    def seconds(self, p: SkinnyProblem, cost: Cost) -> float:
        """The product's time plus that of normalising all rows in every work-group."""
        return super().seconds(p, cost) + normalize_seconds(p)

    def launch(self, p: SkinnyProblem, params: Params) -> list[Launch]:
        (launch,) = super().launch(p, params)
        op = p.node.as_(RowNormMatMul)
        args, defines = normal_args(op.kind, op.epsilon, *_parameters(p), p.sizes.k)
        defines |= {"VECTOR": _vector(p), "ROUNDS": _chunks_per_row(p, params)}
        return [replace(launch, args={**launch.args, **args}, defines={**launch.defines, **defines})]


def normalize_seconds(p: MatmulProblem) -> float:
    """Seconds in which every work-group of a skinny product normalises all rows."""
    s = p.sizes
    reads = s.m * s.k * min(ceil_div(s.n, 16), p.device.compute_units)
    return float(reads * MatrixUnits.of(p.device).normalize / p.device.peak_flops)


def normal_args(kind: str, epsilon: float, scale: Value | None, bias: Value | None, k: int) -> tuple[Args, Defines]:
    """(arguments, defines) of normalize_rows_prologue.cl for rows of `k` terms, except the vector width."""
    args: Args = {"epsilon": float(epsilon)}
    args |= {n: _by_column(v, k) for n, v in (("row_scale", scale), ("row_bias", bias)) if v is not None}
    defines: Defines = {"NORMALIZED": 2 if kind == "rms" else 1}
    return args, defines | {"HAS_SCALE": int(scale is not None), "HAS_BIAS": int(bias is not None)}


def _parameters(p: SkinnyProblem) -> tuple[Value | None, Value | None]:
    return p.node.get(2), p.node.get(3)


def _chunks_per_row(p: SkinnyProblem, params: Params) -> int:
    """Chunks per row; the matrix is zero-padded to whole chunks."""
    return ceil_div(p.sizes.k, chunk_terms(params))


def _vector(p: SkinnyProblem) -> int:
    """Halves of a row per load."""
    return 4 if p.sizes.k % 8 else 8


def _by_column(v: Value, k: int) -> Weight:
    """A scale or bias with one element per term."""

    def spread(data: Array) -> Array:
        return np.ascontiguousarray(np.broadcast_to(data.reshape(-1), (k,)).astype(np.float16))

    return Weight(v, f"halves spread to {k}", spread)
