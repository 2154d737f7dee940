"""A Pad that cuts off more than there is reaches into the padding of the other end."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=13,
    inputs={"x": [2, 3]},
    feeds=[{"x": noise((2, 3))}],
    constants={"pads": array([-3, 0, 4, 0], "i8"), "other": array([0, 5, 0, -4], "i8"), "value": array(1.5, "f4")},
    nodes=[node("Pad", ["x", "pads", "value"], ["y"]), node("Pad", ["x", "other"], ["z"])],
    outputs=["y", "z"],
)
