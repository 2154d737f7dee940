"""Files that no reader knows are named, with the way to one that runs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from opalite.errors import ModelFormatError
from opalite.importer import load_model


def archive(*names: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        for name in names:
            file.writestr(name, "x")
    return held.getvalue()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (archive("m/data.pkl", "m/data/0"), r"PyTorch checkpoint: .*torch\.onnx\.export"),
        (archive("m/data.pkl", "m/code/__torch__.py"), r"TorchScript archive: .*torch\.jit\.load.*onnx\.export"),
        (archive("config.json", "model.weights.h5"), r'Keras model .*format="onnx"'),
        (archive("a.onnx"), "an archive with a.onnx: unpack it by `unzip`, and give it"),
        (archive("readme"), "a zip archive: unpack it"),
        (b"PK\x03\x04rest", "a zip archive that is cut off"),
        (bytes(2) + archive("a.tflite", "b.tflite"), "an archive with a.tflite, b.tflite: unpack it by `unzip`, and"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5.*Keras"),
        (b"\x80\x02}q\x00" + bytes(60), r"a pickle, .*torch\.onnx\.export"),
        (b"GGUF\3\0\0\0" + bytes(60), "GGUF file.*optimum-cli export onnx"),
        (b"7767517\n3 4\nInput data 0 1 data\n", r"ncnn network \(\.param\)"),
        (b"ftrt" + bytes(60), "TensorRT engine.*take the ONNX file"),
        (b"\x18\0\0\0ORTM" + bytes(60), r"\.ort format: take the \.onnx file"),
        (b'\x10\0\0\0\0\0\0\0{"a": {}}' + bytes(60), r"safetensors file or an \.opal bundle"),
        (b'<?xml version="1.0"?>\n<net name="m" version="11">', "OpenVINO model"),
        (b"<!DOCTYPE html><html><head>", "a web page"),
        (b"\x1f\x8b\x08" + bytes(60), "gzip archive: unpack it"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
    ],
)
def test_bytes_tell_the_format_whatever_the_name(raw: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(raw)
    for source in (raw, path):
        with pytest.raises(ModelFormatError, match=said):
            load_model(source)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.mnn", "an MNN model"),
        ("a.bin", "weights without their network"),
        ("a.nb", r"a Paddle-Lite model: take the inference\.pdmodel"),
        ("a.pb", "a TensorFlow graph: .*tf2onnx"),
        ("a.mlmodel", "a Core ML model"),
        ("a.engine", "a TensorRT engine"),
        ("a.pdiparams", "the parameters of a Paddle program: give the program beside it"),
    ],
)
def test_the_name_tells_where_bytes_do_not(name: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x07\x01" + bytes(range(60)))
    with pytest.raises(ModelFormatError, match=said):
        load_model(path)


@pytest.mark.parametrize(
    ("inside", "said"),
    [("saved_model.pb", "SavedModel of TensorFlow: .*tf2onnx"), ("Manifest.json", "Core ML package"), ("", "a folder")],
)
def test_folders_are_named_too(inside: str, said: str, tmp_path: Path) -> None:
    if inside:
        (tmp_path / inside).write_bytes(b"x")
    with pytest.raises(ModelFormatError, match=said):
        load_model(tmp_path)
