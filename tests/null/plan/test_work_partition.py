"""Launches that share out their results alike, so that what one work-group wrote it finds itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchmarks.models.llama import Shape, decoder

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_family import PTX_MMA
from opalite.plan.program import LaunchStep
from opalite.plan.work_partition import NO_PARTITION
from opalite.run.model.imported_model import ImportedModel
from tests.helpers.device_plans import plan

from ...helpers.onnx_text import parse

PLAIN = read_description("nvidia_h200")
UNITS = replace(PLAIN, quirks=tuple({*PLAIN.quirks, PTX_MMA}))
BODY = """{ one = MatMul(x, a) two = MatMul(x, b) sum = Add(two, %s) y = Relu(sum) z = Sigmoid(one) }"""


def launches(model: Any, shapes: dict[str, tuple[int, ...]], device: DeviceInfo) -> list[LaunchStep]:
    steps = plan(ImportedModel(model.SerializeToString()), shapes, device).steps
    return [s for s in steps if isinstance(s, LaunchStep)]


def operands(step: LaunchStep) -> list[Any]:
    """What it reads and writes of its own but for the result, which is the first."""
    return [step.args[i] for i in step.own[1:]]


@pytest.mark.parametrize("bits", [0, 4])
@pytest.mark.parametrize("device", [UNITS, PLAIN], ids=["units", "plain"])
def test_products_of_a_gated_layer(device: DeviceInfo, bits: int) -> None:
    shape = Shape(2, 128, 4, 2, 384, 64)
    model = decoder(shape, bits=bits, block=32)
    names = [i.name for i in model.graph.input]
    sizes = {n: (1, 2, 9, 32) if "past" in n else (1, 10) if "mask" in n else (1, 1) for n in names}
    steps = launches(model, sizes, device)
    for i, step in enumerate(steps):
        for operand in operands(step):
            (before,) = (s for s in steps[:i] if operand in (s.args[k] for k in s.own[:1]))
            is_gated = before.walk == step.walk != NO_PARTITION
            assert is_gated == (steps[i - 1] is before), "a residual sum is read by a product of other terms"
    gated = [s.kernel for i, s in enumerate(steps) if steps[i - 1].walk == s.walk and operands(s)]
    few = ("QuantizedNormSkinnyMma" if bits else "NormMatmulSkinnyMma") if device is UNITS else gated[0]
    assert gated == [few] * 2, "on matrix units they normalise the rows that they read"


@pytest.mark.parametrize("operand, is_own", [("one", True), ("r", True), ("row", False), ("x", True)])
def test_operands_of_the_results_own_shape(operand: str, is_own: bool) -> None:
    """Whoever wrote them; of a row that all rows of the result read, a work-group has no part of its own."""
    sizes = {"x": (96, 96), "r": (96, 96), "row": (1, 96)}
    inputs = ", ".join(f"float[{h},{w}] {n}" for n, (h, w) in sizes.items())
    weights = (
        "<float[96,96] a = {" + ", ".join(["0.5"] * 9216) + "}, float[96,96] b = {" + ", ".join(["2"] * 9216) + "}>"
    )
    text = f"agraph ({inputs}) => (float[96,96] y, float[96,96] z) {weights} {BODY % operand}"
    steps = [s for s in launches(parse(text), sizes, PLAIN) if "two" in s.node or "MatMul+Add" in s.node]
    assert [len(operands(s)) for s in steps] == [int(is_own)]
    if operand == "x":
        (step,) = steps
        read = [i for i, a in enumerate(step.args) if a == step.args[step.own[1]]]
        assert len(read) == 2, "as a factor it is read by all, as an operand element by element"
        assert step.own[1] == read[1]
