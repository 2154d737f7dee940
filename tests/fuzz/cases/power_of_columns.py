"""A cube that the integer type does not hold, where onnxruntime goes through one element a row and does not wrap."""

from tests.fuzz.case import array, case, node

CASE = case(
    opset=17,
    inputs={"x": [1, 2, 1]},
    feeds=[{"x": array([[[48290], [-373]]], "i4")}],
    constants={"three": array(3, "i8")},
    nodes=[node("Pow", ["x", "three"], ["y"])],
    outputs=["y"],
)
