"""passes/cleanup/remove_no_ops.py: what does nothing goes, and movements that can be one become one."""

from __future__ import annotations

import pytest

from opalite.passes.cleanup.remove_no_ops import (
    drop_empty_inputs,
    merge_movements,
    pick_by_slice,
    remove_noop,
    sink_reshape,
)

from ..texts import Case, check

CASES = (
    Case(
        "remove_noop",
        "each kind of nothing",
        remove_noop,
        """
        graph g(%x: f32[2,3]) {
            %a = Elementwise(%x) {expr="$0"}
            %b = Reshape(%a) {shape=[2, 3]}
            %c = Transpose(%b) {perm=[0, 1]}
            %d = Slice(%c) {sizes=[2, 3], starts=[0, 0], steps=[1, 1]}
            %e = Pad(%d) {mode="constant", pads=[0, 0, 0, 0], value=0.0}
            %f = Concat(%e) {axis=0}
            %y = Elementwise(%f) {expr="neg($0)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3]) {
            %y = Elementwise(%x) {expr="neg($0)"}
            return %y
        }
        """,
    ),
    Case(
        "pick_by_slice",
        "one index, from the front, from the end and past it",
        pick_by_slice,
        """
        graph g(%x: f32[2,3,4]) {
            const %i: i64[] = [1]
            const %j: i64[1] = [-1]
            const %k: i64[1,1] = [7]
            %a = Gather(%x, %i) {axis=1}
            %b = Gather(%x, %j) {axis=0}
            %c = Gather(%x, %k) {axis=2}
            return %a, %b, %c
        }
        """,
        """
        graph g(%x: f32[2,3,4]) {
            %d = Slice(%x) {sizes=[2, 1, 4], starts=[0, 1, 0], steps=[1, 1, 1]}
            %a = Reshape(%d) {shape=[2, 4]}
            %e = Slice(%x) {sizes=[1, 3, 4], starts=[1, 0, 0], steps=[1, 1, 1]}
            %b = Reshape(%e) {shape=[1, 3, 4]}
            %f = Slice(%x) {sizes=[2, 3, 1], starts=[0, 0, 3], steps=[1, 1, 1]}
            %c = Reshape(%f) {shape=[2, 3, 1, 1]}
            return %a, %b, %c
        }
        """,
    ),
    Case(
        "pick_by_slice",
        "several indices, and one that a run gives",
        pick_by_slice,
        """
        graph g(%x: f32[2,3,4], %j: i64[1]) {
            const %i: i64[2] = [1, 2]
            %a = Gather(%x, %i) {axis=1}
            %b = Gather(%x, %j) {axis=0}
            return %a, %b
        }
        """,
    ),
    Case(
        "remove_noop",
        "a flip and changes of shape stay",
        remove_noop,
        """
        graph g(%x: f32[2,3]) {
            %a = Slice(%x) {sizes=[2, 3], starts=[1, 2], steps=[-1, -1]}
            %b = Transpose(%a) {perm=[1, 0]}
            %y = Reshape(%b) {shape=[6]}
            return %y
        }
        """,
    ),
    Case(
        "drop_empty_inputs",
        "one of three",
        drop_empty_inputs,
        """
        graph g(%x: f32[2,3], %z: f32[2,0]) {
            %y = Concat(%x, %z, %x) {axis=1}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3], %z: f32[2,0]) {
            %y = Concat(%x, %x) {axis=1}
            return %y
        }
        """,
    ),
    Case(
        "drop_empty_inputs",
        "nothing would be left",
        drop_empty_inputs,
        """
        graph g(%x: f32[2,0], %z: f32[2,0]) {
            %y = Concat(%x, %z) {axis=1}
            return %y
        }
        """,
    ),
    Case(
        "merge_movements",
        "transposes join, and reshapes",
        merge_movements,
        """
        graph g(%x: f32[2,3,4]) {
            %a = Transpose(%x) {perm=[2, 0, 1]}
            %b = Transpose(%a) {perm=[0, 2, 1]}
            %c = Reshape(%b) {shape=[12, 2]}
            %y = Reshape(%c) {shape=[4, 6]}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3,4]) {
            %b = Transpose(%x) {perm=[2, 1, 0]}
            %y = Reshape(%b) {shape=[4, 6]}
            return %y
        }
        """,
    ),
    Case(
        "merge_movements",
        "a transpose that moves axes of one element is a reshape",
        merge_movements,
        """
        graph g(%x: f32[1,3,4]) {
            %y = Transpose(%x) {perm=[1, 0, 2]}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,3,4]) {
            %y = Reshape(%x) {shape=[3, 1, 4]}
            return %y
        }
        """,
    ),
    Case(
        "merge_movements",
        "movements of different kinds stay",
        merge_movements,
        """
        graph g(%x: f32[2,3,4]) {
            %a = Transpose(%x) {perm=[2, 0, 1]}
            %b = Reshape(%a) {shape=[8, 3]}
            %y = Transpose(%b) {perm=[1, 0]}
            return %y
        }
        """,
    ),
    Case(
        "sink_reshape",
        "operands are reshaped the other way, scalars stay",
        sink_reshape,
        """
        graph g(%x: f32[2,3], %r: f32[6]) {
            %m = Elementwise(%x) {expr="tanh($0)"}
            %s = Reshape(%m) {shape=[6]}
            const %k: f32[] = [2.0]
            %y = Elementwise(%s, %r, %k) {expr="add($0, $1); mul(%0, $2)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3], %r: f32[6]) {
            %m = Elementwise(%x) {expr="tanh($0)"}
            %r2 = Reshape(%r) {shape=[2, 3]}
            const %k: f32[] = [2.0]
            %y2 = Elementwise(%m, %r2, %k) {expr="add($0, $1); mul(%0, $2)", shape=[2, 3]}
            %y = Reshape(%y2) {shape=[6]}
            return %y
        }
        """,
    ),
    Case(
        "sink_reshape",
        "what the reshape reads is read elsewhere",
        sink_reshape,
        """
        graph g(%x: f32[2,3]) {
            %m = Elementwise(%x) {expr="tanh($0)"}
            %s = Reshape(%m) {shape=[6]}
            %y = Elementwise(%s) {expr="exp($0)"}
            return %y, %m
        }
        """,
    ),
    Case(
        "sink_reshape",
        "a row of another length is no operand of the other shape",
        sink_reshape,
        """
        graph g(%x: f32[2,3], %r: f32[6]) {
            %m = Elementwise(%x) {expr="tanh($0)"}
            %s = Reshape(%m) {shape=[1, 6]}
            %y = Elementwise(%s, %r) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "sink_reshape",
        "the reshaped tensor is read elsewhere",
        sink_reshape,
        """
        graph g(%x: f32[2,3]) {
            %m = Elementwise(%x) {expr="tanh($0)"}
            %s = Reshape(%m) {shape=[6]}
            %y = Elementwise(%s) {expr="exp($0)"}
            return %y, %s
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
