"""A product of rows that an instance normalisation gives: the pass that fuses them asked it for an axis."""

from tests.fuzz.case import case, full, node, noise

CASE = case(
    opset=10,
    inputs={"x": [1, 2, 3]},
    feeds=[{"x": noise((1, 2, 3))}],
    constants={"scale": full((2,), 1), "bias": full((2,), -0.5), "w": noise((3, 4))},
    nodes=[
        node("InstanceNormalization", ["x", "scale", "bias"], ["a"]),
        node("MatMul", ["a", "w"], ["y"]),
    ],
    outputs=["y"],
)
