"""A backward slice that starts before the first element starts there; NumPy would take nothing."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=13,
    inputs={"x": [3, 4]},
    feeds=[{"x": noise((3, 4))}],
    constants={
        "starts": array([-9, 3], "i8"),
        "ends": array([-(2**31), 0], "i8"),
        "axes": array([0, 1], "i8"),
        "steps": array([-1, -2], "i8"),
    },
    nodes=[node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])],
    outputs=["y"],
)
