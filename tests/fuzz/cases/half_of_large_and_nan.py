"""A constant beyond half's range keeps its node in float32, also with a NaN beside."""

from tests.fuzz.case import array, case, node

CASE = case(
    opset=17,
    inputs={"x": [4]},
    feeds=[{"x": array([1e-6, 2e-6, 1.0, 3e-7], "f4")}],
    constants={"c": array([float("nan"), 1e6, 2.0, 1e6], "f4")},
    nodes=[node("Mul", ["x", "c"], ["y"])],
    outputs=["y"],
)
