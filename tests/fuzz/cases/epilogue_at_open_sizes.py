"""At open sizes no kernel takes the epilogue that one takes at the sizes at hand."""

from tests.fuzz.case import case, full, node

CASE = case(
    opset=13,
    inputs={"x1": ["n8", "n7", "n7", "n2"]},
    feeds=[
        {"x1": full((8, 7, 7, 2), 1.0, "f8")},
    ],
    constants={
        "x11": full((8, 7, 2, 1), 1.0, "f8"),
    },
    nodes=[
        node("MaxPool", ["x1"], ["v15"], kernel_shape=[4, 3], pads=[2, 1, 2, 1], strides=[6, 5]),
        node("Sub", ["v15", "x11"], ["v16"]),
    ],
    outputs=["v16"],
)
