"""What a node without elements would read need not be there: the verifier of memory looked for it."""

from tests.fuzz.case import array, case, full, node

CASE = case(
    opset=18,
    inputs={"x": [7], "v": [7], "e": [0, 1], "k": [3]},
    feeds=[{"x": full((7,), 1), "v": full((7,), 1), "e": full((0, 1), 0), "k": full((3,), 1)}],
    constants={"s0": array([1], "i8"), "s1": array([4], "i8")},
    nodes=[
        node("Cos", ["x"], ["a"]),
        node("Slice", ["v", "s0", "s1"], ["b"]),
        node("Add", ["e", "a"], ["y"]),
        node("Mul", ["b", "k"], ["m"]),
        node("Split", ["m"], ["z0", "z"], axis=0, num_outputs=2),
    ],
    outputs=["y", "z"],
)
