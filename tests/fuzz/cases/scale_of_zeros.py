"""The scale of a dynamically quantised tensor of zeros is 1, not 0."""

from tests.fuzz.case import case, full, node

CASE = case(
    opset=13,
    inputs={"x": [2, 3]},
    feeds=[{"x": full((2, 3), 0)}],
    nodes=[
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ],
    outputs=["q", "scale", "zero", "y"],
)
