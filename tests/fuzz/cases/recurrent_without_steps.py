"""The states of sequences without steps are zeros in onnxruntime, whatever they began with."""

from tests.fuzz.case import array, case, full, node, noise

CASE = case(
    opset=14,
    inputs={"x": [3, 2, 4]},
    feeds=[{"x": noise((3, 2, 4))}],
    constants={
        "lens": array([0, 2], "i4"),
        "none": array([0, 0], "i4"),
        "h": full((1, 2, 5), 0.5),
        "wl": noise((1, 20, 4), "f4", 1),
        "rl": noise((1, 20, 5), "f4", 2),
        "wg": noise((1, 15, 4), "f4", 1),
        "rg": noise((1, 15, 5), "f4", 2),
    },
    nodes=[
        node("LSTM", ["x", "wl", "rl", "", "lens", "h", "h"], ["a", "ah", "ac"], hidden_size=5),
        node("GRU", ["x", "wg", "rg", "", "lens", "h"], ["b", "bh"], hidden_size=5, direction="reverse"),
        node("GRU", ["x", "wg", "rg", "", "none", "h"], ["c", "ch"], hidden_size=5),
    ],
    outputs=["a", "ah", "ac", "b", "bh", "c", "ch"],
)
