"""A scale after a convolution that is no number stays out of the filters: infinity times their zeros would be NaN."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=17,
    inputs={"x": [1, 2, 4, 4]},
    feeds=[{"x": noise((1, 2, 4, 4))}],
    constants={
        "w": array([[[[1.0]], [[0.0]]], [[[0.5]], [[2.0]]], [[[1.0]], [[1.0]]]], "f4"),
        "v": array([[[[1.0]], [[2.0]]], [[[0.5]], [[0.0]]], [[[1.0]], [[1.0]]]], "f4"),
        "scale": array([[[float("inf")]], [[2.0]], [[1.0]]], "f4"),
        "divisor": array([[[2.0]], [[0.0]], [[1.0]]], "f4"),
    },
    nodes=[
        node("Conv", ["x", "w"], ["a"]),
        node("Mul", ["a", "scale"], ["y"]),
        node("Conv", ["x", "v"], ["b"]),
        node("Div", ["b", "divisor"], ["z"]),
    ],
    outputs=["y", "z"],
)
