"""Conversions of pictures: presets, files, metadata, and guesses from a network's numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onnx import ModelProto, TensorProto, helper, numpy_helper
from opalite.errors import InputError
from opalite.ir.dtype import DType
from opalite.ir.graph import Graph, Value
from opalite.ir.tensor_type import TensorType
from opalite.media import picture_reader
from opalite.media.answer_check import choose_by_answers
from opalite.media.first_layer import FirstLayer, first_layer, import_at, photograph_like
from opalite.media.input_spec import InputSpec
from opalite.media.picture_input import PictureShape, is_picture, open_picture, picture_shape
from opalite.media.preprocess import IMAGENET_MEAN, IMAGENET_STD, PRESETS, Preprocess, find_preprocess
from opalite.media.preprocess_choice import (
    NO_EVIDENCE,
    carried_metadata,
    choose_preprocess,
    find_labels,
    from_metadata,
)

RGB = PictureShape("NCHW", 1, 3, 32, 32)


def network(scale: float, shift: float, seed: int = 0) -> ModelProto:
    """A convolution and batch normalisation as training leaves them, for pixels (0 to 255) * scale - shift."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((16, 3, 3, 3)).astype(np.float32) / 5
    pixels = photograph_like(64).transpose(2, 0, 1)[None] * scale - shift
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (3, 3), (2, 3))
    seen = np.einsum("nchwij,ocij->nohw", windows, weights, optimize=True)
    arrays = {
        "w": weights,
        "gamma": rng.uniform(0.5, 2, 16),
        "beta": rng.standard_normal(16),
        "mean": seen.mean((0, 2, 3)),
        "var": seen.var((0, 2, 3)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a, np.float32), k) for k, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def chosen(model: ModelProto, metadata: Mapping[str, str] | None = None) -> Preprocess:
    raw = model.SerializeToString()
    return choose_preprocess(
        raw, metadata or {}, "x", DType.FLOAT32, RGB, lambda: import_at(raw, {"x": (1, 3, 32, 32)})[0]
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_first_convolution_says_the_range_of_pixels(seed: int) -> None:
    found = chosen(network(1.0, 0.0, seed))
    assert found.guessed
    assert (found.scale, found.colors) == (1.0, "bgr")
    for scale, shift in ((1 / 255, 0.0), (1 / 127.5, 1.0)):
        assert chosen(network(scale, shift, seed)).scale < 0.01


def test_ranges_that_suit_nearly_as_well_are_named() -> None:
    ratios = {"raw": 0.003, "0..1": 0.7, "-1..1": 1.0, "imagenet": 4.0}
    layer = FirstLayer(ratios)
    assert (layer.best, layer.takes_bytes, layer.nearly_as_good) == ("0..1", False, ["-1..1"])
    assert FirstLayer(ratios, limits=(-1.0, 1.0)).nearly_as_good == []


def test_a_network_without_biases_says_nothing() -> None:
    model = network(1.0, 0.0)
    del model.graph.node[1]
    model.graph.node[0].output[0] = "y"
    assert chosen(model).reason == NO_EVIDENCE


@pytest.mark.parametrize(
    ("step", "zero", "preset"),
    [(1 / 255, 0, "0..1"), (2 / 255, 127, "-1..1"), (1.0, 0, "raw"), (4.76 / 255, 113, "imagenet")],
)
def test_quantisation_says_the_range_where_biases_do_not(step: float, zero: int, preset: str) -> None:
    model = network(1.0, 0.0)
    del model.graph.node[1]
    model.graph.node[0].input[0], model.graph.node[0].output[0] = "d", "y"
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["d"]))
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]))
    held = {"step": np.float32(step), "zero": np.uint8(zero)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), k) for k, a in held.items())
    found = chosen(model)
    assert found.guessed
    assert (found.mean, found.std, found.scale) == (PRESETS[preset].mean, PRESETS[preset].std, PRESETS[preset].scale)


