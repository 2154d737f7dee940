"""A ConvTranspose with an output_shape beyond its filters' reach has zeros at the end, not on both sides."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=17,
    inputs={"x": [1, 2, 3]},
    feeds=[{"x": noise((1, 2, 3))}],
    constants={"w": noise((2, 2, 2), "f4", 1)},
    nodes=[node("ConvTranspose", ["x", "w"], ["y"], strides=[3], output_shape=[10])],
    outputs=["y"],
)
