"""Channels that are open, before a convolution whose filters tell how many there are: a table was made of a size."""

from tests.fuzz.case import case, full, node

CASE = case(
    opset=17,
    inputs={"x": [6, "size", "size", 3, 17]},
    feeds=[{"x": full((6, 3, 3, 3, 17), 1)}, {"x": full((6, 3, 3, 3, 17), 2)}],
    constants={"w": full((24, 3, 2, 3, 3), 1), "b": full((24,), 1)},
    nodes=[node("Conv", ["x", "w", "b"], ["y"], pads=[0, 2, 1, 1, 2, 0])],
    outputs=["y"],
)
