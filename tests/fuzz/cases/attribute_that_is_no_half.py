"""An attribute is a float32, also where it meets halves: 1.2 is less than the half next to it, and 1/6 more."""

from tests.fuzz.case import array, case, node

CASE = case(
    opset=21,
    inputs={"x": [1, 5], "z": [1, 4]},
    feeds=[
        {
            "x": array([[-1.1, -3.1, 1.2, 1.201, 2.0]], "f2"),
            "z": array([[-3.0, -2.998, 2.998, 1.0]], "f2"),
        }
    ],
    constants={
        "a": array([[-1.1, 1.2, 1.201]], "f2"),
        "b": array([[-3.0, -2.0, 2.998]], "f2"),
    },
    nodes=[
        node("ThresholdedRelu", ["a"], ["v"], alpha=1.2),
        node("HardSwish", ["b"], ["w"]),
        node("ThresholdedRelu", ["x"], ["y"], alpha=1.2),
        node("HardSwish", ["z"], ["u"]),
    ],
    outputs=["v", "w", "y", "u"],
)
