"""A kernel argument of type double, such as this epsilon, came out of a bundle as a number of no type."""

from tests.fuzz.case import case, full, node, noise

CASE = case(
    opset=17,
    inputs={"x": None},
    feeds=[{"x": noise((3, 5), "f8")}],
    constants={"scale": full((5,), 2, "f8")},
    nodes=[node("LayerNormalization", ["x", "scale"], ["y"], epsilon=0.001, stash_type=11)],
    outputs=["y"],
)
