"""Sums of many positive terms: rounding errors stay as small as those of blocks, general programs included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper, numpy_helper

from ...helpers.onnx_text import by_reference

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "row by matrix": ("MatMul", (1, 100_000), (100_000, 20), {}),
    "matrices": ("MatMul", (5, 20_000), (20_000, 33), {}),
    "transposed": ("Gemm", (5, 20_000), (33, 20_000), {"transB": 1}),
    "batches": ("MatMul", (2, 3, 20_000), (2, 20_000, 5), {}),
    "convolution of a pixel": ("Conv", (1, 20_000, 1, 1), (17, 20_000, 1, 1), {}),
    "convolution 1x1": ("Conv", (1, 100_000, 3, 3), (17, 100_000, 1, 1), {}),
    "convolution 3x3": ("Conv", (1, 2_222, 5, 5), (17, 2_222, 3, 3), {"pads": [1, 1, 1, 1]}),
    "convolution of lines": ("Conv", (1, 2_500, 20), (3, 2_500, 8), {}),
    "transposed convolution": ("ConvTranspose", (1, 20_000, 3, 3), (20_000, 17, 2, 2), {}),
    "softmax of columns": ("Softmax", (20_000, 4), (), {"axis": 0}),
}
"""Operator, shapes of x and w, attributes."""
LARGEST = 1.5e-6
"""Relative error: a running sum of 20,000 terms comes to 5e-6 and more, blocks to a tenth of it."""


def model_of(op: str, x: Any, w: Any, dtype: Any, constant: bool, **attributes: Any) -> tuple[Any, dict[str, Any]]:
    arrays = {"x": x.astype(dtype)} | ({"w": w.astype(dtype)} if w.ndim else {})
    free = {n: a for n, a in arrays.items() if not (constant and n == "w")}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in free.items()
    ]
    constants = [numpy_helper.from_array(a, n) for n, a in arrays.items() if n not in free]
    node = helper.make_node(op, list(arrays), ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), free


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "input"])
@pytest.mark.parametrize("name", CASES)
def test_long_sums_are_as_exact_as_blocks(name: str, constant: bool) -> None:
    op, x_shape, w_shape, attributes = CASES[name]
    rng = np.random.default_rng(5)
    x, w = rng.random(x_shape, np.float32), rng.random(w_shape, np.float32) if w_shape else np.float32(0)
    wide, feeds = model_of(op, x, np.asarray(w), np.float64, False, **attributes)
    (want,) = by_reference(wide, feeds)
    model, feeds = model_of(op, x, np.asarray(w), np.float32, constant, **attributes)
    session = opalite.InferenceSession(model.SerializeToString(), precision="fp32")
    for _ in range(2):  # by general programs, if they are there, and by those made for the graph
        (got,) = session.run(None, feeds)
        assert np.abs(np.asarray(got, np.float64) / want - 1).max() < LARGEST
        assert session.settle(120)
