"""The filter of Resize with antialias runs along axes whose size changes only, whatever the scale of the others."""

from tests.fuzz.case import array, case, node, noise

CASE = case(
    opset=18,
    inputs={"x": [1, 1, 4, 6]},
    feeds=[{"x": noise((1, 1, 4, 6))}],
    constants={"scales": array([1, 1, 1.2, 1.4], "f4")},
    nodes=[
        node("Resize", ["x", "", "scales"], ["linear"], mode="linear", antialias=1),
        node("Resize", ["x", "", "scales"], ["cubic"], mode="cubic", antialias=1),
    ],
    outputs=["linear", "cubic"],
)
