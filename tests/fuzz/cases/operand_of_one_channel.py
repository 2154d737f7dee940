"""An operand of fewer axes fused to a pool of one channel had its own axis 1, which is no channel, packed as one."""

import numpy as np
from tests.fuzz.case import case, node

RNG = np.random.default_rng(3)


def drawn(*shape):
    return RNG.uniform(1, 3, shape).astype("f4")


CASE = case(
    opset=18,
    inputs={"x": [13, 1, 1, 16], "row": [16], "w": [13, 1, 4, 16], "plane": [4, 16]},
    feeds=[{"x": drawn(13, 1, 1, 16), "row": drawn(16), "w": drawn(13, 1, 4, 16), "plane": drawn(4, 16)}],
    nodes=[
        node("AveragePool", ["x"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1),
        node("Div", ["a", "row"], ["y"]),
        node("AveragePool", ["w"], ["b"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1),
        node("Mul", ["b", "plane"], ["z"]),
    ],
    outputs=["y", "z"],
)
