"""Any number of a window is larger than NaN, wherever the NaN stands."""

from tests.fuzz.case import array, case, node

NAN = float("nan")
CASE = case(
    opset=18,
    inputs={"x": [1, 2, 4]},
    feeds=[{"x": array([[[1, NAN, 2, 0], [NAN, 3, NAN, 1]]], "f4")}],
    nodes=[
        node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2]),
        node("MaxPool", ["x"], ["z"], kernel_shape=[2], strides=[1]),
    ],
    outputs=["y", "i", "z"],
)
