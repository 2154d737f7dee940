"""A reshape around a product of doubles, on a device without them, was to be packed, which no kernel there does."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=18,
    inputs={"x": [1, 4, 1, 1]},
    feeds=[{"x": noise((1, 4, 1, 1), "f8")}],
    constants={"w": array([-0.8], "f8")},
    nodes=[node("MatMul", ["x", "w"], ["y"])],
    outputs=["y"],
)
