"""A size computed from halves rounded up is still what it is after a later guard on a product with it."""

from tests.fuzz.case import array, case, full, node

CASE = case(
    opset=11,
    inputs={"x": ["n2", "n2", "n2", "n17"]},
    feeds=[
        {"x": full((2, 2, 2, 17), 1.0, "f4")},
        {"x": full((2, 2, 2, 17), 2.0, "f4")},
        {"x": full((2, 2, 2, 1), 1.0, "f4")},
    ],
    constants={
        "w": full((17, 2, 5, 5), 1.0, "f4"),
        "all": array([-1], "i8"),
        "start": array([114], "i8"),
        "end": array([130], "i8"),
    },
    nodes=[
        node("Split", ["x"], ["a", "b"], axis=1),
        node("Concat", ["b", "a"], ["c"], axis=1),
        node("Conv", ["c", "w"], ["y"], pads=[2, 3, 3, 1]),
        node("Reshape", ["c", "all"], ["flat"]),
        node("Slice", ["flat", "start", "end"], ["z"]),
    ],
    outputs=["y", "z"],
)
