"""Det of half matrices, which NumPy's linear algebra refuses."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=16,
    inputs={"x": [2, 2, 2]},
    feeds=[{"x": noise((2, 2, 2), "f2")}],
    nodes=[node("Det", ["x"], ["y"])],
    outputs=["y"],
)
