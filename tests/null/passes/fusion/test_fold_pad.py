"""passes/fusion/fold_into_conv.py: zeros around the input of a window become its own padding."""

from __future__ import annotations

import pytest

from opalite.passes.fusion.fold_into_conv import fold_pad

from ..texts import Case, check

CASES = (
    Case(
        "fold_pad",
        "zeros join the padding",
        fold_pad,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, 3.0, 4.0]
            %p = Pad(%x) {mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.0}
            %y = Conv(%p, %w, -) {dilations=[1, 1], group=1, pads=[0, 1, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, 3.0, 4.0]
            %y = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[1, 1, 0, 2], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "fold_pad",
        "ones stay",
        fold_pad,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, 3.0, 4.0]
            %p = Pad(%x) {mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=1.0}
            %y = Conv(%p, %w, -) {dilations=[1, 1], group=1, pads=[0, 1, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "fold_pad",
        "zeros that meet infinite weights stay",
        fold_pad,
        """
        graph g(%x: f32[1,1,3,3]) {
            const %w: f32[1,1,2,2] = [1.0, 2.0, inf, 4.0]
            %p = Pad(%x) {mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.0}
            %y = Conv(%p, %w, -) {dilations=[1, 1], group=1, pads=[0, 1, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
    ),
)


PAD = '{mode="constant", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.0}'
CONV = "Conv(%p, %w, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}"
POOL = (
    "Pool(%p) {ceil_mode=false, count_include_pad=true, dilations=[1, 1], kernel=[2, 2], "
    'kind="average", p=2, pads=[0, 0, 0, 0], storage_order=0, strides=[2, 2], with_indices=false}'
)


def padded(title: str, op: str, pad: str = PAD, outputs: str = "%y", after: str | None = None) -> Case:
    weights = "" if "%w" not in op else "    const %w: f32[1,1,2,2] = [1.0, 2.0, 3.0, 4.0]\n"
    graph = f"graph g(%x: f32[1,1,3,3]) {{{{\n{weights}{{}}    %y = {{}}\n    return {{}}\n}}}}"
    before = graph.format(f"    %p = Pad(%x) {pad}\n", op, outputs)
    return Case("fold_pad", title, fold_pad, before, None if after is None else graph.format("", after, outputs))


JOINED = POOL.replace("%p", "%x").replace("pads=[0, 0, 0, 0]", "pads=[1, 0, 0, 2]")
POOLS = (
    padded("zeros that an average counts", POOL, after=JOINED),
    padded("an average of its own unpadded input", POOL.replace("pad=true", "pad=false"), after=JOINED),
    padded("an average that does not count its own", POOL.replace("pad=true", "pad=false").replace("ds=[0", "ds=[1")),
    padded("a largest element may be zero", POOL.replace("average", "max")),
    padded("the last window depends on the end", POOL.replace("ceil_mode=false", "ceil_mode=true")),
    padded("images are added", CONV, PAD.replace("[0, 0, 1", "[1, 0, 1")),
    padded("channels are added after the last", POOL, PAD.replace("1, 0, 0, 0", "1, 0, 0, 1")),
    padded("edges are repeated", CONV, PAD.replace("constant", "edge")),
    padded("the padded tensor is an output too", CONV, outputs="%y, %p"),
)


@pytest.mark.parametrize("case", [*CASES, *POOLS], ids=str)
def test_pass(case: Case) -> None:
    check(case)
