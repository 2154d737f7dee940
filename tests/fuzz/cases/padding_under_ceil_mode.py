"""With ceil_mode an average counts windows by where the padding ends: a Pad in front stays apart."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=17,
    inputs={"x": [1, 2, 6, 5]},
    feeds=[{"x": noise((1, 2, 6, 5))}],
    constants={"pads": array([0, 0, 0, 1, 0, 0, 1, 1], "i8")},
    nodes=[
        node("Pad", ["x", "pads"], ["a"]),
        node("AveragePool", ["a"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=1),
        node("Pad", ["x", "pads"], ["b"]),
        node("AveragePool", ["b"], ["z"], kernel_shape=[3, 2], strides=[3, 3], ceil_mode=1),
    ],
    outputs=["y", "z"],
)
