"""A row of scores that are all -inf is NaN after a Softmax, also where it is recognised as attention."""

from tests.fuzz.case import array, case, node, noise

NOT = float("-inf")
CASE = case(
    opset=17,
    inputs={"q": [1, 2, 3, 4], "mask": [3, 3]},
    feeds=[
        {"q": noise((1, 2, 3, 4)), "mask": array([[0, NOT, NOT], [NOT, NOT, NOT], [0, 0, 0]], "f4")},
        {"q": noise((1, 2, 3, 4)), "mask": array([[0, NOT, NOT], [0, 0, NOT], [0, 0, 0]], "f4")},
    ],
    nodes=[
        node("Transpose", ["q"], ["k"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "k"], ["s"]),
        node("Add", ["s", "mask"], ["t"]),
        node("Softmax", ["t"], ["p"]),
        node("MatMul", ["p", "q"], ["y"]),
    ],
    outputs=["y"],
)
