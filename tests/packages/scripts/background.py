"""A picture without its background, by rembg with a model of one's own."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from rembg import new_session, remove

import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
weights = {
    "down": rng.standard_normal((8, 3, 5, 5)).astype(np.float32) / 6,
    "middle": rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 6,
    "up": rng.standard_normal((8, 1, 4, 4)).astype(np.float32) / 6,
}
nodes = [
    helper.make_node("Conv", ["x", "down"], ["a"], strides=[2, 2], pads=[2, 2, 2, 2]),
    helper.make_node("Relu", ["a"], ["b"]),
    helper.make_node("Conv", ["b", "middle"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["d"]),
    helper.make_node("ConvTranspose", ["d", "up"], ["e"], strides=[2, 2], pads=[1, 1, 1, 1]),
    helper.make_node("Sigmoid", ["e"], ["y"]),
]
port = lambda name, channels: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 320, 320])  # noqa: E731
initializers = [numpy_helper.from_array(v, n) for n, v in weights.items()]
graph = helper.make_graph(nodes, "net", [port("x", 3)], [port("y", 1)], initializers)
y, x = np.mgrid[0:120, 0:160]
pixels = np.stack([x, 2 * y, 255 - x], -1).astype(np.uint8)
with tempfile.TemporaryDirectory() as folder:
    os.environ["U2NET_HOME"] = folder  # rembg opens models of this folder only
    path = str(Path(folder, "net.onnx"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    session = new_session("u2net_custom", model_path=path)
    np.savez(sys.argv[1], mask=np.asarray(remove(Image.fromarray(pixels), session=session, only_mask=True)))
