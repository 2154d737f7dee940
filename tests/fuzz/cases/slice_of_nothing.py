"""A slice without elements beside others: the verifier of memory looked for what it reads."""

from tests.fuzz.case import array, case, full, node

CASE = case(
    opset=19,
    inputs={"a": [1, 1], "b": [1, 65]},
    feeds=[{"a": array([[0.7]], "f4"), "b": full((1, 65), 1)}],
    constants={"w": array([[0.4]], "f4"), "axis": array([-3], "i8"), "one": array([1], "i8"), "zero": array([0], "i8")},
    nodes=[
        node("Gemm", ["a", "w"], ["product"]),
        node("Unsqueeze", ["b", "axis"], ["c"]),
        node("Slice", ["product", "one", "zero"], ["d"]),
    ],
    outputs=["c", "d"],
)
