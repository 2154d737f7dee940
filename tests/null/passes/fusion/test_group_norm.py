"""passes/fusion/group_norm.py: a normalization of rows of whole channels becomes one of groups of channels."""

from __future__ import annotations

import pytest

from opalite.passes.fusion.fold_into_conv import fold_affine
from opalite.passes.fusion.group_norm import recognize_group_norm

from ..texts import Case, check


def _case(title: str, norm: str, parameters: str = "", viewed: str = "[1, 2, 18]", after: str = "") -> Case:
    before = f"""
        graph g(%x: f32[1,4,3,3]) {{
            {parameters}
            %v = Reshape(%x) {{shape={viewed}}}
            %n = {norm}
            %y = Reshape(%n) {{shape=[1, 4, 3, 3]}}
            return %y
        }}
        """
    return Case("recognize_group_norm", title, recognize_group_norm, before, *([after] if after else []))


_TWO_GROUPS = """
        graph g(%x: f32[1,4,3,3]) {
            %n = Normalize(%x, -, -) {axis=-1, epsilon=1e-05, kind="group", num_groups=2}
            return %n
        }
        """

CASES = (
    _case(
        "neutral parameters go",
        'Normalize(%v, %s, %b) {axis=-1, epsilon=1e-05, kind="instance", num_groups=0}',
        "const %s: f32[2] = [1.0, 1.0]\n            const %b: f32[2] = [0.0, 0.0]",
        after=_TWO_GROUPS,
    ),
    _case(
        "rows of an axis less",
        'Normalize(%v, -, -) {axis=1, epsilon=1e-05, kind="layer", num_groups=0}',
        viewed="[2, 18]",
        after=_TWO_GROUPS,
    ),
    _case(
        "trailing axes of the split channels",
        'Normalize(%v, -, -) {axis=2, epsilon=1e-05, kind="layer", num_groups=0}',
        viewed="[1, 2, 2, 3, 3]",
        after=_TWO_GROUPS,
    ),
    _case(
        "parameters of a group are those of its channels",
        'Normalize(%v, %s, %b) {axis=-1, epsilon=1e-05, kind="instance", num_groups=0}',
        "const %s: f32[2] = [2.0, 3.0]\n            const %b: f32[2] = [0.0, 1.0]",
        after="""
        graph g(%x: f32[1,4,3,3]) {
            const %s: f32[4] = [2.0, 2.0, 3.0, 3.0]
            const %b: f32[4] = [0.0, 0.0, 1.0, 1.0]
            %n = Normalize(%x, %s, %b) {axis=-1, epsilon=1e-05, kind="group", num_groups=2}
            return %n
        }
        """,
    ),
    _case(
        "a group for each channel is an instance",
        'Normalize(%v, -, -) {axis=1, epsilon=1e-05, kind="layer", num_groups=0}',
        viewed="[4, 9]",
        after="""
        graph g(%x: f32[1,4,3,3]) {
            %n = Normalize(%x, -, -) {axis=-1, epsilon=1e-05, kind="instance", num_groups=0}
            return %n
        }
        """,
    ),
    _case(
        "rows of parts of channels are no groups",
        'Normalize(%v, -, -) {axis=1, epsilon=1e-05, kind="layer", num_groups=0}',
        viewed="[12, 3]",
    ),
    _case(
        "rows of one and a third channels are no groups",
        'Normalize(%v, -, -) {axis=1, epsilon=1e-05, kind="layer", num_groups=0}',
        viewed="[3, 12]",
    ),
    _case(
        "root mean squares have no mean",
        'Normalize(%v, -, -) {axis=2, epsilon=1e-05, kind="rms", num_groups=0}',
    ),
    _case(
        "a scale that varies within a row is none of channels",
        'Normalize(%v, %s, -) {axis=2, epsilon=1e-05, kind="layer", num_groups=0}',
        "const %s: f32[3] = [1.0, 2.0, 3.0]",
        viewed="[1, 2, 6, 3]",
    ),
    Case(
        "fold_affine",
        "scale and shift of channels become parameters",
        fold_affine,
        """
        graph g(%x: f32[1,4,3,3]) {
            const %s: f32[4,1,1] = [1.0, 2.0, 3.0, 4.0]
            const %t: f32[1,4,1,1] = [5.0, 6.0, 7.0, 8.0]
            %n = Normalize(%x, -, -) {axis=-1, epsilon=1e-05, kind="group", num_groups=2}
            %y = Elementwise(%n, %s, %t) {expr="mul($0, $1); add(%0, $2); max(%1, 0.0:f32)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,4,3,3]) {
            const %s: f32[4] = [1.0, 2.0, 3.0, 4.0]
            const %t: f32[4] = [5.0, 6.0, 7.0, 8.0]
            %n = Normalize(%x, %s, %t) {axis=-1, epsilon=1e-05, kind="group", num_groups=2}
            %y = Elementwise(%n) {expr="max($0, 0.0:f32)", shape=[1, 4, 3, 3]}
            return %y
        }
        """,
    ),
    Case(
        "fold_affine",
        "parameters that are no constants stay apart",
        fold_affine,
        """
        graph g(%x: f32[1,4,3,3], %p: f32[4]) {
            const %s: f32[4,1,1] = [1.0, 2.0, 3.0, 4.0]
            %n = Normalize(%x, %p, -) {axis=-1, epsilon=1e-05, kind="group", num_groups=2}
            %y = Elementwise(%n, %s) {expr="mul($0, $1)"}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
