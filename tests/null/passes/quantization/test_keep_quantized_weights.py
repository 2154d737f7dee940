"""passes/quantization/low_bit_weights.py: which constants stay integers of a few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opalite.ir import Value
from opalite.ir.constants.quantized_constant import QuantizedConstant
from opalite.passes.quantization.low_bit_weights import keep_quantized

from ..texts import Case, check

BYTES = np.arange(16, dtype=np.uint8).reshape(2, 8)


def remember(**parts: Any) -> Callable[[dict[str, Value]], None]:
    """What prepares the constant w: it is computed of levels as the importer has them."""

    def prepare(values: dict[str, Value]) -> None:
        w = values.get("w")
        if w is not None and w.dtype.is_float:
            w.quantized = QuantizedConstant(**parts)
            w.data = w.quantized.contents(np.float32).read()

    return prepare


SQUARES = tuple(float(i * i) - 50 for i in range(16))
BLOCKS = {"scale": np.array([[0.5, 0.25], [1, 2]], np.float32), "zero": np.array(8, np.uint8)}
PRODUCT = """
graph g(%x: f32[3,8]) {
    const %w: f32[2,8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    %y = MatMul(%x, %w) {trans_a=false, trans_b=true}
    return %y
}
"""
TURNED = """
graph g(%x: f32[3,2]) {
    const %w: f32[2,8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    %y = MatMul(%x, %w) {trans_a=false, trans_b=false}
    return %y
}
"""
CASES = (
    Case(
        "keep_quantized",
        "a product whose rows may be rounded, however small",
        keep_quantized(),
        PRODUCT,
        """
        graph g(%x: f32[3,8]) {
            const %w: u8[2,8] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
            const %s: f32[2,1] = [0.5, 1]
            %y = QuantizedMatMul(%x, %w, %s, -) {bits=4, block=8, rounds=true, trans_a=false, trans_b=true}
            return %y
        }
        """,
        prepare=remember(
            codes=BYTES, scale=np.array([[0.5], [1]], np.float32), zero=None, bits=4, axis=1, block=8, rounds=True
        ),
    ),
    Case(
        "keep_quantized",
        "a product by blocks",
        keep_quantized(1),
        PRODUCT,
        """
        graph g(%x: f32[3,8]) {
            const %w: u8[2,8] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
            const %s: f32[2,1] = [0.5, 1]
            const %z: u8[1,1] = [8]
            %y = QuantizedMatMul(%x, %w, %s, %z) {bits=4, block=8, trans_a=false, trans_b=true}
            return %y
        }
        """,
        prepare=remember(
            codes=BYTES, bits=4, axis=1, block=8, scale=np.array([[0.5], [1]], np.float32), zero=BLOCKS["zero"]
        ),
    ),
    Case(
        "keep_quantized",
        "a product by values that are numbered",
        keep_quantized(1),
        PRODUCT,
        """
        graph g(%x: f32[3,8]) {
            const %w: u8[2,8] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
            const %s: f32[2,1] = [0.5, 1]
            %y = QuantizedMatMul(%x, %w, %s, -) {bits=4, block=8, table=VALUES, trans_a=false, trans_b=true}
            return %y
        }
        """.replace("VALUES", str(list(SQUARES))),
        prepare=remember(
            codes=BYTES,
            bits=4,
            axis=1,
            block=8,
            scale=np.array([[0.5], [1]], np.float32),
            zero=None,
            table=SQUARES,
        ),
    ),
    Case(
        "keep_quantized",
        "rows of a table",
        keep_quantized(1),
        """
        graph g(%i: i64[3]) {
            const %w: f32[2,8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            %y = Gather(%w, %i) {axis=0}
            return %y
        }
        """,
        """
        graph g(%i: i64[3]) {
            const %w: u8[2,8] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
            const %s: f32[2,1] = [0.5, 0.5]
            %y = QuantizedGather(%w, %i, %s, -) {bits=8, block=8}
            return %y
        }
        """,
        prepare=remember(codes=BYTES, scale=np.array(0.5, np.float32), zero=None),
    ),
    Case(
        "keep_quantized",
        "a product with the transpose",
        keep_quantized(1),
        TURNED,
        """
        graph g(%x: f32[3,2]) {
            const %w: u8[8,2] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
            const %s: f32[8,1] = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
            %y = QuantizedMatMul(%x, %w, %s, -) {bits=8, block=2, trans_a=false, trans_b=true}
            return %y
        }
        """,
        prepare=remember(codes=BYTES.reshape(8, 2), scale=np.array(0.5, np.float32), zero=None, turned=True),
    ),
    Case(
        "keep_quantized",
        "small constants are floats",
        keep_quantized(),
        PRODUCT,
        prepare=remember(codes=BYTES, scale=np.array(0.5, np.float32), zero=None),
    ),
    Case(
        "keep_quantized",
        "blocks that do not begin at words",
        keep_quantized(1),
        PRODUCT,
        prepare=remember(codes=BYTES, bits=4, axis=1, block=4, **BLOCKS),
    ),
    Case(
        "keep_quantized",
        "scales across the sums",
        keep_quantized(1),
        PRODUCT,
        prepare=remember(codes=BYTES, scale=np.arange(1, 9, dtype=np.float32), zero=None),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewrites(case: Case) -> None:
    check(case)
