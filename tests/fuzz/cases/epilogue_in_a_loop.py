"""The same behind a convolution, in the body of a Loop."""

from tests.fuzz.case import array, case, full, graph, node

CASE = case(
    opset=17,
    inputs={"x19": ["n2", "n8", "n3", "n6", "n7"]},
    feeds=[
        {"x19": full((2, 8, 3, 6, 7), 1.0, "f4")},
    ],
    constants={
        "c20": full((2, 4, 2, 2, 2), 1.0, "f4"),
        "c41": array(5, "i8"),
        "c43": array(True, "b1"),
        "x33": full((2, 2, 1, 3, 2), 1.0, "f4"),
    },
    nodes=[
        node("Conv", ["x19", "c20"], ["v21"], dilations=[2, 1, 3], group=2, strides=[2, 2, 2]),
        node(
            "Loop",
            ["c41", "c43", "v21"],
            ["v44"],
            body=graph(
                {"n34": ("i8", []), "go35": ("b1", []), "k36": ("f4", [2, 2, 1, 3, 2])},
                [
                    node("Relu", ["k36"], ["i37"]),
                    node("Sin", ["i37"], ["i38"]),
                    node("Mul", ["i38", "x33"], ["i39"]),
                    node("Identity", ["go35"], ["go40"]),
                ],
                ["go40", "i39"],
                {},
            ),
        ),
    ],
    outputs=["v44"],
)
