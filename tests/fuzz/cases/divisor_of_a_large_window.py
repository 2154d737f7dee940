"""Up to opset 18 the average over a window that is larger than the padded input is divided by all of the window."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=11,
    inputs={"x": [1, 2, 2, 5]},
    feeds=[{"x": noise((1, 2, 2, 5))}],
    nodes=[node("AveragePool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], count_include_pad=1)],
    outputs=["y"],
)