@pytest.mark.parametrize(
    ("metadata", "preset"),
    [
        ({"Image.BitmapPixelFormat": "Bgr8"}, "raw"),
        ({"Image.BitmapPixelFormat": "Rgb8", "Image.NominalPixelRange": "Normalized_1_1"}, "-1..1"),
        ({"names": "{0: 'cat'}", "task": "detect", "stride": "32"}, "0..1"),
        ({"tflite.normalization": json.dumps({"x": {"mean": [127.5], "std": [127.5]}})}, "-1..1"),
    ],
)
def test_metadata_comes_before_guesses(metadata: dict[str, str], preset: str) -> None:
    found = chosen(network(1.0, 0.0), metadata)
    assert not found.guessed
    pixels, wanted = np.float32([0, 100, 255]), PRESETS[preset]
    made, known = ((pixels * p.scale - p.mean[0]) / p.std[0] for p in (found, wanted))
    np.testing.assert_allclose(made, known, atol=1e-6)
    assert (found.colors == "bgr") == ("Bgr8" in metadata.values())


@pytest.mark.parametrize(("dtype", "mean"), [(DType.UINT8, 0.0), (DType.INT32, 0.0), (DType.INT8, 128.0)])
def test_inputs_of_integers_take_pixels(dtype: DType, mean: float) -> None:
    found = choose_preprocess(b"", {}, "x", dtype, RGB, {})
    assert (found.mean, found.std, found.scale, found.guessed) == ((mean,), (1.0,), 1.0, False)


@pytest.mark.parametrize(("task", "fit"), [("detect", "letterbox"), ("classify", "crop")])
def test_ultralytics_fits_pictures_by_the_task(task: str, fit: str) -> None:
    found = from_metadata({"names": "{0: 'cat'}", "task": task, "stride": "32"}, "x")
    assert found is not None
    assert found.fit == fit


def test_a_file_of_the_model_comes_before_one_of_its_folder(tmp_path: Path) -> None:
    model, given = str(tmp_path / "m.onnx"), {}
    for name in ("config.json", "preprocess.json", "m.preprocess.json"):
        (tmp_path / name).write_text(json.dumps({"scale": 1 + len(given)}))
        given[name] = choose_preprocess(model, {}, "x", DType.FLOAT32, RGB, {}).scale
    assert given == {"config.json": 1, "preprocess.json": 2, "m.preprocess.json": 3}
    (tmp_path / "preprocess.json").write_text("{}")  # for something else
    (tmp_path / "m.preprocess.json").unlink()
    assert choose_preprocess(model, {}, "x", DType.FLOAT32, RGB, {}).scale == 1


def test_a_compiled_model_carries_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(network(1.0, 0.0).SerializeToString())
    (tmp_path / "labels.txt").write_text("hen\nowl\n")
    inputs = [InputSpec("x", DType.FLOAT32, (1, 3, 32, 32), (1, 3, 32, 32)), InputSpec("n", DType.INT64, (1,), (1,))]
    carried = carried_metadata(str(path), {}, inputs, {"x": (1, 3, 32, 32)})
    found = choose_preprocess("nowhere.opal", carried, "x", DType.FLOAT32, RGB, lambda: None)
    assert found == chosen(network(1.0, 0.0))
    assert find_labels("nowhere.opal", carried) == ["hen", "owl"]
    for raw in ("[", "{}", '{"x": 3}', '{"x": {"mean": 3}}', '{"x": {"mean": [1], "std": [0]}}'):
        assert from_metadata({"opalite.preprocess": raw}, "x") is None


