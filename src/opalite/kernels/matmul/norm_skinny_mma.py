"""Skinny matrix products of halves with a fused row normalisation, on matrix units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...cost.cost_tables import MatrixUnits
from ...ir.graph import Value
from ...ops.operator import Cost
from ...ops.row_norm_matmul import RowNormMatMul
from ..kernel import Params, register
from ..launch import Args, Array, Defines, Launch, Weight, ceil_div
from .matmul_problem import MatmulProblem
from .skinny_mma import MatmulSkinnyMma, SkinnyProblem, chunk_terms, fits, rows_of

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
