"""QuantizedMatMul of few half rows with a fused row normalisation, on matrix units."""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Value
from ...ops.operator import Cost
from ...ops.row_norm_matmul import RowNormQuantizedMatMul
from ..kernel import Params, register
from ..launch import Launch, ceil_div
from ..matmul.matmul_problem import MatmulProblem
from ..matmul.norm_skinny_mma import normal_args, normalize_seconds
from ..matmul.skinny_mma import rows_of
from .skinny_mma_quantized import (
    QuantizedSkinnyMma,
    chunk_terms,
    chunks_in_local_memory,
    chunks_per_row,
    quad_registers,
)

_VECTOR = 8  # halves of a row per load
_WORDS = 4  # of such a vector
_HELD = 112  # words of quads, rows, scale and bias per work-item that leave registers for accumulators


@register
class QuantizedNormSkinnyMma(QuantizedSkinnyMma):
    """QuantizedSkinnyMma that normalises the rows while it copies them to local memory: each group all rows."""

    op = "RowNormQuantizedMatMul"

    def refuse(self, p: MatmulProblem) -> str | None:
        for what, v in zip(("row_scale", "row_bias"), _parameters(p), strict=True):
            if v is not None and not v.is_const:
                return f"{what} {v.type} is not constant"
        if p.node.as_(RowNormQuantizedMatMul).bits == 2:
            return "pairs of numbers of 2 bits are of two vectors of a row"
        if p.sizes.k % _VECTOR:
            return f"{p.sizes.k} terms are no multiple of {_VECTOR}"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if why := super().illegal(p, params):
            return why
        rows, rounds = params["MR"], chunks_per_row(p, params)
        if rows < rows_of(p):
            return "groups of fewer rows would read the matrix several times"
        if chunks_in_local_memory(p, params) < rounds:
            return f"{rows} rows of {p.sizes.k} terms do not fit the local memory as a whole"
        vectors = ceil_div(rounds * chunk_terms(p, params), params["PARTS"] * 32 * _VECTOR)
        given = sum(v is not None for v in _parameters(p))
        if params["UNROLL"] * quad_registers(p) + vectors * (rows + given) * _WORDS > _HELD:
            return f"a work-item would keep {vectors} vectors of each of {rows} rows beside {params['UNROLL']} quads"
        return None

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        """The product's time plus that of normalising all rows in every work-group."""
        return super().seconds(p, cost) + normalize_seconds(p)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        (launch,) = super().launch(p, params)
        op, (scale, bias) = p.node.as_(RowNormQuantizedMatMul), _parameters(p)
        args, defines = normal_args(op.kind, op.epsilon, scale, bias, p.sizes.k)
        defines["VECTOR"] = _VECTOR
        return [replace(launch, args={**launch.args, **args}, defines={**launch.defines, **defines})]


def _parameters(p: MatmulProblem) -> tuple[Value | None, Value | None]:
    return p.node.get(4), p.node.get(5)
