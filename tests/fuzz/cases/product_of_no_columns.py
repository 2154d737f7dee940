"""A product with a matrix without columns, of dequantised integers: a pass divided its elements by its columns."""

from tests.fuzz.case import array, case, full, node, noise

CASE = case(
    opset=18,
    inputs={"x": [5, 3]},
    feeds=[{"x": noise((5, 3))}],
    constants={"w": full((3, 0), 1, "u1"), "scale": array(0.5, "f4"), "zero": array(3, "u1")},
    nodes=[
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
        node("DequantizeLinear", ["w", "scale", "zero"], ["b"]),
        node("MatMul", ["a", "b"], ["y"]),
    ],
    outputs=["y"],
)
