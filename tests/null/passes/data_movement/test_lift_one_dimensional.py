"""passes/data_movement/lift_one_dimensional.py: runs of operators on sequences become ones on pictures of one row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opalite.ir.graph import Graph
from opalite.passes.cleanup.remove_no_ops import merge_movements, remove_noop
from opalite.passes.data_movement.lift_one_dimensional import lift_one_dimensional
from opalite.passes.rewrite_driver import Context, run_rule

from ..texts import GPU, Case, check

_WRITTEN_OUT = {
    "POOL": 'kind="max", p=2, ceil_mode=false, count_include_pad=false, storage_order=0, with_indices=false',
    "GROUP": "group=1, output_padding=[0, 1]",
}
ADRENO = lift_one_dimensional(replace(GPU, image_support=True, family="adreno"))


def _lift(graph: Graph) -> None:
    for rule in (ADRENO, merge_movements, remove_noop):
        run_rule(graph, "lift", rule, Context(check=True))


CASES = (
    Case(
        "lift_one_dimensional",
        "a run with a residual, a pool and a transposed convolution has Reshapes at its ends only",
        None,
        """
        graph g(%x: f32[2,3,16]) {
            const %w: f32[4,3,3] = fill 0.25
            const %b: f32[4] = seed 2
            const %s: f32[4,1] = fill 0.5
            const %d: f32[4,1,5] = fill 0.125
            const %u: f32[4,2,4] = fill 0.5
            %c = Conv(%x, %w, %b) {dilations=[2], group=1, pads=[1, 3], strides=[1]}
            %e = Elementwise(%c, %s) {expr="mul($0, $1)"}
            %g = Conv(%e, %d) {dilations=[1], group=4, pads=[2, 2], strides=[1]}
            %a = Elementwise(%g, %e) {expr="add($0, $1)"}
            %p = Pool(%a) {POOL, dilations=[1], kernel=[2], pads=[0, 0], strides=[2]}
            %t = ConvTranspose(%p, %u) {dilations=[1], group=1, output_padding=[1], pads=[1, 0], strides=[2]}
            %y = Reduce(%t) {axes=[2], keepdims=false, kind="mean"}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,3,16]) {
            const %w: f32[4,3,1,3] = fill 0.25
            const %b: f32[4] = seed 2
            const %s: f32[4,1,1] = fill 0.5
            const %d: f32[4,1,1,5] = fill 0.125
            const %u: f32[4,2,1,4] = fill 0.5
            %v = Reshape(%x) {shape=[2, 3, 1, 16]}
            %c = Conv(%v, %w, %b) {dilations=[1, 2], group=1, pads=[0, 1, 0, 3], strides=[1, 1]}
            %e = Elementwise(%c, %s) {expr="mul($0, $1)", shape=[2, 4, 1, 16]}
            %g = Conv(%e, %d) {dilations=[1, 1], group=4, pads=[0, 2, 0, 2], strides=[1, 1]}
            %a = Elementwise(%g, %e) {expr="add($0, $1)", shape=[2, 4, 1, 16]}
            %p = Pool(%a) {POOL, dilations=[1, 1], kernel=[1, 2], pads=[0, 0, 0, 0], strides=[1, 2]}
            %t = ConvTranspose(%p, %u) {GROUP, dilations=[1, 1], pads=[0, 1, 0, 0], strides=[1, 2]}
            %r = Reduce(%t) {axes=[2, 3], keepdims=true, kind="mean"}
            %y = Reshape(%r) {shape=[2, 2]}
            return %y
        }
        """,
        whole=_lift,
    ),
    Case(
        "lift_one_dimensional",
        "movements, norms and softmax behind a convolution; a product ends the run",
        None,
        """
        graph g(%x: f32[1,4,8], %m: f32[6,3]) {
            const %w: f32[4,4,1] = fill 0.25
            %c = Conv(%x, %w) {dilations=[1], group=1, pads=[0, 0], strides=[1]}
            %n = Normalize(%c, -, -) {epsilon=1e-05, kind="instance"}
            %s = Slice(%n) {sizes=[1, 2, 5], starts=[0, 1, 7], steps=[1, 1, -1]}
            %p = Pad(%s) {mode="constant", pads=[0, 0, 1, 0, 0, 0], value=0.0}
            %j = Concat(%p, %p) {axis=2}
            %k = Slice(%j) {sizes=[1, 2, 6], starts=[0, 0, 0], steps=[1, 1, 1]}
            %q = Softmax(%k) {axis=2, log=false}
            %y = MatMul(%q, %m) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,4,8], %m: f32[6,3]) {
            const %w: f32[4,4,1,1] = fill 0.25
            %v = Reshape(%x) {shape=[1, 4, 1, 8]}
            %c = Conv(%v, %w) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            %n = Normalize(%c, -, -) {epsilon=1e-05, kind="instance"}
            %s = Slice(%n) {sizes=[1, 2, 1, 5], starts=[0, 1, 0, 7], steps=[1, 1, 1, -1]}
            %p = Pad(%s) {mode="constant", pads=[0, 0, 0, 1, 0, 0, 0, 0], value=0.0}
            %j = Concat(%p, %p) {axis=3}
            %k = Slice(%j) {sizes=[1, 2, 1, 6], starts=[0, 0, 0, 0], steps=[1, 1, 1, 1]}
            %q = Softmax(%k) {axis=3, log=false}
            %r = Reshape(%q) {shape=[1, 2, 6]}
            %y = MatMul(%r, %m) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        whole=_lift,
    ),
    Case(
        "lift_one_dimensional",
        "filters that are computed stay",
        ADRENO,
        """
        graph g(%x: f32[1,4,8], %w: f32[4,4,1]) {
            %y = Conv(%x, %w) {dilations=[1], group=1, pads=[0, 0], strides=[1]}
            return %y
        }
        """,
    ),
    Case(
        "lift_one_dimensional",
        "a device that prefers buffers keeps sequences",
        lift_one_dimensional(GPU),
        """
        graph g(%x: f32[1,4,8]) {
            const %w: f32[4,4,1] = fill 0.25
            %y = Conv(%x, %w) {dilations=[1], group=1, pads=[0, 0], strides=[1]}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    texts = [case.before, case.after or ""]
    for short, long in _WRITTEN_OUT.items():
        texts = [text.replace(short, long) for text in texts]
    check(replace(case, before=texts[0], after=texts[1] or None))
