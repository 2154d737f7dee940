"""passes/data_movement/channels_last.py: which convolutions are computed channels last, and which are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.ir import Node
from opalite.ops.conv import Conv
from opalite.passes.data_movement.channels_last import reorder_conv
from opalite.passes.data_movement.move_transposes import move_transposes
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graphs import GraphMaker, operators

LAST = (0, 2, 3, 1)
DEPTHWISE: dict[str, Any] = {"group": 4, "kernel": 3}
PATCHES: dict[str, Any] = {"kernel": 2, "pad": 0, "strides": (2, 2)}


def conv(size: int = 8, kernel: int = 3, **attrs: Any) -> Node:
    g = GraphMaker()
    g.conv("c", g.input("x", 1, 4, size, size), 4, kernel, **attrs)
    return g.graph.nodes[0]


@pytest.mark.parametrize("attrs", [DEPTHWISE, PATCHES, {"kernel": 1}], ids=["depthwise", "patches", "1x1"])
def test_convolutions_without_a_choice_of_windows(attrs: dict[str, Any]) -> None:
    node = conv(**attrs)
    moved = reorder_conv(node, LAST)
    assert moved is not None
    assert moved.inputs == (LAST, None, None)
    assert reorder_conv(node, (0, 3, 1, 2)) is None


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"group": 2},
        PATCHES | {"size": 9},  # a row is left over
        PATCHES | {"dilations": (2, 2)},
        PATCHES | {"pad": 1},
        DEPTHWISE | {"pads": (-1, 0, 0, 0)},  # cuts off what the kernel does not skip
        DEPTHWISE | {"size": 40, "dilations": (1, 8)},  # 17 columns
    ],
    ids=str,
)
def test_other_convolutions_stay_channels_first(attrs: dict[str, Any]) -> None:
    assert reorder_conv(conv(**attrs), LAST) is None


@pytest.mark.parametrize("attrs", [DEPTHWISE, PATCHES], ids=["depthwise", "patches"])
def test_sums_of_integers_stay_channels_first(attrs: dict[str, Any]) -> None:
    node = conv(**attrs)
    assert reorder_conv(node.with_(op=replace(node.as_(Conv), exact=True)), LAST) is None


def test_weights_that_make_a_zero_nan_stay_channels_first() -> None:
    """Their kernel multiplies the zeros of the padding."""
    node = conv(**DEPTHWISE)
    node.input(1).array[0] = np.inf
    assert reorder_conv(node, LAST) is None


@pytest.mark.parametrize(("tier", "left"), [("optimized", 0), ("generic", 2)])
def test_general_kernels_convolve_channels_first(tier: Any, left: int) -> None:
    g = GraphMaker()
    x = g.add("first", "Transpose", g.input("x", 1, 8, 8, 4), perm=(0, 3, 1, 2))
    graph = g.done(g.add("last", "Transpose", g.conv("c", x, 4, group=4), perm=(0, 2, 3, 1)))
    run_rule(graph, "move_transposes", move_transposes(None, tier), Context(check=True))
    assert operators(graph).count("Transpose") == left
