"""Formats that nothing here reads, found by first bytes, else by the name, with the way to a file that runs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from ..ir.constants.model_file import ModelFile

_TORCH = 'export it with torch.onnx.export(model, example_inputs, "model.onnx")'
_KERAS = 'load it with Keras and write it by model.export("model.onnx", format="onnx")'
_TENSORFLOW = "convert it with `python -m tf2onnx.convert`"
_SOURCE = "take the model that it was converted from, as ONNX"

_MARKS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x89HDF", "an HDF5 file, such as a Keras model", _KERAS),
    (0, b"\x80\x02", "a pickle, such as an old PyTorch checkpoint or Paddle's .pdparams", _TORCH),
    (
        0,
        b"\x80\x04",
        "a pickle, such as Paddle's .pdparams or a scikit-learn model",
        "export the model that it belongs to",
    ),
    (0, b"GGUF", "a GGUF file, weights for llama.cpp", "run `optimum-cli export onnx` on the model it was made of"),
    (0, b"ggml", "a GGML file, weights for llama.cpp", "run `optimum-cli export onnx` on the model it was made of"),
    (0, b"7767517", "an ncnn network (.param)", _SOURCE),
    (0, b"ftrt", "a TensorRT engine, which runs on the GPU that built it", "take the ONNX file that it was built from"),
    (4, b"ORTM", "onnxruntime's .ort format", "take the .onnx file that it was converted from"),
    (4, b"ET12", "an ExecuTorch program", _TORCH),
    (4, b"MSL", "a MindSpore Lite model", "export it to ONNX by mindspore.export(..., file_format='ONNX')"),
    (0, b"RKNN", "a Rockchip NPU's model", _SOURCE),
    (0, b"LDMK", "a kmodel of a K210 or K230", _SOURCE),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it with `tar xf` or `gunzip`, and give the model in it"),
    (0, b"BZh", "a bzip2 archive", "unpack it, and give the model in it"),
    (0, b"7z\xbc\xaf", "a 7z archive", "unpack it, and give the model in it"),
    (0, b"\x93NUMPY", "a NumPy array", "give a model; arrays are its inputs"),
    (0, b"version https://git-lfs", "a Git LFS pointer", "fetch the file itself with `git lfs pull`"),
)

_NAMES: dict[str, tuple[str, str]] = {
    ".mnn": ("an MNN model", _SOURCE),
    ".param": ("an ncnn network", _SOURCE),
    ".bin": ("weights without their network, such as ncnn's or OpenVINO's", _SOURCE),
    ".nb": ("a Paddle-Lite model", "take the inference.pdmodel or inference.json, and .pdiparams, that it was made of"),
    ".pdiparams": ("the parameters of a Paddle program", "give the program beside it, .pdmodel or .json"),
    ".pdparams": ("weights of Paddle without a program", "save the model by paddle.jit.save"),
    ".pb": ("a TensorFlow graph", f"{_TENSORFLOW} --graphdef or --saved-model"),
    ".mlmodel": ("a Core ML model", _SOURCE),
    ".caffemodel": ("weights of Caffe", _SOURCE),
    ".prototxt": ("a network of Caffe as text", _SOURCE),
    ".engine": ("a TensorRT engine, which runs on the GPU that built it", "take the ONNX file that it was built from"),
    ".plan": ("a TensorRT engine, which runs on the GPU that built it", "take the ONNX file that it was built from"),
    ".trt": ("a TensorRT engine, which runs on the GPU that built it", "take the ONNX file that it was built from"),
    ".om": ("a model for Ascend NPUs", _SOURCE),
    ".hef": ("a model for Hailo NPUs", _SOURCE),
    ".dlc": ("a model for Qualcomm's NPUs", _SOURCE),
    ".tmfile": ("a Tengine model", _SOURCE),
    ".pt": ("no PyTorch file", _TORCH),
    ".pth": ("no PyTorch file", _TORCH),
}

_IN_ARCHIVE: tuple[tuple[str, str, str], ...] = (
    (
        "code/__torch__",
        "a TorchScript archive",
        'load it by torch.jit.load and export it with torch.onnx.export(..., "model.onnx")',
    ),
    ("model.weights.h5", "a Keras model (.keras)", _KERAS),
    ("archive_format", "a program of torch.export (.pt2)", "give torch.export.load's result to torch.onnx.export"),
    ("data.pkl", "a PyTorch checkpoint", f"it holds weights; build the model, load them, and {_TORCH}"),
    ("saved_model.pb", "a packed SavedModel of TensorFlow", f"unpack it, and {_TENSORFLOW} --saved-model"),
    (".mlmodel", "a packed Core ML package", _SOURCE),
    ("model.json", "an archive with a model description", "unpack it, and give the model in it"),
    (".pdmodel", "an archive with a Paddle program", "unpack it, and give the folder"),
)

_MODELS = (".onnx", ".tflite", ".task")
"""Endings of files that an archive may hold, such as a task of MediaPipe; a task holds .tflite files."""

_IN_FOLDER = (
    ("saved_model.pb", "a SavedModel of TensorFlow", f"{_TENSORFLOW} --saved-model"),
    ("Manifest.json", "a Core ML package", _SOURCE),
    ("coremldata.bin", "a compiled Core ML model", _SOURCE),
    ("config.json", "a folder of a Hugging Face model", "run `optimum-cli export onnx` on it, or give its .onnx file"),
)


def describe_bytes(head: bytes, contents: bytes | ModelFile) -> str | None:
    """Say what a file is whose first bytes no reader knows, and how to convert it; None if they do not show it."""
    if head.lstrip(b"\0").startswith(b"PK\x03\x04"):  # MediaPipe's tasks begin with zeros, so that contents are aligned
        return _describe_archive(contents)
    for offset, mark, kind, way in _MARKS:
        if head.startswith(mark, offset):
            return f"{kind}: {way}"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return (
            "a safetensors file or an .opal bundle: weights alone need their model (`optimum-cli export onnx` on its "
            "folder), and a bundle, which is compiled already, is opened by its path"
        )
    if head.lstrip().startswith(b"<"):
        return _describe_markup(contents)
    return None


def describe_name(path: Path | None) -> str | None:
    """Say what a file of this name is, where its bytes do not show it; None for unknown names."""
    found = None if path is None else _NAMES.get(path.suffix.lower())
    return None if found is None else f"{found[0]}: {found[1]}"


def describe_folder(folder: Path) -> str | None:
    """Say what a folder is that holds no model file."""
    for name, kind, way in _IN_FOLDER:
        if (folder / name).exists():
            return f"{kind}: {way}"
    return None


def _describe_archive(contents: bytes | ModelFile) -> str:
    data = contents.read(0, contents.size).tobytes() if isinstance(contents, ModelFile) else contents
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return f"a zip archive that is cut off, such as a PyTorch checkpoint: {_TORCH}"
    for part, kind, way in _IN_ARCHIVE:
        if any(part in name for name in names):
            return f"{kind}: {way}"
    models = [name for name in names if name.endswith(_MODELS)]
    if models:
        one = "it" if len(models) == 1 else "one of them"
        return f"an archive with {', '.join(models[:8])}: unpack it by `unzip`, and give {one}"
    return "a zip archive: unpack it, and give the model in it"


def _describe_markup(contents: bytes | ModelFile) -> str:
    size = min(contents.size if isinstance(contents, ModelFile) else len(contents), 4096)
    text = contents.read(0, size).tobytes() if isinstance(contents, ModelFile) else contents[:size]
    if b"<html" in text.lower():
        return "a web page: download the file itself"
    if b"<net" in text:
        return f"an OpenVINO model: {_SOURCE}"
    return "XML, such as an OpenVINO model: give an .onnx file"
