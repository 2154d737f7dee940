"""Unique with sorted=0 gives elements as they first occur; they came sorted, and along an axis not at all."""

from tests.fuzz.case import array, case, node

CASE = case(
    opset=17,
    inputs={"x": [1, 3, 1, 1]},
    feeds=[{"x": array([[[[0.2]], [[-0.2]], [[0.2]]]], "f4")}],
    nodes=[
        node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=0),
        node("Unique", ["x"], ["rows"], sorted=0, axis=1),
    ],
    outputs=["y", "first", "inverse", "counts", "rows"],
)
