"""onnx's inference ends the process at an EyeLike whose input has no type yet, as behind an operator unknown to it."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=13,
    inputs={"x": [3, 3]},
    feeds=[{"x": noise((3, 3))}],
    nodes=[node("Gelu", ["x"], ["a"], domain="com.microsoft"), node("EyeLike", ["a"], ["y"], k=1, dtype=1)],
    outputs=["y"],
)
