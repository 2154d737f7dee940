"""Quantised operators: int8, uint8 and int16 with scales and zero points, and floats times int8 constants."""

from __future__ import annotations

import numpy as np

from ...helpers.tflite_writer import Quant
from .floats import BINARY, COMPARED, F32, activation, transposed_size, window
from .graph import QUANTIZED, Builder, Val, generator
from .movement import pool_fields

BYTES = ("int8", "int8", "uint8")


def result(b: Builder, dtype: str, scale: float) -> list[tuple[str, Quant | None]]:
    return [(dtype, b.quant(dtype, scale))]


@generator("quantized", 2)
def to_and_fro(b: Builder) -> object:
    """QUANTIZE of floats, DEQUANTIZE, and from one scale to another."""
    if b.chance(0.35):
        dtype = b.pick(QUANTIZED)
        return b.op("QUANTIZE", [b.value()], result(b, dtype, 3e-4 if dtype == "int16" else 0.03), "QuantizeOptions")
    x = b.value(QUANTIZED)
    if b.chance(0.5):
        return b.op("DEQUANTIZE", [x], F32, "DequantizeOptions")
    dtype = b.pick(("int8", "int16")) if x.dtype == "int16" else b.pick(("int8", "uint8", "int16"))
    scale = x.scale * {"int16": 1 / 200}.get(dtype, 1) * (200 if x.dtype == "int16" else 1)
    return b.op("QUANTIZE", [x], result(b, dtype, scale), "QuantizeOptions")


@generator("quantized", 4)
def arithmetic(b: Builder) -> object:
    x = b.value(QUANTIZED, fits=lambda v: v.rank <= 4)
    assert x.quant is not None
    name = b.pick(("ADD", "ADD", "SUB", "MUL", "MUL", "SQUARED_DIFFERENCE", "DIV"))
    quant = b.quant(x.dtype, x.scale)
    y = operand(b, x, quant)
    reach = 20000 if x.dtype == "int16" else 100
    scale = {"MUL": x.scale * quant.scale * reach, "SQUARED_DIFFERENCE": x.scale * x.scale * reach * 2}.get(
        name, x.scale * 1.5
    )
    if name == "DIV":
        low = 1 + quant.zero
        numbers = b.rng.integers(low, max(low, np.iinfo(x.dtype).max) + 1, y.shape)
        if low > np.iinfo(x.dtype).max:
            return None
        y = b.const(numbers.astype(x.dtype), quant)
        # Other factors are shifted by negative counts, or by more than 31, in LiteRT.
        scale = x.scale / quant.scale / (2**18 if x.dtype == "int16" else 2**10)
    fields = {"FusedActivationFunction": activation(b)} if name != "SQUARED_DIFFERENCE" else {}
    if name in ("ADD", "SUB") and x.dtype == "int16":
        fields["PotScaleInt16"] = False
    pair = [x, y] if name == "DIV" or b.chance(0.7) else [y, x]
    return b.op(name, pair, result(b, x.dtype, scale), BINARY[name], **fields)


def operand(b: Builder, x: Val, quant: Quant) -> Val:
    """A quantised operand that broadcasts against x."""
    same = [
        v for v in b.values if v.dtype == x.dtype and v.shape == x.shape and v is not x and v.scale < 3 * quant.scale
    ]
    if same and b.chance(0.5):
        return b.pick(same)  # type: ignore[no-any-return]
    shape = [d if b.chance(0.7) else 1 for d in x.shape]
    return b.const(b.numbers(x.dtype, shape), quant) if b.chance(0.5) else b.new(x.dtype, shape, quant)


@generator("quantized")
def compared(b: Builder) -> object:
    # Scales from 1 on are shifted by negative counts in LiteRT.
    x = b.value(("int8", "uint8"), fits=lambda v: v.rank <= 4 and v.scale < 0.3)
    name = b.pick(list(COMPARED))
    y = operand(b, x, b.quant(x.dtype, x.scale) if b.chance(0.5) else x.quant)  # type: ignore[arg-type]
    return b.op(name, [x, y], [("bool", None)], COMPARED[name])


