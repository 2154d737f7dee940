"""Operators of domain com.microsoft against onnxruntime; those that its CPU provider lacks against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError, UnsupportedOpError

from ..oracles import MS, Values, assert_same, by_ort, f32, imported

V = Values(1)
Array = np.ndarray[Any, Any]


def _compare(
    op: str, arrays: list[Array | None], outputs: tuple[int, ...] = (0,), steps: int = 0, **attrs: Any
) -> None:
    attrs.setdefault("domain", MS)
    got = imported(op, arrays, outputs, **attrs)
    assert_same(got, by_ort(op, arrays, outputs, **attrs), tol=1e-3, steps=steps)


def u8(value: int) -> Array:
    return np.asarray(value, np.uint8)


def i32(*values: int) -> Array:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("activation", "parameters", "residual"),
    [
        ("Relu", [], True),
        ("LeakyRelu", [0.2], False),
        ("Clip", [0.0, 6.0], False),
        ("HardSigmoid", [0.2, 0.5], False),
        ("Tanh", [], False),
        ("Sigmoid", [], False),
    ],
)
def test_fused_conv(activation: str, parameters: list[float], residual: bool) -> None:
    arrays = [V.f(1, 4, 9, 9), V.f(6, 4, 3, 3), V.f(6), *([V.f(1, 6, 9, 9)] if residual else [])]
    attrs = {"activation_params": parameters} if parameters else {}
    _compare("FusedConv", arrays, activation=activation, pads=[1, 1, 1, 1], **attrs)


def test_fused_conv_refuses_an_unknown_activation() -> None:
    with pytest.raises(UnsupportedOpError, match="Swish"):
        imported("FusedConv", [V.f(1, 4, 9, 9), V.f(6, 4, 3, 3)], domain=MS, activation="Swish")


def test_nhwc_max_pool() -> None:
    _compare("NhwcMaxPool", [V.u8(1, 9, 7, 5)], kernel_shape=[3, 3], strides=[2, 2])


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ((2, 3, 5, 4), (2, 3, 4, 6), {"alpha": 0.5}),
        ((2, 3, 4, 5), (2, 3, 6, 4), {"transA": 1, "transB": 1}),
        ((5, 2, 3, 4), (2, 3, 4, 6), {"transBatchA": 1}),
        ((4, 2, 3, 5), (2, 3, 4, 6), {"transBatchA": 1, "transA": 1}),
    ],
)
def test_fused_matmul(a: tuple[int, ...], b: tuple[int, ...], attrs: dict[str, Any]) -> None:
    _compare("FusedMatMul", [V.f(*a), V.f(*b)], **attrs)


def test_fused_gemm() -> None:
    attrs = {"transB": 1, "alpha": 0.7, "beta": 0.3, "activation": "LeakyRelu", "activation_alpha": 0.1}
    _compare("FusedGemm", [V.f(3, 4), V.f(5, 4), V.f(5)], **attrs)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelu_family(op: str) -> None:
    _compare(op, [V.f(3, 5)])


def test_gelu_with_bias() -> None:
    _compare("BiasGelu", [V.f(3, 5), V.f(5)])
    _compare("FastGelu", [V.f(3, 5), V.f(5)])


@pytest.mark.parametrize(("bias", "inner"), [((2, 1, 1, 5), 0), ((2, 5), 1)])
def test_bias_softmax(bias: tuple[int, ...], inner: int) -> None:
    x, b = V.f(2, 3, 4, 5), V.f(*bias)
    e = np.exp(x + b.reshape(2, 1, 1, 5))
    got = imported("BiasSoftmax", [x, b], domain=MS, axis=3, is_inner_broadcast=inner)
    assert_same(got, [e / e.sum(-1, keepdims=True)])


# Normalisation


def test_skip_layer_normalization() -> None:
    _compare("SkipLayerNormalization", [V.f(2, 3, 8), V.f(2, 3, 8), V.f(8), V.f(8), V.f(8)], (0, 3))
    _compare("SkipLayerNormalization", [V.f(2, 3, 8), V.f(3, 8), V.f(8)], epsilon=1e-5)
    _compare("SkipSimplifiedLayerNormalization", [V.f(2, 3, 8), V.f(2, 3, 8), V.f(8), V.f(8)], (0, 3))


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_a_skip_that_is_larger_than_the_input_is_refused(op: str) -> None:
    with pytest.raises(ShapeError, match="expected one that broadcasts to the input"):
        imported(op, [V.f(1, 3, 8), V.f(2, 3, 8), V.f(8)], domain=MS)


def test_simplified_layer_normalization() -> None:
    _compare("SimplifiedLayerNormalization", [V.f(2, 3, 8), V.f(8)], (0, 1), domain="")


def test_group_norm_with_channels_last() -> None:
    x, scale, bias = V.f(2, 4, 4, 6), V.f(6), V.f(6)
    inner = np.moveaxis(x, -1, 1)
    y = imported("GroupNormalization", [inner, scale, bias], opset=21, num_groups=3)[0]
    want = np.moveaxis(y / (1 + np.exp(-y)), 1, -1)
    assert_same(imported("GroupNorm", [x, scale, bias], domain=MS, groups=3, activation=1), [want])


def test_embed_layer_normalization() -> None:
    ids, segments = V.ints(0, 20, 2, 6, dtype=np.int32), V.ints(0, 2, 2, 6, dtype=np.int32)
    mask = np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32)
    tables = [V.f(20, 8), V.f(10, 8), V.f(2, 8), V.f(8), V.f(8)]
    _compare("EmbedLayerNormalization", [ids, segments, *tables, mask], (0, 1, 2))
    tables[2] = None
    _compare("EmbedLayerNormalization", [ids, None, *tables], (0, 1))


# Attention

MASKS = {
    "none": None,
    "lengths": i32(3, 5),
    "ends and starts": i32(3, 5, 1, 0),
    "by key": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32),
    "by query and key": np.tril(np.ones((2, 5, 5), np.int32)),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    _compare("Attention", [V.f(2, 5, 12), V.f(12, 36), V.f(36), MASKS[mask]], num_heads=3, unidirectional=causal)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_past(causal: int) -> None:
    arrays = [V.f(2, 5, 12), V.f(12, 36), V.f(36), None, V.f(2, 2, 3, 4, 4)]
    _compare("Attention", arrays, (0, 1), num_heads=3, unidirectional=causal)


def test_attention_with_another_value_size() -> None:
    _compare("Attention", [V.f(2, 5, 12), V.f(12, 48), V.f(48)], num_heads=3, qkv_hidden_sizes=[12, 12, 24])


@pytest.mark.parametrize(
    "more",
    [
        [],
        [V.f(36)],
        [V.f(36), np.array([[1] * 4 + [0] * 3, [1] * 7], np.int32)],
        [None, i32(4, 7)],
        [None, None, V.f(1, 3, 5, 7)],
    ],
)
def test_multi_head_attention(more: list[Array | None]) -> None:
    _compare("MultiHeadAttention", [V.f(2, 5, 12), V.f(2, 7, 12), V.f(2, 7, 12), *more], num_heads=3)


def test_multi_head_attention_with_past() -> None:
    arrays = [V.f(2, 5, 12), V.f(2, 5, 12), V.f(2, 5, 12), None, None, None, V.f(2, 3, 4, 4), V.f(2, 3, 4, 4)]
    _compare("MultiHeadAttention", arrays, (0, 1, 2), num_heads=3, unidirectional=1)


def test_multi_head_attention_unpacks() -> None:
    joint = V.f(2, 5, 3, 3, 4)
    apart = [np.ascontiguousarray(joint[:, :, :, i]).reshape(2, 5, 12) for i in range(3)]
    want = imported("MultiHeadAttention", apart, domain=MS, num_heads=3)
    assert_same(imported("MultiHeadAttention", [joint], domain=MS, num_heads=3), want)
    pair = np.ascontiguousarray(joint[:, :, :, 1:])
    assert_same(imported("MultiHeadAttention", [apart[0], pair], domain=MS, num_heads=3), want)


def _caches(pairs: int) -> list[Array]:
    angle = np.arange(20)[:, None] * 0.1 * np.arange(1, pairs + 1)
    return [np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    _compare("RotaryEmbedding", [V.f(2, 5, 24), V.ints(0, 20, 2, 5), *_caches(4)], interleaved=interleaved)
    _compare("RotaryEmbedding", [V.f(2, 3, 5, 8), np.array([3]), *_caches(4)], interleaved=interleaved)
    partial = {"rotary_embedding_dim": 8, "num_heads": 3}
    _compare("RotaryEmbedding", [V.f(2, 3, 5, 16), np.array([3]), *_caches(4)], interleaved=interleaved, **partial)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_group_query_attention(rotary: int, window: int, interleaved: int) -> None:
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary, "rotary_interleaved": interleaved}
    attrs |= {"local_window_size": window, "const": (6,)}
    caches = _caches(8) if rotary else []
    prompt = [V.f(2, 5, 64), V.f(2, 5, 32), V.f(2, 5, 32), None, None, i32(4, 4), np.asarray(5, np.int32), *caches]
    _compare("GroupQueryAttention", prompt, (0, 1, 2), **attrs)
    step = [V.f(2, 1, 64), V.f(2, 1, 32), V.f(2, 1, 32), V.f(2, 2, 6, 16), V.f(2, 2, 6, 16)]
    _compare("GroupQueryAttention", [*step, i32(6, 6), np.asarray(7, np.int32), *caches], (0, 1, 2), **attrs)
    # Rows of different length: what their caches hold behind the last key is nobody's concern.
    ragged = [*step, i32(6, 4), np.asarray(7, np.int32), *caches]
    runs = [run("GroupQueryAttention", ragged, (0, 1, 2), domain=MS, **attrs) for run in (imported, by_ort)]
    assert_same(runs[0][:1], runs[1][:1])


@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("given", [True, False])
def test_group_query_attention_with_sinks(window: int, given: bool) -> None:
    """Each head's softmax has one more score: given, or zero by smooth_softmax."""
    attrs: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": window, "const": (6,)}
    attrs |= {} if given else {"smooth_softmax": 1}
    more = [None] * 4 + ([3 * V.f(4)] if given else [])
    prompt = [V.f(2, 5, 64), V.f(2, 5, 32), V.f(2, 5, 32), None, None, i32(4, 4), np.asarray(5, np.int32), *more]
    _compare("GroupQueryAttention", prompt, (0, 1, 2), **attrs)
    step = [V.f(2, 1, 64), V.f(2, 1, 32), V.f(2, 1, 32), V.f(2, 2, 6, 16), V.f(2, 2, 6, 16)]
    _compare("GroupQueryAttention", [*step, i32(6, 6), np.asarray(7, np.int32), *more], (0, 1, 2), **attrs)


