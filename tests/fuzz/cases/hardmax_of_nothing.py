"""Hardmax of a tensor without elements was refused."""

from tests.fuzz.case import case, full, node

CASE = case(
    opset=13,
    inputs={"x": [3, 0]},
    feeds=[{"x": full((3, 0), 0)}],
    nodes=[node("Hardmax", ["x"], ["y"])],
    outputs=["y"],
)
