"""The benchmark models: published sizes, valid graphs, and answers that are finite and depend on the input."""

import numpy as np
import pytest
from benchmarks.models import NAMES, build, counts
from benchmarks.models.feeds import random_feeds

import onnx

# Millions of weights as published (or, for the detector and the encoder, as their libraries report).
WEIGHTS = {
    "mobilenet_v1": 4.23,
    "mobilenet_v2": 3.50,
    "mobilenet_v3_small": 2.54,
    "mobilenet_v3_large": 5.48,
    "resnet18": 11.69,
    "squeezenet1_1": 1.24,
    "inception_v1": 7.0,
    "densenet121": 7.98,
    "shufflenet_v1": 1.87,
    "shufflenet_v2": 2.28,
    "efficientnet_b0": 5.29,
    "yolov8n_320": 3.15,
    "yolo11n_320": 2.62,
    "resnet_cifar": 0.096,  # our own
    "unet_256": 7.76,
    "vit_tiny": 5.72,
    "minilm_l6": 22.7,
    "lstm_tagger": 1.94,
    "conformer_s": 8.74,
}


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)


@pytest.mark.parametrize("name", WEIGHTS)
def test_size_is_the_published_one(name):
    weights = sum(int(np.prod(w.dims)) for w in build(name).graph.initializer)
    assert weights == pytest.approx(WEIGHTS[name] * 1e6, rel=0.02)


@pytest.mark.parametrize("name", WEIGHTS)
def test_answers_are_finite_and_depend_on_the_input(name):
    model = build(name, batch="N")
    first, second = (run(model, random_feeds(model, seed=seed)) for seed in (0, 1))
    for a, b in zip(first, second, strict=True):
        assert np.isfinite(a).all()
        assert a.std() > 0
        assert np.abs(a - b).max() > 1e-3 * np.abs(a).max()


@pytest.mark.parametrize("name", ["mobilenet_v2", "shufflenet_v2", "vit_tiny", "lstm_tagger"])
def test_a_free_batch_gives_what_single_ones_give(name):
    model = build(name, batch="N")
    feeds = random_feeds(model, {i.name: (2, *dims(i)[1:]) for i in model.graph.input})
    both = run(model, feeds)
    second = run(model, {k: v[1:] for k, v in feeds.items()})
    for a, b in zip(both, second, strict=True):
        np.testing.assert_allclose(a[1:], b, rtol=1e-3, atol=1e-4 * np.abs(b).max())


def test_equal_seeds_give_equal_models():
    assert build("squeezenet1_1") == build("squeezenet1_1")


def test_every_name_is_covered_or_large():
    large = {"resnet50", "alexnet", "vgg16", "inception_v3", "yolov8n_640", "vit_b16", "sd_block", "whisper_small"}
    assert set(NAMES) - set(WEIGHTS) == large


def dims(info: onnx.ValueInfoProto) -> list[int]:
    return [d.dim_value for d in info.type.tensor_type.shape.dim]


@pytest.mark.parametrize("name", ["rows", "compress", "nms", "topk", "unique"])
def test_counts_differ_in_each_run(name):
    ort = pytest.importorskip("onnxruntime")
    model, inputs = counts.build(name, 12)
    session = ort.InferenceSession(model)
    if name == "unique":  # the count is that of an inner value
        assert len({len(np.unique(feeds["x"])) for feeds in inputs}) > 3
    else:
        assert len({session.run(None, feeds)[0].shape for feeds in inputs}) > 3