def test_sinks_are_one_a_head() -> None:
    arrays = [*[V.f(1, 1, 64)] * 3, None, None, i32(0), np.asarray(1, np.int32), *[None] * 4, V.f(3)]
    with pytest.raises(ShapeError, match="expected one for each of 4 heads"):
        imported("GroupQueryAttention", arrays, domain=MS, num_heads=4, kv_num_heads=4, const=(6,))


@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_group_query_attention_over_bytes(kind: str) -> None:
    """Scales are given; the bytes written to the caches are equal."""
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "k_quant_type": kind, "v_quant_type": kind}
    attrs |= {"kv_cache_bit_width": 8, "const": (6,)}
    scales = [V.f(1, 2, 1, 16) ** 2 / 50 + 0.01 for _ in "kv"] if kind == "PER_CHANNEL" else [f32([0.02]), f32([0.03])]
    new = [V.f(2, 1, 64), V.f(2, 1, 32), V.f(2, 1, 32), V.i8(2, 2, 6, 16), V.i8(2, 2, 6, 16)]
    arrays = [*new, i32(6, 6), np.asarray(7, np.int32), *_caches(8), None, None, None, *scales]
    got, want = (run("GroupQueryAttention", arrays, (0, 1, 2), domain=MS, **attrs) for run in (imported, by_ort))
    assert_same(got[:1], want[:1])
    for a, b in zip(got[1:], want[1:], strict=True):
        assert a.dtype == b.dtype == np.int8
        assert np.abs(a.astype(int) - b).max() <= 1
        assert (a == b).mean() > 0.99


