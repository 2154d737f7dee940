"""The super-resolution example's network: small, of any size, and better than bicubic on the held-out picture."""

import sys
from pathlib import Path

import pytest
from PIL import Image

import onnx

FOLDER = Path(__file__).parents[2] / "examples" / "super_resolution"
MODEL = FOLDER / "super_resolution_x2.onnx"


@pytest.fixture
def quality(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import quality

    yield quality
    del sys.modules["quality"]


@pytest.fixture(scope="module")
def upscale():
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def test_the_network_is_small_and_its_size_free():
    assert MODEL.stat().st_size < 300_000
    model = onnx.load(MODEL)
    onnx.checker.check_model(model, full_check=True)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims[:2]] == [1, 3]
    assert all(d.dim_param for d in dims[2:])


def test_it_beats_bicubic(quality, upscale):
    small, truth = Image.open(FOLDER / "picture.png"), Image.open(FOLDER / "truth.jpg")
    network = quality.psnr(quality.to_picture(upscale(quality.to_input(small))), truth)
    bicubic = quality.psnr(small.resize(truth.size, Image.Resampling.BICUBIC), truth)
    assert network[0] > bicubic[0] + 2
    assert network[1] > bicubic[1] + 2


def test_odd_sizes(quality, upscale):
    small = Image.open(FOLDER / "picture.png").crop((0, 0, 37, 23))
    assert quality.to_picture(upscale(quality.to_input(small))).size == (74, 46)


def test_psnr_of_a_known_error(quality):
    a, b = Image.new("RGB", (4, 4), (10, 10, 10)), Image.new("RGB", (4, 4), (20, 20, 20))
    assert quality.psnr(a, b) == pytest.approx((28.13, 28.13), abs=0.01)
