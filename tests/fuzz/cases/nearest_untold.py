"""Resize 10 rounds up along the axes that shrink, and down along the others."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=10,
    inputs={"x": [1, 1, 8, 5]},
    feeds=[{"x": noise((1, 1, 8, 5))}],
    constants={"scales": array([1, 1, 0.6, 1.5], "f4")},
    nodes=[node("Resize", ["x", "scales"], ["y"], mode="nearest")],
    outputs=["y"],
)