# Quantised


def _q(scale: float, zero: int) -> list[Array]:
    return [f32(scale), u8(zero)]


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_qlinear_binary(op: str) -> None:
    _compare(op, [V.u8(2, 3, 4), *_q(0.03, 7), V.u8(4), *_q(0.05, 100), *_q(0.07, 90)], steps=1)


def test_qlinear_activations() -> None:
    zeros = [np.asarray(z, np.int8) for z in (3, -128, -8)]
    _compare("QLinearSigmoid", [V.i8(2, 30), f32(0.03), zeros[0], f32(1 / 256), zeros[1]], steps=1)
    _compare("QLinearLeakyRelu", [V.i8(2, 30), f32(0.03), zeros[0], f32(0.04), zeros[2]], steps=1, alpha=0.1)


@pytest.mark.parametrize("last", [0, 1])
def test_qlinear_pools(last: int) -> None:
    x = V.u8(2, 5, 5, 3) if last else V.u8(2, 3, 5, 5)
    arrays = [x, *_q(0.03, 7), *_q(0.02, 5)]
    _compare("QLinearGlobalAveragePool", arrays, steps=1, channels_last=last)
    _compare("QLinearAveragePool", arrays, steps=1, channels_last=last, kernel_shape=[3, 3], strides=[2, 2])


