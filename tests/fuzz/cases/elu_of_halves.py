"""exp(x) - 1 of a small half was computed in halves by the reference: a fifth of the value was lost."""

from tests.fuzz.case import array, case, node

CASE = case(
    opset=10,
    inputs={"x": [2]},
    feeds=[{"x": array([0.0003154, -0.0012407], "f2")}],
    nodes=[node("Elu", ["x"], ["y"])],
    outputs=["y"],
)
