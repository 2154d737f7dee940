"""passes/quantization/low_bit_weights.py: rows of activations are quantized on request."""

from __future__ import annotations

import pytest

from opalite.ir import Value
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.passes.quantization.low_bit_weights import quantize_activations

from ..texts import Case, check

ASKED = PrecisionPolicy.named("int8")
KEEPS = PrecisionPolicy(Precision.FP32, {"head": ""}, rounds=True)
PRODUCT = """
graph g(%x: f32[3,4]) {
    const %w: i8[2,4] = [127, -63, 1, 0, 0, 127, 1, -2]
    const %s: f32[2,1] = [1, 2]
    %y = QuantizedMatMul(%x, %w, %s, -) {bits=8, block=4, trans_a=false, trans_b=true}
    return %y
}
"""
ROUNDED = PRODUCT.replace("block=4, ", "block=4, rounds=true, ")
TABLE = """
graph g(%x: f32[3,4]) {
    const %w: u8[2,4] = [15, 3, 1, 0, 0, 7, 1, 2]
    const %s: f32[2,1] = [1, 2]
    %y = QuantizedMatMul(%x, %w, %s, -) {bits=4, block=4, table=[VALUES], trans_a=false, trans_b=true}
    return %y
}
""".replace("VALUES", ", ".join(map(str, range(16))))


def name_product(values: dict[str, Value]) -> None:
    """What a policy knows it by."""
    maker = values["y"].producer
    assert maker is not None
    maker.name = "head"


CASES = (
    Case("quantize_activations", "a product", quantize_activations(ASKED), PRODUCT, ROUNDED),
    Case("quantize_activations", "one that rounds already", quantize_activations(ASKED), ROUNDED),
    Case("quantize_activations", "values of a table", quantize_activations(ASKED), TABLE),
    Case("quantize_activations", "what a policy keeps", quantize_activations(KEEPS), PRODUCT, prepare=name_product),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewrites(case: Case) -> None:
    check(case)
