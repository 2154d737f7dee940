"""With ceil_mode a last window counts if it starts within the input or its left padding, whatever gave the padding."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=18,
    inputs={"x": [1, 2, 2, 6]},
    feeds=[{"x": noise((1, 2, 2, 6))}],
    nodes=[
        node("MaxPool", ["x"], ["outside"], kernel_shape=[2, 1], strides=[3, 1], pads=[1, 0, 1, 0], ceil_mode=1),
        node("MaxPool", ["x"], ["valid"], kernel_shape=[1, 3], strides=[1, 2], auto_pad="VALID", ceil_mode=1),
        node("AveragePool", ["x"], ["mean"], kernel_shape=[1, 3], strides=[1, 2], auto_pad="VALID", ceil_mode=1),
    ],
    outputs=["outside", "valid", "mean"],
)
