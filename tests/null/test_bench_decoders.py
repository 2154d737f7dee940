"""The benchmark decoders: both forms of their caches agree, with weights of any kind, and steps continue a prefill."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.models.llama import LLAMA_110M, LLAMA_TINY, QWEN2_0_5B, decoder, past_names, save, step_feeds

TIED = replace(LLAMA_TINY, tied=True, bias=True)


def session(model):
    ort = pytest.importorskip("onnxruntime")
    return ort.InferenceSession(model.SerializeToString())


def weights(shape):
    """Weights of the products of all layers and of the last one."""
    kv = 2 * shape.width * shape.kv_heads * shape.head
    return shape.layers * (2 * shape.width**2 + kv + 3 * shape.width * shape.inner) + shape.width * shape.words


def test_sizes_are_those_they_are_named_after():
    assert weights(LLAMA_110M) == pytest.approx(110e6, rel=0.01)
    assert weights(QWEN2_0_5B) == pytest.approx(0.494e9, rel=0.01)


@pytest.mark.parametrize("shape", [LLAMA_TINY, TIED], ids=["own", "tied"])
@pytest.mark.parametrize(("bits", "zeros"), [(0, False), (4, False), (4, True), (8, False)])
def test_both_forms_of_the_cache_agree(shape, bits, zeros):
    logits = []
    for cache in ("concat", "grouped"):
        model = decoder(shape, "N", bits=bits, zeros=zeros, cache=cache)
        logits.append(session(model).run(["logits"], step_feeds(shape, 5, 3, cache=cache))[0])
    assert logits[0].std() > 0.1
    np.testing.assert_allclose(*logits, atol=1e-5)


def test_a_step_continues_a_prefill():
    run = session(decoder(LLAMA_TINY)).run
    feeds = step_feeds(LLAMA_TINY, 0, 6)
    whole = run(["logits"], feeds)[0]
    names = past_names(LLAMA_TINY)
    presents = [name.replace("past_key_values", "present") for name in names]
    first = {k: v[:, :5] if v.ndim == 2 else v for k, v in feeds.items()}
    kept = run(presents, first)
    step = step_feeds(LLAMA_TINY, 5, 1) | dict(zip(names, kept, strict=True)) | {"input_ids": feeds["input_ids"][:, 5:]}
    np.testing.assert_allclose(run(["logits"], step)[0][:, 0], whole[:, 5], atol=1e-5)


def test_a_saved_model_is_the_same(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    model, feeds = decoder(LLAMA_TINY, bits=4), step_feeds(LLAMA_TINY, 2, 1)
    expected = session(model).run(["logits"], feeds)[0]
    path = save(model, tmp_path / "model.onnx")
    assert path.stat().st_size < (tmp_path / "model.onnx.data").stat().st_size
    np.testing.assert_array_equal(ort.InferenceSession(path).run(["logits"], feeds)[0], expected)
