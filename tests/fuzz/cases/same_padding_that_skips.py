"""Pooling with auto_pad SAME centres windows that are smaller than the stride."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=22,
    inputs={"x": [1, 2, 8, 4]},
    feeds=[{"x": noise((1, 2, 8, 4))}],
    nodes=[
        node("AveragePool", ["x"], ["upper"], kernel_shape=[2, 1], strides=[4, 4], auto_pad="SAME_UPPER"),
        node("LpPool", ["x"], ["lower"], kernel_shape=[2, 1], strides=[4, 4], auto_pad="SAME_LOWER"),
    ],
    outputs=["upper", "lower"],
)
