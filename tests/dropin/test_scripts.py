"""Scripts as people publish them, ported by the import line alone: they print the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onnx import TensorProto as T
from onnx import helper

from ..helpers.small_models import classifier, noise
from . import models

pytest.importorskip("onnxruntime")
SCRIPTS = Path(__file__).parent / "scripts"


def picture(folder: Path) -> str:
    y, x = np.mgrid[0:48, 0:64]
    pixels = np.stack([x * 4, y * 5, (x + y) * 2], -1).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "picture.png")
    return str(folder / "picture.png")


def save(folder: Path, model: Any) -> str:
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return str(folder / "model.onnx")


def image_classification(folder: Path) -> list[str]:
    model = classifier(("batch", 3, 32, 32))
    model.graph.node.pop()  # the softmax: the script has its own
    model.graph.node[-1].output[0] = "y"
    helper.set_model_props(model, {"labels": ",".join(f"class{i}" for i in range(10))})
    return [save(folder, model), picture(folder)]


def object_detection(folder: Path) -> list[str]:
    """One box for each of 8 x 8 cells, from a convolution."""
    nodes = [
        helper.make_node("Conv", ["images", "w"], ["cells"], strides=[4, 4], kernel_shape=[4, 4]),
        helper.make_node("Reshape", ["cells", "flat"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["table"], perm=[0, 2, 1]),
        helper.make_node("Split", ["table", "parts"], ["raw", "logits"], axis=2),
        helper.make_node("Abs", ["raw"], ["boxes"]),
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
    ]
    weights = {"w": noise(7, 3, 4, 4), "flat": np.array([1, 7, 64]), "parts": np.array([4, 3])}
    outs = [("boxes", T.FLOAT, [1, 64, 4]), ("scores", T.FLOAT, [1, 64, 3])]
    model = models.build(nodes, [("images", T.FLOAT, [1, 3, 32, 32])], outs, **weights)
    return [save(folder, model), picture(folder)]


def style_transfer(folder: Path) -> list[str]:
    nodes = [
        helper.make_node("Conv", ["input1", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("InstanceNormalization", ["a", "scale", "bias"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "v"], ["output1"], kernel_shape=[1, 1]),
    ]
    weights = {
        "w": noise(6, 3, 3, 3) / 50,
        "scale": np.full(6, 40, np.float32),
        "bias": np.full(6, 60, np.float32),
        "v": np.abs(noise(3, 6, 1, 1)),
    }
    ins = [("input1", T.FLOAT, ["batch", 3, "height", "width"])]
    model = models.build(nodes, ins, [("output1", T.FLOAT, ["batch", 3, "height", "width"])], **weights)
    return [save(folder, model), picture(folder), str(folder)]


def text_generation(folder: Path) -> list[str]:
    hidden, letters = 16, 27
    nodes = [
        helper.make_node("Gather", ["embedding", "token"], ["embedded"]),
        helper.make_node("GRU", ["embedded", "w", "r", "", "", "state"], ["all", "next_state"], hidden_size=hidden),
        helper.make_node("Squeeze", ["all", "one"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["logits"]),
    ]
    weights = {
        "embedding": noise(letters, 8),
        "w": noise(1, 3 * hidden, 8),
        "r": noise(1, 3 * hidden, hidden, seed=1),
        "head": noise(hidden, letters),
        "one": np.array([1]),
    }
    ins = [("token", T.INT64, [1, 1]), ("state", T.FLOAT, [1, 1, hidden])]
    outs = [("logits", T.FLOAT, [1, 1, letters]), ("next_state", T.FLOAT, [1, 1, hidden])]
    return [save(folder, models.build(nodes, ins, outs, **weights)), "opencl"]


def io_binding(folder: Path) -> list[str]:
    return [save(folder, classifier((2, 3, 8, 8)))]


@pytest.mark.parametrize(
    "prepare",
    [image_classification, object_detection, style_transfer, text_generation, io_binding],
    ids=lambda f: f.__name__,
)
def test_the_import_line_is_the_port(prepare: Any, tmp_path: Path) -> None:
    arguments = prepare(tmp_path)
    text = (SCRIPTS / f"{prepare.__name__}.py").read_text()
    ported, replaced = re.subn(r"^(import|from) onnxruntime\b", r"\1 opalite", text, flags=re.MULTILINE)
    ported = re.sub(r"^import opalite$", "import opalite as onnxruntime", ported, flags=re.MULTILINE)
    assert replaced > 0
    assert len([a for a, b in zip(text.splitlines(), ported.splitlines(), strict=True) if a != b]) == replaced
    printed = []
    for name, source in (("original", text), ("ported", ported)):
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        done = subprocess.run(
            [sys.executable, str(path), *arguments], capture_output=True, text=True, env=os.environ, check=False
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0].strip()
    assert printed[1] == printed[0]
