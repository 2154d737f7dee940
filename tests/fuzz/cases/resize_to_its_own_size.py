"""Resize by a scale that changes no size is a copy in onnxruntime; positions by the scale moved the values."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=17,
    inputs={"x": [1, 1, 3, 5]},
    feeds=[{"x": noise((1, 1, 3, 5))}],
    constants={"scales": array([1, 1, 1.3, 1.15], "f4")},
    nodes=[
        node("Resize", ["x", "", "scales"], ["nearest"], mode="nearest"),
        node("Resize", ["x", "", "scales"], ["linear"], mode="linear", coordinate_transformation_mode="asymmetric"),
        node("Resize", ["x", "", "scales"], ["cubic"], mode="cubic"),
    ],
    outputs=["nearest", "linear", "cubic"],
)