@generator("quantized", 4)
def activations(b: Builder) -> object:
    x = b.value(QUANTIZED, (1, 2, 3, 4))
    name = b.pick(("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "PRELU", "HARD_SWISH", "LOGISTIC",
                   "TANH", "ELU", "GELU", "EXP", "LOG", "RSQRT", "SQRT", "ABS"))  # fmt: skip
    fields: dict[str, object] = {}
    options, rest = {"ABS": "AbsOptions", "EXP": "ExpOptions", "HARD_SWISH": "HardSwishOptions"}.get(name, ""), []
    scale = x.scale
    if name in ("LOGISTIC", "TANH"):
        zero = {"int8": -128, "uint8": 0, "int16": 0} if name == "LOGISTIC" else {"int8": 0, "uint8": 128, "int16": 0}
        bits = 15 if x.dtype == "int16" else 8 if name == "LOGISTIC" else 7
        return b.op(name, [x], [(x.dtype, Quant((2.0**-bits,), (zero[x.dtype],)))])
    if name == "LEAKY_RELU":
        options, fields = "LeakyReluOptions", {"Alpha": float(b.rng.uniform(-0.4, 0.9))}
    if name == "GELU":
        options, fields = "GeluOptions", {"Approximate": b.chance(0.5)}
    if name == "PRELU":
        shape = [1] * (x.rank - 2) + [x.shape[-1]] if x.rank > 1 else [x.shape[-1]]
        kind = "int8" if x.dtype == "int16" else x.dtype
        rest = [b.const(b.numbers(kind, shape), b.quant(kind, 0.01))]
    if name in ("LOG", "RSQRT", "SQRT"):
        quant = Quant((scale,), (np.iinfo(x.dtype).min if x.dtype != "int16" else 0,))
        x = b.new(x.dtype, x.shape, quant, np.maximum(b.numbers(x.dtype, x.shape), 1 + quant.zero))
    if name in ("EXP", "LOG", "RSQRT", "SQRT"):
        scale = 0.03 if x.dtype != "int16" else 1e-4
    return b.op(name, [x, *rest], result(b, x.dtype, scale), options, **fields)


@generator("quantized", 2)
def soft(b: Builder) -> object:
    x = b.value(QUANTIZED, rank=(1, 2, 3, 4))
    name = b.pick(("SOFTMAX", "SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"))
    low = {"int8": -128, "uint8": 0, "int16": 0}[x.dtype]
    if name == "SOFTMAX":
        scale = 2.0**-15 if x.dtype == "int16" else 2.0**-8
        return b.op(name, [x], [(x.dtype, Quant((scale,), (low,)))], "SoftmaxOptions", Beta=b.pick((1.0, 1.0, 0.5)))
    if name == "LOG_SOFTMAX":
        return b.op(name, [x], [(x.dtype, Quant((16 / 256,), (low + 255,)))], "LogSoftmaxOptions")
    return b.op(name, [x], [(x.dtype, Quant((2.0**-7,), (low + 128,)))], "L2NormOptions")


@generator("quantized", 2)
def pooled(b: Builder) -> object:
    x = b.value(QUANTIZED, 4)
    return b.op("AVERAGE_POOL_2D", [x], [(x.dtype, x.quant)], "Pool2DOptions", **pool_fields(b, x))


@generator("quantized", 2)
def reduced(b: Builder) -> object:
    x = b.value(QUANTIZED, fits=lambda v: v.rank <= 4)
    axes = sorted({b.axis(x.rank) % x.rank for _ in range(2)})
    name = b.pick(("MEAN", "MEAN", "SUM", "REDUCE_PROD"))
    count = int(np.prod([x.shape[a] for a in axes]))
    scale = x.scale * {"MEAN": 1, "SUM": np.sqrt(count)}.get(name, 1 / 128)
    if name == "REDUCE_PROD":
        if count > 6:
            return None
        # Larger products leave LiteRT's 48 bits.
        scale = max(scale, float((x.scale * (30000 if x.dtype == "int16" else 128)) ** count) / 100)
    return b.op(name, [x, b.ints(axes)], result(b, x.dtype, scale), "ReducerOptions", KeepDims=b.chance(0.5))


@generator("quantized")
def bilinear_integers(b: Builder) -> object:
    x = b.value(QUANTIZED, 4)
    ways = b.pick(((False, False), (True, False), (False, True)))
    fields = {"AlignCorners": ways[0], "HalfPixelCenters": ways[1]}
    return b.op(
        "RESIZE_BILINEAR", [x, b.ints([b.size(), b.size()])], [(x.dtype, x.quant)], "ResizeBilinearOptions", **fields
    )


def filters(b: Builder, dtype: str, shape: list[int], axis: int) -> Val:
    """Constant weights for inputs of `dtype`: symmetric, and one scale for each output channel or one."""
    if dtype == "uint8":
        return b.const(b.numbers("uint8", shape), b.quant("uint8", 0.01))
    count = shape[axis] if b.chance(0.6) else 1
    scales = tuple(float(s) for s in np.exp(b.rng.uniform(-6, -3, count)))
    return b.const(b.rng.integers(-127, 128, shape).astype(np.int8), Quant(scales, (0,) * count, axis))


def bias_of(b: Builder, x: Val, w: Val, many: int) -> Val | None:
    if b.chance(0.3):
        return None
    assert w.quant is not None
    scales = np.float32(x.scale) * np.float32(w.quant.scales)
    wide = x.dtype == "int16"
    numbers = b.rng.integers(-30000 if wide else -3000, 30000 if wide else 3000, many)
    quant = Quant(tuple(map(float, scales)), (0,) * len(scales))
    return b.const(numbers.astype(np.int64 if wide else np.int32), quant)


