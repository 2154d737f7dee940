"""Group normalisation between convolutions keeps their layout and takes the activation, however it is exported."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.numpy_helper import from_array

from opalite.ir.device.device_descriptions import read_description
from opalite.plan.program import LaunchStep
from opalite.run.model.imported_model import ImportedModel
from tests.helpers.device_plans import plan

from ...helpers.onnx_text import parse

SIDE = 128
SHAPES = {"first": (32, 3, 3, 3), "second": (32, 32, 3, 3), "scale": (32,), "bias": (32,)}
DEVICES = ("nvidia_h200", "mali_g78", "pocl_avx512")

BODY = """
g (float[1,3,{side},{side}] x) => (float[1,32,{side},{side}] y)
{{
    a = Conv <pads=[1,1,1,1]> (x, first)
    {norm}
    s = Sigmoid (n)
    t = Mul (n, s)
    y = Conv <pads=[1,1,1,1]> (t, second)
}}
"""
RESHAPED = """
    rows = Constant <value = int64[3] {0, 8, -1}> ()
    ones = Constant <value = float[8] {1, 1, 1, 1, 1, 1, 1, 1}> ()
    zeros = Constant <value = float[8] {0, 0, 0, 0, 0, 0, 0, 0}> ()
    v = Reshape (a, rows)
    i = InstanceNormalization <epsilon = 0.00001> (v, ones, zeros)
    shape = Shape (a)
    r = Reshape (i, shape)
    wide = Constant <value = int64[3] {32, 1, 1}> ()
    factor = Reshape (scale, wide)
    shift = Reshape (bias, wide)
    m = Mul (r, factor)
    n = Add (m, shift)
"""
FORMS = {
    "reshaped": (17, RESHAPED),
    "opset 21": (21, "n = GroupNormalization <num_groups = 8> (a, scale, bias)"),
    "channels last": (
        17,
        """
    l = Transpose <perm = [0, 2, 3, 1]> (a)
    g = com.microsoft.GroupNorm <groups = 8, activation = 0> (l, scale, bias)
    n = Transpose <perm = [0, 3, 1, 2]> (g)
    """,
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", DEVICES)
def test_no_casts_and_no_own_activation(device: str, form: str) -> None:
    opset, norm = FORMS[form]
    model = parse(BODY.format(side=SIDE, norm=norm), opset, ', "com.microsoft": 1')
    rng = np.random.default_rng(0)
    weights = (from_array(rng.standard_normal(shape, np.float32), name) for name, shape in SHAPES.items())
    model.graph.initializer.extend(weights)
    info = read_description(device)
    program = plan(ImportedModel(model.SerializeToString()), {"x": (1, 3, SIDE, SIDE)}, info)
    steps = [s for s in program.steps if isinstance(s, LaunchStep)]
    norms = [i for i, s in enumerate(steps) if s.kernel == "InstanceGroupNormPacked"]
    convolutions = [i for i, s in enumerate(steps) if s.kernel.startswith("Conv")]
    assert len(norms) == 3
    assert norms[0] - 1 in convolutions
    assert norms[-1] + 1 in convolutions
