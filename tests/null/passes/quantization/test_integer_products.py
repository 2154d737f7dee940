"""passes/quantization/integer_products.py: products of 8-bit integers as the device multiplies best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opalite.ir import DeviceInfo, Graph, Value
from opalite.ir.device.device_family import BYTE_FOURS
from opalite.ir.graph import QuantizedConstant
from opalite.kernels.kernel import Tier
from opalite.passes.quantization.integer_products import to_integer_product, widen_integer_product
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graph_text import parse_graph
from ..texts import CPU, DOT, Case, check

QUANTISED = np.array([[1, -2], [3, 4], [-5, 6]], np.int8)


def remember_levels(values: dict[str, Value]) -> None:
    """The importer notes of what integers a constant is made."""
    if values["w"].dtype.is_float:
        values["w"].quantized = QuantizedConstant(QUANTISED, np.array(0.25, np.float32), None)


CASES = (
    Case(
        "widen_integer_product",
        "floats hold the sums",
        widen_integer_product(CPU),
        """
        graph g(%x: u8[2,3]) {
            const %w: i8[3,2] = [1, -2, 3, 4, -5, 6]
            const %z: u8[] = [128]
            %y = IntegerMatMul(%x, %w, %z, -) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%x: u8[2,3]) {
            const %z: u8[] = [128]
            %a = Elementwise(%x, %z) {expr="cast<i32>($0); cast<i32>($1); sub(%0, %1); cast<f32>(%2)"}
            const %w: i8[3,2] = [1, -2, 3, 4, -5, 6]
            %b = Elementwise(%w) {expr="cast<i32>($0); cast<f32>(%0)"}
            %c = MatMul(%a, %b) {exact=true, trans_a=false, trans_b=false}
            %y = Elementwise(%c) {expr="cast<i32>($0)"}
            return %y
        }
        """,
    ),
    Case(
        "widen_integer_product",
        "a maximum of bytes",
        widen_integer_product(CPU),
        """
        graph g(%x: u8[1,2,4,4]) {
            %y = Pool(%x) {ceil_mode=false, count_include_pad=false, dilations=[1, 1], kernel=[2, 2], kind="max", p=2, pads=[0, 0, 0, 0], storage_order=0, strides=[2, 2], with_indices=false}
            return %y
        }
        """,  # noqa: E501
        """
        graph g(%x: u8[1,2,4,4]) {
            %a = Elementwise(%x) {expr="cast<f32>($0)"}
            %b = Pool(%a) {ceil_mode=false, count_include_pad=false, dilations=[1, 1], kernel=[2, 2], kind="max", p=2, pads=[0, 0, 0, 0], storage_order=0, strides=[2, 2], with_indices=false}
            %y = Elementwise(%b) {expr="saturate<u8>($0)"}
            return %y
        }
        """,  # noqa: E501
    ),
    Case(
        "widen_integer_product",
        "zero points of the constant are taken off where bytes hold that",
        widen_integer_product(DOT),
        """
        graph g(%x: u8[1,2,3,3]) {
            const %w: i8[2,2,1,1] = [1, -2, 3, 4]
            const %v: i8[2] = [1, -2]
            const %z: u8[] = [128]
            %y = IntegerConv(%x, %w, -, %z, %v) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
        """
        graph g(%x: u8[1,2,3,3]) {
            const %w: i8[2,2,1,1] = [0, -3, 5, 6]
            const %v: i8[2] = [1, -2]
            const %z: u8[] = [128]
            %y = IntegerConv(%x, %w, -, %z, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "widen_integer_product",
        "a device that multiplies bytes keeps them",
        widen_integer_product(DOT),
        """
        graph g(%x: u8[1,2,3,3]) {
            const %w: i8[2,2,1,1] = [1, -2, 3, 4]
            const %v: i8[2] = [1, -2]
            const %z: u8[] = [128]
            %y = IntegerConv(%x, %w, -, %z, -) {dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "to_integer_product",
        "the integers are multiplied and the sums scaled",
        to_integer_product(DOT),
        """
        graph g(%x: u8[2,3]) {
            const %s: f32[] = [0.5]
            const %z: u8[] = [3]
            %d = Elementwise(%x, %s, %z) {expr="cast<i32>($0); cast<i32>($2); sub(%0, %1); cast<f32>(%2); mul(%3, $1)"}
            const %w: f32[3,2] = [0.25, -0.5, 0.75, 1.0, -1.25, 1.5]
            %y = MatMul(%d, %w) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        """
        graph g(%x: u8[2,3]) {
            const %w: i8[3,2] = [1, -2, 3, 4, -5, 6]
            const %z: u8[] = [3]
            %a = IntegerMatMul(%x, %w, %z, -) {trans_a=false, trans_b=false}
            const %s: f32[] = [0.125]
            %y = Elementwise(%a, %s) {expr="cast<f32>($0); mul(%0, $1)"}
            return %y
        }
        """,
        prepare=remember_levels,
    ),
    Case(
        "to_integer_product",
        "scales that differ along the sum",
        to_integer_product(DOT),
        """
        graph g(%x: u8[2,3]) {
            const %s: f32[3] = [0.5, 1.0, 2.0]
            const %z: u8[] = [3]
            %d = Elementwise(%x, %s, %z) {expr="cast<i32>($0); cast<i32>($2); sub(%0, %1); cast<f32>(%2); mul(%3, $1)"}
            const %w: f32[3,2] = [0.25, -0.5, 0.75, 1.0, -1.25, 1.5]
            %y = MatMul(%d, %w) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        prepare=remember_levels,
    ),
    Case(
        "to_integer_product",
        "a device that multiplies floats best",
        to_integer_product(CPU),
        """
        graph g(%x: u8[2,3]) {
            const %s: f32[] = [0.5]
            const %z: u8[] = [3]
            %d = Elementwise(%x, %s, %z) {expr="cast<i32>($0); cast<i32>($2); sub(%0, %1); cast<f32>(%2); mul(%3, $1)"}
            const %w: f32[3,2] = [0.25, -0.5, 0.75, 1.0, -1.25, 1.5]
            %y = MatMul(%d, %w) {trans_a=false, trans_b=false}
            return %y
        }
        """,
        prepare=remember_levels,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


FOURS = replace(CPU, quirks=(BYTE_FOURS,), compute_units=2, clock_mhz=2600)


def convolution(channels: int, filters: int, size: int, group: int = 1) -> Graph:
    """IntegerConv of 3x3 filters, or 1x1 where they have one group."""
    k = 3 if group > 1 else 1
    numbers = ", ".join(str(i % 7 - 3) for i in range(filters * channels // group * k * k))
    pads = ", ".join(4 * [str(k // 2)])
    return parse_graph(
        f"""graph g(%x: u8[1,{channels},{size},{size}]) {{
    const %w: i8[{filters},{channels // group},{k},{k}] = [{numbers}]
    const %z: u8[] = [128]
    %y = IntegerConv(%x, %w, -, %z, -) {{dilations=[1, 1], group={group}, pads=[{pads}], strides=[1, 1]}}
    return %y
}}
"""
    )


@pytest.mark.parametrize(
    ("shape", "device", "tier", "kept"),
    [
        ((64, 64, 14), FOURS, "optimized", True),
        ((96, 96, 56, 96), FOURS, "optimized", True),
        ((96, 96, 14, 3), FOURS, "optimized", True),
        ((64, 64, 14), FOURS, "generic", False),
        ((64, 64, 14), CPU, "optimized", False),
        ((960, 960, 3, 960), FOURS, "optimized", False),
    ],
    ids=["products", "depthwise", "groups", "general tier", "floats alone", "rows too short"],
)
def test_cpus_keep_convolutions_of_bytes_that_pay(
    shape: tuple[int, ...], device: DeviceInfo, tier: Tier, kept: bool
) -> None:
    graph = convolution(*shape)
    run_rule(graph, "widen_integer_product", widen_integer_product(device, tier), Context(check=True))
    assert any(n.op.name == "IntegerConv" for n in graph.nodes) == kept
    assert any(n.op.name == "Conv" for n in graph.nodes) != kept
