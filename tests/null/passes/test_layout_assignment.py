"""layout/assign_layouts.py and layout/insert_casts.py: a layout for each tensor, and a cast wherever a reader wants
another one."""

from __future__ import annotations

import pytest

from opalite.ir import Graph
from opalite.layout.assign_layouts import pick_kernels
from opalite.layout.insert_casts import insert_casts

from .texts import CPU, Case, check


def place(graph: Graph) -> None:
    pick_kernels(graph, CPU)
    insert_casts(graph, CPU)


CASES = (
    Case(
        "insert_casts",
        "one cast serves two readers, and constants are cast ahead of time",
        None,
        """
        graph g(%x: f32[1,16,4,4]) {
            const %w: f32[16,16,3,3] = fill 0.5
            %c = Conv(%x, %w, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            %y = Reshape(%c) {shape=[256]}
            return %c, %y
        }
        """,
        """
        graph g(%x: f32[1,16,4,4] @host) {
            %x2: f32[1,16,4,4] = PlaceCast(%x)
            const %w: f32[16,16,3,3] = fill 0.5
            %c: f32[1,16,4,4] @opencl/NC16HW16 = Conv(%x2, %w, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
            %c2: f32[1,16,4,4] = PlaceCast(%c)
            %y: f32[256] = Reshape(%c2) {shape=[256]}
            %c3: f32[1,16,4,4] @host = PlaceCast(%c2)
            %y2: f32[256] @host = PlaceCast(%y)
            return %c3, %y2
        }
        """,  # noqa: E501
        whole=place,
    ),
    Case(
        "insert_casts",
        "a row-major tensor is copied in and out, and not cast",
        None,
        """
        graph g(%x: f32[4]) {
            %y = Elementwise(%x) {expr="tanh($0)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[4] @host) {
            %x2: f32[4] = PlaceCast(%x)
            %y: f32[4] = Elementwise(%x2) {expr="tanh($0)"}
            %y2: f32[4] @host = PlaceCast(%y)
            return %y2
        }
        """,
        whole=place,
    ),
    Case(
        "insert_casts",
        "a constant result needs no copy at all",
        None,
        """
        graph g() {
            const %k: f32[2] @host = [1.0, 2.0]
            return %k
        }
        """,
        whole=place,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
