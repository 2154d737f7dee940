"""Squares and cubes of integers wrap around, also where the exponent is a float."""

from tests.fuzz.case import array, case, node

CASE = case(
    opset=15,
    inputs={"x": [4]},
    feeds=[{"x": array([70000, -70000, 3, -2], "i4")}],
    constants={"two": array(2.0, "f4"), "three": array([3.0], "f4")},
    nodes=[node("Pow", ["x", "two"], ["y"]), node("Pow", ["x", "three"], ["z"])],
    outputs=["y", "z"],
)
