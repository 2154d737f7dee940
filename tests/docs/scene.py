"""A folder with all files that the documents' commands name, and what stands for their placeholders."""

from __future__ import annotations

import re
import shutil
import wave
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

import onnx
import opalite
from onnx import TensorProto, helper, numpy_helper

from ..helpers import encoder_decoders
from ..helpers.embedders import make_embedder
from ..helpers.words import END, make_folder
from .commands import ROOT, Command

MODELS = ("model.onnx", "MODEL.onnx", "mobilenetv2_fp32.onnx", "resnet20_cifar.onnx", "path/to/model.onnx", "roll.onnx")
_PLACES = (
    (r"\[(?=-)|(?<=\S)\](?=\s|$)|\[MODEL \.\.\.\]|\.\.\.", ""),  # [--option VALUE] may be left out
    (r"\bINPUT:1x2x3\b", "input:1x3x32x32"),
    (r"\bMODELS?(?=\s|$)|\bNAMES(?=\s|$)", "model.onnx"),
    (r"(?<=--node )NAME\b", "conv1"),
    (r"\bcases/NAME\.py", "cases/det_half.py"),
    (r"\bWHISPER_FOLDER\b", "whisper"),
    (r"\bEMBEDDER_FOLDER\b", "embedder"),
    (r"\bFOLDER(?=/null-)", "found"),
    (r"\bFOLDER(?=/|\s|$)", "models"),
    (r"\bFILE(?=\s|$)", "file.json"),
)
_COPIED = ("src", "tests", "benchmarks", "examples", "docs")


def fill_in(command: Command) -> Command:
    """The command with files of the scene where it has placeholders."""
    text = command.text
    for pattern, word in _PLACES:
        text = re.sub(pattern, word, text)
    return replace(command, text=text)


def make_scene(folder: Path, *, sources: bool = False) -> Path:
    """Make the files below `folder`, and return the folder to run commands in.

    sources: it is a copy of the checkout, with another one beside it.
    """
    work, before = folder / "work", folder / "before"
    for checkout in (work, before) if sources else ():
        for name in _COPIED:
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        for path in (p for p in ROOT.iterdir() if p.is_file() and p.name != ".git"):
            shutil.copy(path, checkout)
    for path in (before / "src", work / "RECORD"):
        path.mkdir(parents=True, exist_ok=True)
    model = classifier()
    for name in (*MODELS, "models/model.onnx", "found/null-17.onnx"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(model.SerializeToString())
    picture = np.random.default_rng(0).integers(0, 256, (48, 40, 3), np.uint8)
    for path in (work / "photo.jpg", work / "holiday.jpg", work / "examples" / "super_resolution" / "holiday.jpg"):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    for name in ("roll.py", "my_softmax.py"):
        (work / name).touch()
    (work / "script.py").write_text("import onnxruntime\n\nprint(onnxruntime.get_device())\n")
    if find_spec("tokenizers") is not None:
        write_hearing(work)
        make_embedder(work / "embedder")
    return work


def write_hearing(work: Path) -> None:
    """A small model that hears, and two seconds to hear."""
    files = {
        "encoder_model.onnx": encoder_decoders.encoder(reads_text=False, hears=True),
        "decoder_model_merged.onnx": encoder_decoders.merged(),
    }
    told = {"feature_size": encoder_decoders.FEATURES, "chunk_length": 1}
    # As many tokens as the decoder has learned positions for.
    generation = {"decoder_start_token_id": END, "max_new_tokens": 8}
    make_folder(work / "whisper", files, preprocessor_config=told, generation_config=generation)
    with wave.open(str(work / "speech.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.random.default_rng(2).integers(-9000, 9000, 16000, np.int16).tobytes())


def store_outputs(work: Path) -> None:
    """Write inputs and expected outputs next to the models of folders."""
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    session = opalite.InferenceSession(work / "models" / "model.onnx")
    (y,) = session.run(None, {"input": x})
    np.savez(work / "models" / "model.npz", **{"in:input": x, "out:y": y})
    np.savez(work / "found" / "null-17.npz", **{"0|input": x})


def classifier() -> onnx.ModelProto:
    """A few layers from a picture of any size to ten classes."""
    rng = np.random.default_rng(0)
    weights = {"w1": (8, 3, 3, 3), "w2": (16, 8, 3, 3), "w3": (16, 10)}
    constants = [
        numpy_helper.from_array((rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32), n)
        for n, s in weights.items()
    ]
    nodes = [
        helper.make_node("Conv", ["input", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2], name="conv1"),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], name="conv2"),
        helper.make_node("GlobalAveragePool", ["c"], ["d"], name="pool"),
        helper.make_node("Flatten", ["d"], ["e"], name="flatten"),
        helper.make_node("MatMul", ["e", "w3"], ["f"], name="product"),
        helper.make_node("Softmax", ["f"], ["y"], name="softmax"),
    ]
    info = helper.make_tensor_value_info
    ends = [info("input", TensorProto.FLOAT, ["N", 3, "H", "W"])], [info("y", TensorProto.FLOAT, ["N", 10])]
    graph = helper.make_graph(nodes, "classifier", *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
