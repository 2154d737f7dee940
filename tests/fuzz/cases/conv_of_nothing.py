"""Layers of no elements between others: they were planned as launches without a size."""

from tests.fuzz.case import case, full, node, noise

CASE = case(
    opset=17,
    inputs={"x": [0, 3, 8, 8], "t": [2, 3]},
    feeds=[{"x": full((0, 3, 8, 8), 0), "t": noise((2, 3))}],
    constants={"w": noise((4, 3, 3, 3)), "b": full((4,), 0.5)},
    nodes=[
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2]),
        node("Softmax", ["p"], ["y"]),
        node("Tanh", ["t"], ["z"]),
    ],
    outputs=["y", "z"],
)
