"""What a condition of Compress says of positions beyond the axis is not read."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=11,
    inputs={"x": [3, 4]},
    feeds=[{"x": noise((3, 4))}],
    constants={"condition": array([False, True, True, False, True, True], "?")},
    nodes=[node("Compress", ["x", "condition"], ["y"], axis=0), node("Compress", ["x", "condition"], ["z"], axis=1)],
    outputs=["y", "z"],
)
