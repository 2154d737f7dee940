"""Small operators of domain com.microsoft against onnxruntime, or NumPy if its CPU provider lacks them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opalite.errors import UnsupportedOpError

from ..oracles import MS, Values, assert_same, by_ort, imported

V = Values(9)
Array = np.ndarray[Any, Any]


def compare(op: str, arrays: list[Array | None], outputs: tuple[int, ...] = (0,), **attrs: Any) -> None:
    attrs.setdefault("domain", MS)
    assert_same(imported(op, arrays, outputs, **attrs), by_ort(op, arrays, outputs, **attrs), tol=2e-4)


def check(op: str, arrays: list[Array | None], want: list[Array], **attrs: Any) -> None:
    found = imported(op, arrays, tuple(range(len(want))), domain=MS, **attrs)
    assert_same(found, want, tol=1e-4)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)


# Streams


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("scale", [None, (6,), (4, 6), (24,)])
def test_branchwise_rms_norm(flat: bool, scale: tuple[int, ...] | None) -> None:
    x = V.f(2, 3, 24) if flat else V.f(2, 3, 4, 6)
    arrays = [x] if scale is None else [x, V.f(*scale)]
    compare("BranchwiseRMSNorm", arrays, epsilon=1e-3, **({"num_branches": 4} if flat else {}))


@pytest.mark.parametrize("gates", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 6)])
@pytest.mark.parametrize("flat", [False, True])
def test_hyper_connections(gates: tuple[int, ...], flat: bool) -> None:
    x, attrs = (V.f(2, 3, 24), {"num_branches": 4}) if flat else (V.f(2, 3, 4, 6), {})
    compare("HyperConnectionPreMix", [x, V.f(*gates)], reduction_scale=0.5, **attrs)
    for mix in ([], [V.f(2, 3, 4, 4)]):
        compare("HyperConnectionPostMix", [x, V.f(2, 3, 6), V.f(*gates), *mix], **attrs)


@pytest.mark.parametrize("normed", [False, True])
def test_engram_gate(normed: bool) -> None:
    arrays = [V.f(2, 3, 4, 8), V.f(2, 3, 4, 8), V.f(2, 3, 8), V.f(4, 8), V.f(4, 8), *([V.f(4, 8)] if normed else [])]
    compare("EngramGate", arrays, (0, 1) if normed else (0,), epsilon=1e-3)


# Gates and activations


@pytest.mark.parametrize("scale", [None, np.array(1.3, np.float32)])
def test_scaled_silu(scale: Array | None) -> None:
    compare("ScaledSiLU", [V.f(3, 5)] if scale is None else [V.f(3, 5), scale], alpha=0.7)


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_swiglu(limit: float) -> None:
    gate, up = V.f(3, 8), V.f(3, 8)
    g, u = (np.minimum(gate, limit), np.clip(up, -limit, limit)) if limit else (gate, up)
    want = g * sigmoid(1.7 * g) * (u + 1)
    attrs = {"limit": limit, "activation_alpha": 1.7, "activation_beta": 1.0}
    check("SwiGLU", [gate, up], [want], **attrs)
    check("SwiGLU", [np.concatenate([gate, up], 1)], [want], **attrs)


def test_gemm_fast_gelu() -> None:
    x, w, b = V.f(2, 3, 4), V.f(4, 5), V.f(5)
    y = x @ w + b
    want = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    check("GemmFastGelu", [x, w, b], [want])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("spread", [False, True])
def test_skip_group_norm(last: int, spread: bool) -> None:
    shape, per = ((2, 5, 3, 8), (1, 1, 1, 8)) if last else ((2, 8, 5, 3), (1, 8, 1, 1))
    x, gamma, beta, bias = V.f(*shape), V.f(8), V.f(8), V.f(8)
    skip = V.f(2, 8) if spread else V.f(*shape)
    wide = skip.reshape((2, 1, 1, 8) if last else (2, 8, 1, 1)) if spread else skip
    total = x + wide + bias.reshape(per)
    first = np.moveaxis(total, 3, 1) if last else total
    groups = first.reshape(2, 4, -1)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    y = normal.reshape(first.shape) * gamma.reshape(1, 8, 1, 1) + beta.reshape(1, 8, 1, 1)
    y = y * sigmoid(y)
    want = np.moveaxis(y, 1, 3) if last else y
    attrs = {"groups": 4, "activation": 1, "channels_last": last}
    check("SkipGroupNorm", [x, gamma, beta, skip, bias], [want, total], **attrs)


def test_dropout_drops_nothing() -> None:
    x, bias, residual, ratio = V.f(2, 4), V.f(4), V.f(2, 4), np.array(0.5, np.float32)
    check("BiasDropout", [x, bias, residual, ratio], [x + bias + residual])
    check("BitmaskDropout", [x, ratio], [x])
    with pytest.raises(UnsupportedOpError, match="training_mode"):
        imported("BiasDropout", [x, bias, residual, ratio, np.array(True)], domain=MS, const=[4])


def test_gemma_rotary_embedding() -> None:
    angle, (q, qr, k, kr) = V.f(2, 5, 6), (V.f(2, 3, 5, 6) for _ in range(4))
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    check("GemmaRotaryEmbedding", [angle, q, qr, k, kr], [q * cos + qr * sin, k * cos + kr * sin])


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both: int) -> None:
    """The reference is T5's code, which counts from the key to the query."""
    table, queries, keys = V.f(32, 2), 40, 50
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    buckets, place = 32, np.zeros_like(distance)
    if both:
        buckets = 16
        place = (distance > 0) * buckets
        distance = np.abs(distance)
    else:
        distance = -np.minimum(distance, 0)
    exact = buckets // 2
    with np.errstate(divide="ignore"):
        far = exact + (np.log(distance / exact) / math.log(128 / exact) * (buckets - exact))
    far = np.minimum(np.where(distance > 0, far, 0).astype(np.int64), buckets - 1)
    want = table[place + np.where(distance < exact, distance, far)].transpose(2, 0, 1)[None]
    arrays = [table, np.array([queries]), np.array([keys])]
    check("RelativePositionBias", arrays, [want], max_distance=128, is_bidirectional=both, const=[1, 2])


