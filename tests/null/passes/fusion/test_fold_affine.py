"""passes/fusion/fold_into_conv.py: scales and shifts of channels become part of the weights."""

from __future__ import annotations

import pytest

from opalite.passes.fusion.fold_into_conv import fold_affine

from ..texts import Case, check

CASES = (
    Case(
        "fold_affine",
        "scale and shift go, the rest of the expression stays",
        fold_affine,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
            const %b: f32[2] = [1.0, -1.0]
            const %s: f32[1,2,1,1] = [2.0, 0.5]
            const %t: f32[2,1,1] = [1.0, 8.0]
            %c = Conv(%x, %w, %b) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c, %s, %t) {expr="mul($0, $1); sub(%0, $2); max(%1, 0.0:f32)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [2.0, 4.0, 1.5, 2.0]
            const %b: f32[2] = [1.0, -8.5]
            %c = Conv(%x, %w, %b) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c) {expr="max($0, 0.0:f32)", shape=[1, 2, 3, 3]}
            return %y
        }
        """,
    ),
    Case(
        "fold_affine",
        "a scale along the width is none of channels",
        fold_affine,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
            const %s: f32[3] = [2.0, 0.5, 1.0]
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c, %s) {expr="mul($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "fold_affine",
        "the unscaled result is read too",
        fold_affine,
        """
        graph g(%x: f32[1,2,3,3]) {
            const %w: f32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %y = Elementwise(%c) {expr="mul($0, 2.0:f32)"}
            return %y, %c
        }
        """,
    ),
)


CONV = "Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}"


def scaled(title: str, expr: str, constant: str = "[2.0, 0.5]", op: str = CONV, after: str | None = None) -> Case:
    graph = "graph g(%x: f32[1,2,3,3]) {{\n    const %w: f32[2,2,1,1] = {}\n{}    return %y\n}}"
    weights = "[1.0, 2.0, 3.0, 4.0]"
    tail = f'    const %s: f32[2,1,1] = {constant}\n    %c = {op}\n    %y = Elementwise(%c, %s) {{expr="{expr}"}}\n'
    return Case("fold_affine", title, fold_affine, graph.format(weights, tail), after)


MORE = (
    scaled("a quotient of the result", "div($1, $0)"),
    scaled("a scale that is not finite", "mul($0, $1)", "[inf, 0.5]"),
    scaled("a shift that is not finite", "add($0, $1)", "[nan, 0.5]"),
    scaled("a divisor of zero", "div($0, $1)", "[0.0, 0.5]"),
)
GROUPS = "{dilations=[1, 1], group=2, output_padding=[0, 0], pads=[0, 0, 0, 0], strides=[1, 1]}"
TURNED = Case(
    "fold_affine",
    "channels of a transposed convolution's groups",
    fold_affine,
    """
    graph g(%x: f32[1,4,2,2]) {
        const %w: f32[4,2,1,1] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        const %s: f32[4,1,1] = [2.0, 3.0, 4.0, 5.0]
        %c = ConvTranspose(%x, %w, -) GROUPS
        %y = Elementwise(%c, %s) {expr="mul($0, $1)"}
        return %y
    }
    """.replace("GROUPS", GROUPS),
    """
    graph g(%x: f32[1,4,2,2]) {
        const %w: f32[4,2,1,1] = [2.0, 6.0, 6.0, 12.0, 20.0, 30.0, 28.0, 40.0]
        const %b: f32[4] = [0.0, 0.0, 0.0, 0.0]
        %y = ConvTranspose(%x, %w, %b) GROUPS
        return %y
    }
    """.replace("GROUPS", GROUPS),
)


@pytest.mark.parametrize("case", [*CASES, *MORE, TURNED], ids=str)
def test_pass(case: Case) -> None:
    check(case)