@pytest.mark.parametrize("raw", ["[", "[1]", "{}", '{"x": 3}', '{"x": {"mean": ["a"], "std": [1]}}'])
def test_damaged_metadata_says_nothing(raw: str) -> None:
    assert from_metadata({"tflite.normalization": raw}, "x") is None


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ({"mean": [0.5], "std": 0.25, "fit": "letterbox"}, Preprocess((0.5,), (0.25,), fit="letterbox")),
        (
            {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "rescale_factor": 1 / 255},
            Preprocess(IMAGENET_MEAN, IMAGENET_STD),
        ),
        (
            {"do_rescale": True, "do_center_crop": True, "crop_size": {"height": 224}, "size": {"shortest_edge": 256}},
            Preprocess(fit="crop", share=0.875),
        ),
        (
            {"do_rescale": False, "rescale_factor": 0.5, "image_mean": [104.0], "image_std": [2.0]},
            Preprocess((104.0,), (2.0,), scale=1.0),
        ),
        (
            {"do_normalize": False, "rescale_factor": 0.5, "image_mean": [104.0], "image_std": [2.0]},
            Preprocess(scale=0.5),
        ),
        (
            {"pretrained_cfg": {"mean": [0.5], "crop_pct": 0.9}},
            Preprocess((0.5,), fit="crop", share=0.9),
        ),
    ],
)
def test_files_of_conversions(tmp_path: Path, raw: dict[str, Any], wanted: Preprocess) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(raw))
    found = find_preprocess(str(path))
    assert (found.mean, found.std, found.scale, found.fit, found.share) == (
        *(wanted.mean, wanted.std, wanted.scale, wanted.fit),
        pytest.approx(wanted.share),
    )


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '{"mean": "a"}', '{"std": 0}', '{"fit": "bend"}', '{"colors": 3}'])
def test_wrong_files_of_conversions(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError):
        find_preprocess(str(path))


def test_labels_are_found(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    assert find_labels(str(model), {}) == []
    assert find_labels(str(model), {"names": "{0: 'cat', 2: 'dog'}"}) == ["cat", "", "dog"]
    assert find_labels(str(model), {"classes": '["a", "b"]'}) == ["a", "b"]
    assert find_labels(str(model), {"x_labels.txt": "cat\ndog\n"}) == ["cat", "dog"]
    (tmp_path / "config.json").write_text('{"id2label": {"0": "hen"}}')
    assert find_labels(str(model), {}) == ["hen"]
    (tmp_path / "labels.txt").write_text("n01440764 tench, Tinca\nowl\n")
    assert find_labels(str(model), {}) == ["tench, Tinca", "owl"]


@pytest.mark.parametrize("text", ["{0: 'a'", "{'a': 1}", "[[", "{9999999: 'a'}", "{-1: 'a'}"])
def test_damaged_labels_are_none(text: str) -> None:
    assert find_labels(b"", {"names": text}) == []


def test_a_classifier_that_ignores_small_numbers_gets_large_ones() -> None:
    rng = np.random.default_rng(0)
    weights, bias = rng.standard_normal((500, 48)) / 2, rng.standard_normal(500)

    def classify(picture: Image.Image, p: Preprocess) -> Any:
        pixels = np.asarray(picture.resize((4, 4)), np.float64)[..., :: -1 if p.colors == "bgr" else 1]
        return weights @ ((pixels * p.scale - p.mean) / p.std).reshape(-1) + bias

    picture = Image.fromarray(photograph_like(32).astype(np.uint8))
    small = Preprocess(reason=NO_EVIDENCE, guessed=True)
    assert choose_by_answers(classify, picture, small).scale == 1.0
    weights = weights * 255
    assert choose_by_answers(classify, picture, small) == small


@pytest.mark.parametrize(
    ("shape", "layout", "channels"),
    [
        ((1, 3, 8, 9), "NCHW", 3),
        ((1, 8, 9, 3), "NHWC", 3),
        ((None, None, None, 3), "NHWC", 3),
        ((None, 3, None, None), "NCHW", 3),
        ((3, 8, 9), "CHW", 3),
        ((8, 9, 1), "HWC", 1),
        ((28, 28), "HW", 1),
        ((None, None, None, None), "NCHW", None),
        ((1, 3, 8, 3), "NCHW", 3),
    ],
)
def test_shapes_of_pictures(shape: tuple[int | None, ...], layout: str, channels: int | None) -> None:
    found = picture_shape("x", shape)
    assert (found.layout, found.channels) == (layout, channels)


@pytest.mark.parametrize("shape", [(1, 10), (5,), (), (1, 2, 8, 9), (1, 1, 3, 8, 9)])
def test_shapes_of_no_pictures(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="'x'"):
        picture_shape("x", shape)


@pytest.mark.parametrize("mode", ["L", "I;16", "F", "RGBA", "P", "CMYK"])
def test_every_mode_of_pixels_keeps_its_brightness(tmp_path: Path, mode: str) -> None:
    grey = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)
    numbers: dict[str, Any] = {"I;16": grey.astype(np.uint16) * 257, "F": grey.astype(np.float32) / 252}
    made = Image.fromarray(numbers[mode]) if mode in numbers else Image.fromarray(grey).convert(mode)
    path = tmp_path / "a.tiff"
    made.save(path)
    picture, note = open_picture(path)
    assert np.abs(np.asarray(picture)[..., 1].astype(int) - grey).max() <= 4
    assert not note