# Integers


def test_integers() -> None:
    a, b = V.u8(3, 4), V.u8(4)
    want = (a.astype(np.int32) - 7) * (b.astype(np.int32) - 100)
    check("MulInteger", [a, np.array(7, np.uint8), b, np.array(100, np.uint8)], [want])
    check("MulInteger", [a, None, b], [a.astype(np.int32) * b])
    check("ReduceSumInteger", [V.i8(3, 4)[:0]], [np.zeros((1, 4), np.int32)], axes=[0], keepdims=1)
    x = V.i8(3, 4, 5)
    check("ReduceSumInteger", [x], [x.sum((0, 2), dtype=np.int32)], axes=[0, 2], keepdims=0)


@pytest.mark.parametrize("low", [0, -300])
def test_products_of_16_bits(low: int) -> None:
    compare("MatMulInteger16", [V.ints(low, 300, 2, 3, 4, dtype=np.int16), V.ints(low, 300, 4, 5, dtype=np.int16)])


@pytest.mark.parametrize("attr", ["", "isinf_only", "isnan_only"])
def test_is_all_finite(attr: str) -> None:
    attrs = {attr: 1} if attr else {}
    good, nan, infinite = (np.array([1, v], np.float32) for v in (2, np.nan, -np.inf))
    for arrays, want in (([good, good], True), ([good, nan], attr == "isinf_only"), ([infinite], attr == "isnan_only")):
        check("IsAllFinite", arrays, [np.array(want)], **attrs)


# Complex numbers, transforms, convolutions


def test_complex_products_and_transforms() -> None:
    a, b = V.f(2, 4, 2), V.f(2, 4, 2)
    product = (a[..., 0] + 1j * a[..., 1]) * np.conj(b[..., 0] + 1j * b[..., 1])
    check("ComplexMulConj", [a, b], [np.stack([product.real, product.imag], -1).astype(np.float32)])
    x = V.f(3, 10)
    spectrum = np.fft.rfft(x)
    parts = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    check("Rfft", [x], [parts], signal_ndim=1)
    check("Irfft", [parts], [x], signal_ndim=1)


@pytest.mark.parametrize("bias", [False, True])
def test_conv_transpose_with_dynamic_pads(bias: bool) -> None:
    arrays = [V.f(1, 4, 5, 6), V.f(4, 3, 3, 3), np.array([1, 0, 1, 1]), *([V.f(3)] if bias else [])]
    attrs = {"strides": [2, 2], "output_padding": [1, 0], "const": [2]}
    compare("ConvTransposeWithDynamicPads", arrays, **attrs)


# Experts


@pytest.mark.parametrize(("groups", "kept", "best"), [(4, 2, 2), (1, 1, 2), (4, 4, 2), (2, 1, 9)])
def test_moe_group_router(groups: int, kept: int, best: int) -> None:
    attrs = {"n_group": groups, "topk_group": kept, "group_topk": best, "top_k": 3}
    compare("MoEGroupRouter", [V.f(5, 16), 0.1 * V.f(16)], **attrs)


def test_scores_of_all_experts() -> None:
    for arrays in ([V.f(5, 16), V.f(16)], [V.f(5, 256), V.f(16), 0.1 * V.f(16, 256)]):
        compare("MoEGroupRouter", arrays, (1, 2), n_group=1, topk_group=1, top_k=3)
