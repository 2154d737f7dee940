"""passes/data_movement/axis_orders.py: Gathers, whose indices and data may have orders of their own."""

from __future__ import annotations

from opalite.passes.data_movement.move_transposes import move_transposes

from ..texts import GPU, Case, check

MOVE = move_transposes(GPU)


def test_a_table_looked_up_between_transposes() -> None:
    text = """
        graph g(%x: i32[2,4,6,8]) {{
            const %t: f32[256] = seed 1
            {lines}
            return %y
        }}
    """
    before = text.format(
        lines="%f = Transpose(%x) {perm=[0, 3, 1, 2]}\n%g = Gather(%t, %f) {axis=0}\n"
        "%y = Transpose(%g) {perm=[0, 2, 3, 1]}"
    )
    check(Case("move_transposes", "a table", MOVE, before, text.format(lines="%y = Gather(%t, %x) {axis=0}")))


def test_indices_with_axes_in_another_order_stay() -> None:
    text = """
        graph g(%x: i32[2,4,6], %m: f32[9,5]) {
            %f = Transpose(%x) {perm=[2, 0, 1]}
            %g = Gather(%m, %f) {axis=0}
            return %g
        }
    """
    check(Case("move_transposes", "indices", MOVE, text, text))