def test_qlinear_concat_and_where() -> None:
    arrays = [*_q(0.05, 10), V.u8(2, 3), *_q(0.03, 7), V.u8(2, 4), *_q(0.06, 0)]
    _compare("QLinearConcat", arrays, steps=1, axis=1, const=(0, 1, 3, 4, 6, 7))
    arrays = [V.f(3, 4) > 0, V.u8(3, 4), *_q(0.03, 7), V.u8(3, 4), *_q(0.05, 9), *_q(0.06, 4)]
    _compare("QLinearWhere", arrays, steps=1, const=(2, 3, 5, 6, 7, 8))


def test_products_of_integers() -> None:
    scales = np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32)
    _compare("DynamicQuantizeMatMul", [V.f(3, 4), V.u8(4, 5), scales, V.u8(5), V.f(5)])
    _compare("DynamicQuantizeMatMul", [V.f(3, 4), V.i7(4, 5), f32(0.02)])
    _compare("MatMulIntegerToFloat", [V.u8(3, 4), V.u8(4, 5), f32(0.1), scales, u8(9), V.u8(5), V.f(5)])
    real = [V.u8(3, 4), f32(0.1), u8(9), V.i7(5, 4), scales, np.zeros(5, np.int8), None]
    _compare("QGemm", real, alpha=0.5, transB=1)
    bias = V.ints(-99, 99, 5, dtype=np.int32)
    quantised = [V.u8(3, 4), f32(0.1), u8(9), V.u8(4, 5), f32(0.2), u8(100), bias, f32(30.0), u8(120)]
    _compare("QGemm", quantised, steps=1, const=(1, 2, 3, 4, 5, 7, 8))


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("mask", ["none", "lengths", "by key"])
def test_attention_of_integers(mask: str, per_column: bool) -> None:
    scale, zero = (f32([0.01] * 35 + [0.02]), np.full(36, 3, np.int8)) if per_column else (f32(0.01), np.int8(3))
    arrays = [V.u8(2, 5, 12), V.i7(12, 36), V.f(36), f32(0.02), scale, MASKS[mask], u8(120), np.asarray(zero)]
    _compare("QAttention", arrays, num_heads=3, const=(1, 4, 7))
    _compare("QAttention", [*arrays[:5], None, *arrays[6:], V.f(2, 2, 3, 4, 4)], (0, 1), num_heads=3, unidirectional=1)


