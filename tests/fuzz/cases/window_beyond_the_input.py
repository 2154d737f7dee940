"""A window that is larger than the padded input, by less than a stride, has one position."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=18,
    inputs={"x": [1, 2, 2, 5]},
    feeds=[{"x": noise((1, 2, 2, 5))}],
    nodes=[
        node("MaxPool", ["x"], ["most"], kernel_shape=[3, 2], strides=[2, 2]),
        node("AveragePool", ["x"], ["mean"], kernel_shape=[3, 2], strides=[2, 2]),
        node("AveragePool", ["x"], ["none"], kernel_shape=[3, 2], strides=[1, 2]),
    ],
    outputs=["most", "mean", "none"],
)
