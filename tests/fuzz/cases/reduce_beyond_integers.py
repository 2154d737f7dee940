"""Sums and products beyond the integer type end at its limits, as onnxruntime has them."""

from tests.fuzz.case import array, case, node

BIG = 2**31 - 7
CASE = case(
    opset=13,
    inputs={"x": [2, 3], "z": [2, 3]},
    feeds=[
        {
            "x": array([[BIG, BIG, 5], [-BIG, -BIG, 2]], "i4"),
            "z": array([[2**62, 2**62, 2**62], [-(2**62), -(2**62), -(2**62)]], "i8"),
        },
        {"x": array([[1, -2, 5], [0, 7, 2]], "i4"), "z": array([[1, -2, 5], [0, 7, 2]], "i8")},
    ],
    constants={"last": array([1], "i8")},
    nodes=[
        node("ReduceSum", ["x", "last"], ["sum"]),
        node("ReduceProd", ["x"], ["prod"], axes=[1]),
        node("ReduceL1", ["x"], ["l1"], axes=[0]),
        node("ReduceSumSquare", ["x"], ["squares"]),
        node("ReduceSum", ["z", "last"], ["sum8"]),
        node("ReduceProd", ["z"], ["prod8"], axes=[1]),
        node("ReduceL1", ["z"], ["l18"], axes=[0]),
    ],
    outputs=["sum", "prod", "l1", "squares", "sum8", "prod8", "l18"],
)