@pytest.mark.parametrize("segments", [True, False])
def test_embeddings_of_integers(segments: bool) -> None:
    ids = [V.ints(0, 20, 2, 6, dtype=np.int32), V.ints(0, 2, 2, 6, dtype=np.int32) if segments else None]
    mask = np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32)
    scales, zeros = [f32(0.01 * (i + 1)) for i in range(5)], [u8(100 + i) for i in range(5)]
    tables = [V.u8(20, 8), V.u8(10, 8), V.u8(2, 8), V.u8(8), V.u8(8)]
    if not segments:
        tables[2], scales[2], zeros[2] = None, None, None
    arrays = [*ids, *tables, mask, *scales, *zeros]
    _compare("QEmbedLayerNormalization", arrays, (0, 1), const=tuple(i for i in range(2, 18) if arrays[i] is not None))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_matmul_of_few_bits(bits: int, zeros: bool) -> None:
    n, k, block = 5, 40, 16  # the third block is half empty
    arrays = [V.f(2, 7, k), V.u8(n, 3, block * bits // 8), V.f(n, 3)]
    if zeros:
        arrays.append(V.u8(n, (3 * bits + 7) // 8))
    const = tuple(range(1, len(arrays)))
    _compare("MatMulNBits", arrays, const=const, K=k, N=n, bits=bits, block_size=block)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "part"),
    [
        ("Attention", [V.f(2, 5, 12), V.f(12, 36)], {"num_heads": 3, "do_rotary": 1}, "do_rotary"),
        ("Attention", [V.f(2, 5, 12), V.f(12, 36), None, i32(1, 2, 3)], {"num_heads": 3}, "mask"),
        (
            "GroupQueryAttention",
            [*[V.f(1, 1, 64)] * 3, None, None, i32(0), np.asarray(1, np.int32), *[None] * 5, *[f32([1.0])] * 2],
            {"num_heads": 4, "kv_num_heads": 4, "k_quant_type": "PER_TENSOR", "kv_cache_bit_width": 4, "const": (6,)},
            "in 4 bits, PER_TENSOR",
        ),
        (
            "GroupQueryAttention",
            [*[V.f(1, 1, 64)] * 3, None, None, i32(0), np.asarray(1, np.int32), *[None] * 5, *[f32([1.0])] * 2],
            {"num_heads": 4, "kv_num_heads": 4, "const": (6,)},
            "k_quant_type is NONE",
        ),
    ],
)
def test_refusals(op: str, arrays: list[Any], attrs: dict[str, Any], part: str) -> None:
    with pytest.raises(UnsupportedOpError, match=part):
        imported(op, arrays, domain=MS, **attrs)


@pytest.mark.parametrize("group", [1, 4])
def test_qlinear_conv_with_channels_last(group: int) -> None:
    scale = np.float32(0.02)
    x, w = V.u8(1, 7, 9, 4), V.u8(8, 4 // group, 3, 3)
    arrays = [x, scale, u8(120), w, scale, u8(128), np.float32(0.5), u8(100), V.ints(-50, 50, 8, dtype=np.int32)]
    attrs = {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": group, "channels_last": 1, "const": tuple(range(1, 9))}
    _compare("QLinearConv", [np.asarray(a) for a in arrays], steps=1, **attrs)
