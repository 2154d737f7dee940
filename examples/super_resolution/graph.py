"""The network as an ONNX graph, built from its weights with onnx.helper; PyTorch is not needed.

    x[1,3,H,W] in 0..1, RGB
      head  5x5, 3 -> 32, PReLU
      body  three times: y + conv3x3(PReLU(conv3x3(y)))
      tail  3x3, 32 -> 12, pixel shuffle: [1,3,2H,2W]
      plus x enlarged bilinearly, clipped to 0..1

H and W are free. The structure is ESPCN's (Shi et al., 2016) with residual blocks: all convolutions run at the
small size, and the network has to learn only what bilinear enlarging lacks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 32
BLOCKS = 3

Weights = dict[str, NDArray[np.float32]]


def build(weights: Weights) -> onnx.ModelProto:
    """The ONNX model of `weights`: NAME.weight and NAME.bias of each convolution, NAME.slope of each PReLU."""
    nodes: list[onnx.NodeProto] = []

    def add(op: str, inputs: list[str], name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(x: str, name: str) -> str:
        pad = weights[f"{name}.weight"].shape[-1] // 2
        kernel = [2 * pad + 1] * 2
        return add("Conv", [x, f"{name}.weight", f"{name}.bias"], name, kernel_shape=kernel, pads=[pad] * 4)

    def prelu(x: str) -> str:
        return add("PRelu", [x, f"{x}.slope"], f"{x}.prelu")

    y = prelu(conv("x", "head"))
    for i in range(BLOCKS):
        inner = conv(prelu(conv(y, f"body{i}.conv0")), f"body{i}.conv1")
        y = add("Add", [y, inner], f"body{i}.sum")
    detail = add("DepthToSpace", [conv(y, "tail")], "shuffle", blocksize=2, mode="CRD")
    enlarged = add(
        "Resize", ["x", "", "scales"], "enlarged", mode="linear", coordinate_transformation_mode="half_pixel"
    )
    total = add("Add", [enlarged, detail], "sum")
    add("Clip", [total, "zero", "one"], "y")

    constants = {**weights, "scales": np.float32([1, 1, 2, 2]), "zero": np.float32(0), "one": np.float32(1)}
    graph = helper.make_graph(
        nodes,
        "super_resolution_x2",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "height", "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, "height_x2", "width_x2"])],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )
    model = helper.make_model(graph, producer_name="opalite-examples", ir_version=8)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 13))
    onnx.checker.check_model(model, full_check=True)
    return model
