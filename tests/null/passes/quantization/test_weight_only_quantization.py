"""passes/quantization/low_bit_weights.py: float weights in 8 bits."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ir import Value
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.passes.quantization.low_bit_weights import BLOCK, narrowed, quantize_weights

from ..texts import Case, check

PRODUCT = """
graph g(%x: f32[3,4]) {
    const %w: f32[2,4] = [127, -63, 1, 0, 0, 254, 2, -4]
    %y = MatMul(%x, %w) {trans_a=false, trans_b=true}
    return %y
}
"""
CASES = (
    Case(
        "quantize_weights",
        "a product",
        quantize_weights(1),
        PRODUCT,
        """
        graph g(%x: f32[3,4]) {
            const %w: i8[2,4] = [127, -63, 1, 0, 0, 127, 1, -2]
            const %s: f32[2,1] = [1, 2]
            %y = QuantizedMatMul(%x, %w, %s, -) {bits=8, block=4, trans_a=false, trans_b=true}
            return %y
        }
        """,
    ),
    Case(
        "quantize_weights",
        "a table of rows",
        quantize_weights(1),
        """
        graph g(%i: i64[3]) {
            const %w: f32[2,4] = [127, -63, 1, 0, 0, 254, 2, -4]
            %y = Gather(%w, %i) {axis=0}
            return %y
        }
        """,
        """
        graph g(%i: i64[3]) {
            const %w: i8[2,4] = [127, -63, 1, 0, 0, 127, 1, -2]
            const %s: f32[2,1] = [1, 2]
            %y = QuantizedGather(%w, %i, %s, -) {bits=8, block=4}
            return %y
        }
        """,
    ),
    Case("quantize_weights", "small weights", quantize_weights(), PRODUCT),
    Case("quantize_weights", "a weight that is not finite", quantize_weights(1), PRODUCT.replace("254", "inf")),
    Case("quantize_weights", "whole numbers", quantize_weights(1), PRODUCT.replace("{trans_a", "{exact=true, trans_a")),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewrites(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("shape", [(70, 100), (100, 70), (32, 1), (3, 200_000)])
def test_every_weight_is_within_half_a_step(shape: tuple[int, int], along: int) -> None:
    w = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    w[:, 0] = 0
    levels = narrowed(Value("w", TensorType(DType.FLOAT32, shape), w), along)
    assert levels is not None
    assert levels.scale.shape[along] == -(-shape[along] // BLOCK)
    step = np.repeat(levels.scale, BLOCK, along)[: shape[0], : shape[1]]
    assert (np.abs(levels.contents(np.float32).read() - w) <= 0.5001 * step).all()
    part = levels.contents(np.float32).read_rows(1, 3)
    np.testing.assert_array_equal(part, levels.contents(np.float32).read()[1:3])
