"""The mean of no elements is 0."""

from tests.fuzz.case import case, full, node

CASE = case(
    opset=13,
    inputs={"x": [2, 0, 3]},
    feeds=[{"x": full((2, 0, 3), 0)}],
    nodes=[
        node("ReduceMean", ["x"], ["y"], axes=[1]),
        node("ReduceMean", ["x"], ["z"], axes=[1, 2], keepdims=0),
    ],
    outputs=["y", "z"],
)
