"""erf ended at 0.99999994, so that Gelu of a large negative number was large."""

from tests.fuzz.case import array, case, node

CASE = case(
    opset=20,
    inputs={"x": [6], "z": [6]},
    feeds=[
        {
            "x": array([-3e38, -1e30, -100.0, -7.0, 100.0, 3e38], "f4"),
            "z": array([-3e38, -1e12, -100.0, -10.5, 100.0, 3e38], "f4"),
        }
    ],
    nodes=[
        node("Gelu", ["x"], ["y"]),
        node("Tanh", ["z"], ["t"]),
        node("Erf", ["x"], ["e"]),
    ],
    outputs=["y", "t", "e"],
)
