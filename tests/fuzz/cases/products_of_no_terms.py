"""A product with a constant matrix of no rows: kernels for matrix units had no tile for it, and planning failed."""

from tests.fuzz.case import case, full, node

CASE = case(
    opset=17,
    inputs={"x": ["rows", 0]},
    feeds=[{"x": full((17, 0), 0)}, {"x": full((3, 0), 0)}],
    nodes=[node("MatMul", ["x", "w"], ["p"]), node("Tanh", ["p"], ["y"])],
    outputs=["y"],
    constants={"w": full((0, 32), 0)},
)
