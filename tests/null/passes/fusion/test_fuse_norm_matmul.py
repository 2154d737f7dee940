"""passes/fusion/fuse_norm_matmul.py: a product normalises the rows it reads, where a kernel does that faster."""

from __future__ import annotations

import pytest

from opalite.ir import Graph
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.layout.assign_precision import set_precision
from opalite.passes.fusion.fuse_norm_matmul import fuse_norm_matmul

from ..texts import Case, check

H200 = read_description("nvidia_h200")


def store_halves(graph: Graph) -> None:
    """What comes before the pass; matrix units multiply halves."""
    set_precision(graph, PrecisionPolicy(Precision.FP16))


def normalised(rows: int) -> str:
    return f"""
    graph g(%x: f32[{rows},64]) {{
        const %w: f32[64,64] = fill 0.5
        const %s: f32[64] = fill 2.0
        const %b: f32[64] = fill 1.0
        %n: f32[{rows},64] @opencl/f16/NCHW = Normalize(%x, %s, %b) {{axis=1, epsilon=1e-05, kind="layer"}}
        %y: f32[{rows},64] @opencl/f16/NCHW = MatMul(%n, %w) {{trans_a=false, trans_b=false}}
        return %y
    }}"""


CASES = (
    Case(
        "fuse_norm_matmul",
        "the scale goes into the matrix, the bias through it",
        fuse_norm_matmul(H200),
        normalised(256),
        """
        graph g(%x: f32[256,64]) {
            const %w: f32[64,64] = fill 1.0
            const %b: f32[64] = fill 32.0
            %y: f32[256,64] @opencl/f16/NCHW = NormalizedMatMul(%x, %w, %b) {epilogue="add($0, $1)", epsilon=1e-05, trans_a=false, trans_b=false}
            return %y
        }
        """,  # noqa: E501
        whole=store_halves,
    ),
    Case(
        "fuse_norm_matmul",
        "one row would leave matrix units idle",
        fuse_norm_matmul(H200),
        normalised(1),
        whole=store_halves,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
