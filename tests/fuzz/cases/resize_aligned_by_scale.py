"""align_corners with a fractional scale: the last pixels are those of the input, whatever the scale leaves over."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=17,
    inputs={"x": [1, 1, 5, 7]},
    feeds=[{"x": noise((1, 1, 5, 7))}],
    constants={"scales": array([1, 1, 1.3, 1.45], "f4")},
    nodes=[
        node("Resize", ["x", "", "scales"], ["linear"], mode="linear", coordinate_transformation_mode="align_corners"),
        node("Resize", ["x", "", "scales"], ["cubic"], mode="cubic", coordinate_transformation_mode="align_corners"),
    ],
    outputs=["linear", "cubic"],
)