def test_what_is_left_out_of_a_picture_is_said(tmp_path: Path) -> None:
    """Colours that are hidden behind transparency, which any program may have left there, and all frames but one."""
    layers = np.zeros((8, 8, 4), np.uint8)
    layers[:4] = [9, 9, 9, 255]
    Image.fromarray(layers).save(tmp_path / "a.png")
    Image.fromarray(layers).quantize(4).save(tmp_path / "b.png")
    for name in ("a.png", "b.png"):
        picture, note = open_picture(tmp_path / name)
        assert note == "transparent parts are white"
        assert np.asarray(picture)[:, 0, 0].tolist() == [9] * 4 + [255] * 4
    frames = [Image.new("RGB", (8, 8), (shade, 0, 0)) for shade in (0, 200)]
    frames[0].save(tmp_path / "c.gif", save_all=True, append_images=frames[1:])
    assert open_picture(tmp_path / "c.gif")[1] == "the first of 2 frames"


@pytest.mark.parametrize("raw", [b"", b"abc" * 99])
def test_files_that_are_no_pictures(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.png").write_bytes(raw)
    with pytest.raises(InputError, match=r"a\.png could not be read as a picture: it is of no kind"):
        open_picture(tmp_path / "a.png")
    assert not is_picture(tmp_path / "a.png")


def test_pictures_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 700)
    with pytest.raises(InputError, match="more than 1,400 pixels"):
        open_picture(tmp_path / "a.png")


def reader_that_takes(monkeypatch: pytest.MonkeyPatch, *sizes: int) -> tuple[picture_reader.PictureReader, list[Any]]:
    """A reader of a model whose pictures are squares of these sizes, or of any if none is given."""
    asked: list[Any] = []

    def import_at(_: object, shapes: Mapping[str, tuple[int, ...]]) -> tuple[None, InputError | None]:
        asked.append(shapes["x"][2:])
        return None, None if set(shapes["x"][2:]) & set(sizes) else InputError("rows do not fit")

    monkeypatch.setattr(picture_reader, "import_at", import_at)
    inputs = [InputSpec("x", DType.FLOAT32, (1, 3, None, None), (1, 3, 224, 224))]
    return picture_reader.PictureReader("nowhere", inputs, preprocess=PRESETS["raw"]), asked


def test_frames_of_one_size_ask_the_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, asked = reader_that_takes(monkeypatch, 64)
    for _ in range(3):
        assert reader.read(Image.new("RGB", (50, 70))).array.shape == (1, 3, 64, 64)
    assert asked == [(70, 50), (64, 64)]
    assert reader.read(Image.new("RGB", (60, 70))).array.shape == (1, 3, 64, 64)
    assert asked[2:] == [(70, 60)]


def test_lines_of_text_get_the_height_that_the_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _ = reader_that_takes(monkeypatch, 48)
    assert reader.read(Image.new("RGB", (500, 100))).array.shape == (1, 3, 48, 240)
    reader, _ = reader_that_takes(monkeypatch)
    with pytest.raises(InputError, match=r"takes no picture of 500x100 pixels as input 'x'.*--shape.*rows do not fit"):
        reader.read(Image.new("RGB", (500, 100)))


def test_the_model_is_imported_once_for_a_size_and_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, asked = reader_that_takes(monkeypatch, 60)
    reader.preprocess = None
    reader.read(Image.new("RGB", (60, 60)))
    assert asked == [(60, 60)]


def test_an_input_without_channels_has_no_first_layer() -> None:
    graph = Graph("matrix")
    graph.inputs = [Value("x", TensorType(DType.FLOAT32, (5, 40)))]
    for layout in ("HW", "NHW", ""):
        assert first_layer(graph, "x", layout, 1) is None