def product_scale(x: Val, w: Val, terms: int) -> float:
    assert w.quant is not None
    reach = 500 if x.dtype == "int16" else 70
    return (
        x.scale * float(np.mean(w.quant.scales)) * 70 * reach * np.sqrt(terms) / (10000 if x.dtype == "int16" else 60)
    )


@generator("quantized", 6)
def convolved(b: Builder) -> object:
    x = b.value(QUANTIZED, 4)
    kh, kw = (int(b.rng.integers(1, 4)) for _ in range(2))
    c = x.shape[3]
    name = b.pick(("CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"))
    fields: dict[str, object] = {**window(b, x), "FusedActivationFunction": activation(b)}
    if name == "DEPTHWISE_CONV_2D":
        m = b.pick((1, 1, 2))
        w, many, terms = filters(b, x.dtype, [1, kh, kw, c * m], 3), c * m, kh * kw
        fields["DepthMultiplier"] = m
    else:
        many, terms = b.size(), kh * kw * c
        w = filters(b, x.dtype, [many, kh, kw, c], 0)
    out = result(b, x.dtype, product_scale(x, w, terms))
    bias = bias_of(b, x, w, many)
    if name == "TRANSPOSE_CONV":
        size = transposed_size(b, x, fields, (kh, kw), many)
        return b.op(name, [size, w, x, bias], out, "TransposeConvOptions", **fields)
    options = {"CONV_2D": "Conv2DOptions"}.get(name, "DepthwiseConv2DOptions")
    return b.op(name, [x, w, bias], out, options, **fields)


@generator("quantized", 4)
def multiplied(b: Builder) -> object:
    x = b.value(QUANTIZED, rank=(2, 3, 4))
    if x.dtype != "uint8" and b.chance(0.3):
        ax, ay = b.chance(0.3), b.chance(0.3)
        k, n = x.shape[-2 if ax else -1], b.size()
        lead = [d if b.chance(0.7) else 1 for d in x.shape[:-2]]
        shape, quant = ([*lead, n, k] if ay else [*lead, k, n]), b.quant(x.dtype, 0.01)
        y = b.const(b.numbers(x.dtype, shape), quant) if b.chance(0.5) else b.new(x.dtype, shape, quant)
        out = result(b, x.dtype, product_scale(x, y, k))
        return b.op("BATCH_MATMUL", [x, y], out, "BatchMatMulOptions", AdjX=ax, AdjY=ay)
    w = filters(b, x.dtype, [b.size(), x.shape[-1]], 0)
    out = result(b, x.dtype, product_scale(x, w, x.shape[-1]))
    fields = {"FusedActivationFunction": activation(b), "WeightsFormat": 0, "KeepNumDims": b.chance(0.5)}
    return b.op("FULLY_CONNECTED", [x, w, bias_of(b, x, w, w.shape[0])], out, "FullyConnectedOptions", **fields)


@generator("quantized", 4)
def hybrid(b: Builder) -> object:
    """Floats times an int8 constant."""
    name = b.pick(("FULLY_CONNECTED", "FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "BATCH_MATMUL"))
    if name in ("FULLY_CONNECTED", "BATCH_MATMUL"):
        x = b.value(rank=(2, 3))
        n, k = b.size(), x.shape[-1]
        if name == "BATCH_MATMUL":
            y = b.const(
                b.rng.integers(-127, 128, [*(1 for _ in x.shape[:-2]), k, n]).astype(np.int8), Quant((0.02,), (0,))
            )
            fields = {"AdjX": False, "AdjY": False, "AsymmetricQuantizeInputs": b.chance(0.5)}
            return b.op(name, [x, y], F32, "BatchMatMulOptions", **fields)
        w = filters(b, "int8", [n, k], 0)
        bias = b.const(b.numbers("float32", (n,))) if b.chance(0.6) else None
        fields = {"FusedActivationFunction": activation(b), "AsymmetricQuantizeInputs": b.chance(0.5)}
        return b.op(name, [x, w, bias], F32, "FullyConnectedOptions", **fields)
    x = b.value(rank=4)
    kh, kw = (int(b.rng.integers(1, 4)) for _ in range(2))
    fields = {**window(b, x), "FusedActivationFunction": activation(b)}
    if name == "DEPTHWISE_CONV_2D":
        many = x.shape[3]
        w = filters(b, "int8", [1, kh, kw, many], 3)
        fields["DepthMultiplier"] = 1
    else:
        many = b.size()
        w = filters(b, "int8", [many, kh, kw, x.shape[3]], 0)
    bias = b.const(b.numbers("float32", (many,))) if b.chance(0.6) else None
    options = {"CONV_2D": "Conv2DOptions"}.get(name, "DepthwiseConv2DOptions")
    return b.op(name, [x, w, bias], F32, options, **fields)
