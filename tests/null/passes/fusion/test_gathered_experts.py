"""passes/fusion/gathered_experts.py: products with gathered matrices read only the matrices of the picked experts."""

from __future__ import annotations

import pytest

from opalite.passes.fusion.gathered_experts import multiply_picked_matrices

from ..texts import Case, check

_W = "const %w: f32[3,2,4] = [" + ", ".join(f"{(7 * i) % 11 - 5}.0" for i in range(24)) + "]"
_STACKED = "const %w: f32[6,4] = [" + ", ".join(f"{(7 * i) % 11 - 5}.0" for i in range(24)) + "]"


_GATHER, _GATHER_ND = "Gather(%w, %p) {axis=0}", "GatherND(%w, %p) {batch_dims=0}"
_ON = "{trans_a=false, trans_b=false, exact=false}"
_B = "{trans_a=false, trans_b=true, exact=false}"
_TURNED = (
    "const %w: f32[12,2] = ["
    + ", ".join(f"{(7 * (8 * e + 4 * k + r)) % 11 - 5}.0" for e in range(3) for r in range(4) for k in range(2))
    + "]"
)


def _case(title: str, x: str, gather: str, picks: str, inputs: str, flags: str, y: str = "", w: str = _STACKED) -> Case:
    head = f"graph g(%x: f32{x}, %p: i64{picks})"
    before = f"""
        {head} {{
            {_W}
            %g = {gather}
            %y = MatMul({inputs}) {flags}
            return %y
        }}
        """
    after = f"""
        {head} {{
            {w}
            %r = Reshape(%x) {{shape=[5, {4 if w is _STACKED else 2}]}}
            %n = Reshape(%p) {{shape=[5, 1]}}
            %e = ExpertMatMul(%r, %n, %w) {{experts=3, bits=0, block=0}}
            %y = Reshape(%e) {{shape={y}}}
            return %y
        }}
        """
    return Case("multiply_picked_matrices", title, multiply_picked_matrices, before, after if y else None)


CASES = (
    _case("a matrix times a column", "[5,4,1]", _GATHER, "[5]", "%g, %x", _ON, "[5, 2, 1]"),
    _case("by coordinates", "[5,4,1]", _GATHER_ND, "[5,1]", "%g, %x", _ON, "[5, 2, 1]"),
    _case("a row times a transposed matrix", "[5,1,4]", _GATHER, "[5]", "%x, %g", _B, "[5, 1, 2]"),
    _case("a row times a matrix", "[5,1,2]", _GATHER, "[5]", "%x, %g", _ON, "[5, 1, 4]", _TURNED),
    _case("several columns stay", "[5,4,3]", _GATHER, "[5]", "%g, %x", _ON),
    _case("one column for all stays", "[1,4,1]", _GATHER, "[5]", "%g, %x", _ON),
    _case("rows of matrices stay", "[3,4,1]", "Gather(%w, %p) {axis=1}", "[5]", "%g, %x", _ON),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
