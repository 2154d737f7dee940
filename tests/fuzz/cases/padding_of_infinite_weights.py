"""Zeros of the padding times infinite weights are NaN: such taps were skipped."""

from tests.fuzz.case import array, case, full, node

CASE = case(
    opset=13,
    inputs={"x": [1, 2, 4, 3], "v": [2, 1, 3, 3]},
    feeds=[
        {
            "x": full((1, 2, 4, 3), 1.5, "f4"),
            "v": array([[[[1.0, 2.0, float("inf")], [0.5] * 3, [1.0] * 3]], [[[1.0] * 3] * 3]], "f4"),
        }
    ],
    constants={
        "w": array([[[[1.0], [2.0]], [[float("nan")], [1.0]]], [[[1.0], [float("inf")]], [[1.0], [3.0]]]], "f4")
    },
    nodes=[
        node("Conv", ["x", "v"], ["a"], group=2, auto_pad="SAME_LOWER"),
        node("Conv", ["x", "w"], ["b"], pads=[1, 0, 0, 0]),
    ],
    outputs=["a", "b"],
)
