"""The same behind a reduction, whose rounding was lost."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=11,
    inputs={"x1": ["n11", "n1", "n5", "n1"]},
    feeds=[
        {"x1": noise((11, 2, 5, 2), "f2", 0)},
    ],
    nodes=[
        node("AveragePool", ["x1"], ["v5"], kernel_shape=[2, 2]),
        node("ReduceSum", ["v5"], ["v6"], axes=[3], keepdims=0),
        node("Floor", ["v6"], ["v9"]),
    ],
    outputs=["v9"],
)
