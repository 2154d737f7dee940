"""External data of tensors: paths, offsets and lengths, and files that are not regular."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onnx import TensorProto, helper
from opalite.errors import ModelFormatError
from opalite.importer import load_model
from opalite.ir.constants.model_file import ModelFile


def external(tmp_path: Path, **entries: str) -> Path:
    """Return a model whose float32 tensor 'w' [64] has external data as `entries` say, and weights.bin of 256 bytes."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    y = helper.make_tensor_value_info("w", TensorProto.FLOAT, [64])
    graph = helper.make_graph([], "g", [], [y], [weight])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    (tmp_path / "weights.bin").write_bytes(bytes(256))
    return path


@pytest.mark.parametrize("location", ["./inner/../weights.bin", "../{folder}/weights.bin", "inner//..//./weights.bin"])
def test_paths_that_come_back_into_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "inner").mkdir()
    path = external(tmp_path, location=location.format(folder=tmp_path.name))
    assert load_model(path).graph.constants["w"].shape == (64,)
    assert load_model(external(tmp_path, location="weights.bin", length="0")).graph.constants["w"].shape == (64,)


@pytest.mark.parametrize("given", [str, lambda p: "../weights.bin"], ids=["absolute", "above"])
def test_paths_that_do_not(tmp_path: Path, given: Callable[[Path], str]) -> None:
    (tmp_path / "inner").mkdir()
    path = external(tmp_path / "inner", location=given(tmp_path / "inner" / "weights.bin"))
    with pytest.raises(ModelFormatError, match="outside the model's folder"):
        load_model(path)


@pytest.mark.parametrize("text", ["-4", "-1", "+0", " 0", "0x0", "0.0", "abc", "1_0", "４", str(1 << 63), str(1 << 64)])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_numbers_that_are_none(tmp_path: Path, key: str, text: str) -> None:
    path = external(tmp_path, location="weights.bin", **{key: text})
    with pytest.raises(ModelFormatError, match=rf"tensor 'w' has the {key} .* expected a number from 0 to 2\^63 - 1"):
        load_model(path)


@pytest.mark.parametrize("text", ["255", "257", str((1 << 63) - 1)])
def test_a_length_that_is_not_the_tensors(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelFormatError, match=rf"tensor 'w' needs 256 bytes, and {text} of 'weights.bin'"):
        load_model(external(tmp_path, location="weights.bin", length=text))
    with pytest.raises(ModelFormatError, match=rf"needs 256 bytes at offset {text} of 'weights.bin', which has 256"):
        load_model(external(tmp_path, location="weights.bin", offset=text))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_regular_file_holds_no_data_and_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "inner").mkdir()
    for location, kind in {"pipe": "a pipe", "inner": "a folder", ".": "a folder"}.items():
        with pytest.raises(ModelFormatError, match=f"data of tensor 'w' should be in .*, which is {kind}: copy"):
            load_model(external(tmp_path, location=location))
    with pytest.raises(ModelFormatError, match="tensor 'w' has external data, but names no file"):
        load_model(external(tmp_path, length="256"))
    with pytest.raises(OSError, match="not a regular file"):
        ModelFile(tmp_path / "pipe")  # nobody writes, and nobody waits
    with pytest.raises(ModelFormatError, match=r"'/dev/zero' is a device: give the model file itself"):
        load_model("/dev/zero")
