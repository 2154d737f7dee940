"""Tensors without elements are joined whatever their other sizes, as onnxruntime has it."""

from tests.fuzz.case import case, full, node

CASE = case(
    opset=18,
    inputs={"x": ["a", "b", "c", 0], "y": ["d", "e", "f", 0]},
    feeds=[{"x": full((6, 1, 5, 0), 0), "y": full((3, 13, 5, 0), 0)}],
    nodes=[node("Concat", ["x", "y", "x"], ["z"], axis=1)],
    outputs=["z"],
)
