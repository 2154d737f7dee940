"""Operators on floats, and on whole numbers and booleans without a scale."""

from __future__ import annotations

import numpy as np

from .graph import Builder, Val, generator
from .movement import pool_fields

ANY = {"RELU": "", "RELU6": "", "RELU_N1_TO_1": "", "RELU_0_TO_1": "", "TANH": "", "LOGISTIC": "", "ELU": "",
       "ABS": "AbsOptions", "NEG": "NegOptions", "SIN": "", "COS": "CosOptions", "EXP": "ExpOptions",
       "SQUARE": "SquareOptions", "FLOOR": "", "CEIL": "", "ROUND": "", "HARD_SWISH": "HardSwishOptions",
       "SIGN": "SignOptions"}  # fmt: skip
POSITIVE = ("LOG", "SQRT", "RSQRT")
BINARY = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions",
          "SQUARED_DIFFERENCE": "SquaredDifferenceOptions", "FLOOR_DIV": "FloorDivOptions",
          "FLOOR_MOD": "FloorModOptions", "ATAN2": "ATan2Options", "POW": "PowOptions"}  # fmt: skip
FUSED = ("ADD", "SUB", "MUL", "DIV")
COMPARED = {"GREATER": "GreaterOptions", "GREATER_EQUAL": "GreaterEqualOptions", "LESS": "LessOptions",
            "LESS_EQUAL": "LessEqualOptions", "EQUAL": "EqualOptions", "NOT_EQUAL": "NotEqualOptions"}  # fmt: skip
F32 = [("float32", None)]


def activation(b: Builder) -> int:
    return int(b.pick((0, 0, 0, 1, 2, 3)))


def other(b: Builder, x: Val, quant: object = None) -> Val:
    """An operand that broadcasts against x."""
    shape = [d if b.chance(0.7) else 1 for d in x.shape]
    shape = shape[int(b.rng.integers(len(shape))) :] if shape and b.chance(0.3) else shape
    if b.chance(0.5):
        return b.const(b.numbers(x.dtype, shape), quant)  # type: ignore[arg-type]
    return b.new(x.dtype, shape, quant)  # type: ignore[arg-type]


@generator("float", 3)
def unary(b: Builder) -> object:
    if b.chance(0.2):
        shape = b.shape()
        x = b.new("float32", shape, data=b.rng.uniform(0.05, 9, shape))
        return b.op(b.pick(POSITIVE), [x], F32)
    name = b.pick(list(ANY))
    return b.op(name, [b.value()], F32, ANY[name])


@generator("float")
def unary_with_numbers(b: Builder) -> object:
    x = b.value()
    if b.chance(0.3):
        return b.op("GELU", [x], F32, "GeluOptions", Approximate=b.chance(0.5))
    if b.chance(0.5):
        return b.op("LEAKY_RELU", [x], F32, "LeakyReluOptions", Alpha=float(b.rng.uniform(-0.5, 0.9)))
    alpha = b.const(
        b.numbers("float32", [d if i == x.rank - 1 or b.chance(0.2) else 1 for i, d in enumerate(x.shape)][1:])
    )
    return b.op("PRELU", [x, alpha], F32)


@generator("float", 3)
def binary(b: Builder) -> object:
    x = b.value(("float32", "float32", "int32"), fits=lambda v: v.rank <= 4)
    name = b.pick(list(BINARY))
    y = other(b, x)
    if name in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "POW"):
        numbers = b.rng.uniform(0.5, 3, y.shape) if x.dtype == "float32" else b.rng.integers(1, 5, y.shape)
        y = b.const(numbers.astype(x.dtype))
    if name == "ATAN2":  # which does not broadcast
        y = b.const(b.numbers(x.dtype, x.shape))
    if name == "POW" and x.dtype == "float32":
        x = b.op("ABS", [x], F32, "AbsOptions")[0]
    fields = {"FusedActivationFunction": activation(b) if x.dtype == "float32" else 0} if name in FUSED else {}
    pair = [x, y] if b.chance(0.7) or name in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "POW") else [y, x]
    return b.op(name, pair, [(x.dtype, None)], BINARY[name], **fields)


@generator("float")
def logic(b: Builder) -> object:
    x = b.value(("float32", "int32"), fits=lambda v: v.rank <= 4)
    name = b.pick(list(COMPARED))
    (c,) = b.op(name, [x, other(b, x)], [("bool", None)], COMPARED[name])
    name = b.pick(("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "", "REDUCE_ANY", "REDUCE_ALL"))
    if name.startswith("REDUCE"):
        return b.op(name, [c, b.ints([b.axis(c.rank)])], [("bool", None)], "ReducerOptions", KeepDims=b.chance(0.5))
    if name == "LOGICAL_NOT":
        return b.op(name, [c], [("bool", None)], "LogicalNotOptions")
    if name:
        options = "LogicalAndOptions" if name == "LOGICAL_AND" else "LogicalOrOptions"
        return b.op(name, [c, other(b, c)], [("bool", None)], options)
    return c


@generator("float", 2)
def reduce(b: Builder) -> object:
    x = b.value(("float32", "float32", "int32"), fits=lambda v: v.rank <= 4)
    axes = sorted({b.axis(x.rank) % x.rank for _ in range(2)})
    name = b.pick(("MEAN", "SUM", "REDUCE_PROD"))
    return b.op(name, [x, b.ints(axes)], [(x.dtype, None)], "ReducerOptions", KeepDims=b.chance(0.5))


@generator("float", 2)
def normalized(b: Builder) -> object:
    x = b.value(rank=(1, 2, 3, 4))
    name = b.pick(("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", "CUMSUM", "LOCAL_RESPONSE_NORMALIZATION"))
    if name == "SOFTMAX":
        return b.op(name, [x], F32, "SoftmaxOptions", Beta=b.pick((1.0, 1.0, 0.5)))
    if name == "CUMSUM":
        fields = {"Exclusive": b.chance(0.5), "Reverse": b.chance(0.5)}
        return b.op(name, [x, b.ints(b.axis(x.rank))], F32, "CumsumOptions", **fields)
    if name == "LOCAL_RESPONSE_NORMALIZATION":
        fields = {"Radius": int(b.rng.integers(1, 4)), "Bias": 1.0, "Alpha": 0.3, "Beta": 0.6}
        return b.op(name, [b.value(rank=4)], F32, "LocalResponseNormalizationOptions", **fields)
    return b.op(name, [x], F32, {"LOG_SOFTMAX": "LogSoftmaxOptions"}.get(name, "L2NormOptions"))


@generator("float")
def cast(b: Builder) -> object:
    x = b.value(("float32", "int32", "int64", "bool", "uint8"), fits=lambda v: v.quant is None)
    to = b.pick(("float32", "int32", "int64"))
    kinds = {"float32": 0, "int32": 2, "int64": 4, "bool": 6, "uint8": 3}
    return b.op("CAST", [x], [(to, None)], "CastOptions", InDataType=kinds[x.dtype], OutDataType=kinds[to])


def half_weights(b: Builder, shape: list[int]) -> Val:
    """A constant of floats, now and then kept in halves."""
    array = b.rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))
    if b.chance(0.3):
        return b.op("DEQUANTIZE", [b.const(array.astype(np.float16))], F32, "DequantizeOptions")[0]
    return b.const(array.astype(np.float32))


def window(b: Builder, x: Val) -> dict[str, int]:
    fields = {
        "Padding": int(b.rng.integers(2)),
        "StrideH": int(b.rng.integers(1, 3)),
        "StrideW": int(b.rng.integers(1, 3)),
    }
    dilated = b.chance(0.2)
    fields |= {"DilationHFactor": 2 if dilated else 1, "DilationWFactor": 2 if dilated else 1}
    if dilated:
        fields |= {"StrideH": 1, "StrideW": 1}
    return fields


@generator("float", 3)
def conv(b: Builder) -> object:
    x = b.value(rank=4)
    kh, kw = (int(b.rng.integers(1, 4)) for _ in range(2))
    c = x.shape[3]
    name = b.pick(("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"))
    fields: dict[str, object] = {**window(b, x), "FusedActivationFunction": activation(b)}
    if name == "DEPTHWISE_CONV_2D":
        m = b.pick((1, 1, 2))
        w, many = half_weights(b, [1, kh, kw, c * m]), c * m
        fields["DepthMultiplier"] = m
    else:
        many = b.size()
        w = half_weights(b, [many, kh, kw, c])
    bias = b.const(b.numbers("float32", (many,))) if b.chance(0.7) else None
    if name == "TRANSPOSE_CONV":
        return b.op(
            name, [transposed_size(b, x, fields, (kh, kw), many), w, x, bias], F32, "TransposeConvOptions", **fields
        )
    options = {"CONV_2D": "Conv2DOptions"}.get(name, "DepthwiseConv2DOptions")
    return b.op(name, [x, w, bias], F32, options, **fields)


def transposed_size(b: Builder, x: Val, fields: dict[str, object], kernel: tuple[int, int], many: int) -> Val:
    """The shape that a transposed convolution gives; removes what its options do not have."""
    fields.pop("DilationHFactor")
    fields.pop("DilationWFactor")
    sizes = []
    for d, k, step in zip(x.shape[1:3], kernel, ("StrideH", "StrideW"), strict=True):
        s = int(fields[step])  # type: ignore[call-overload]
        sizes.append(d * s if fields["Padding"] == 0 else (d - 1) * s + k + int(b.rng.integers(s)) * b.chance(0.3))
    return b.ints([x.shape[0], *sizes, many])


@generator("float")
def conv_3d(b: Builder) -> object:
    x = b.value(rank=5)
    k = [int(b.rng.integers(1, 3)) for _ in range(3)]
    w = b.const(b.numbers("float32", [*k, x.shape[4], b.pick((1, 2, 4))]))
    fields = {"Padding": int(b.rng.integers(2)), "StrideD": b.pick((1, 2)), "StrideH": b.pick((1, 2)), "StrideW": 1}
    return b.op("CONV_3D", [x, w], F32, "Conv3DOptions", **fields, FusedActivationFunction=activation(b))


@generator("float")
def average_pool(b: Builder) -> object:
    name = b.pick(("AVERAGE_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"))
    x = b.value(rank=4)
    return b.op(name, [x], F32, "Pool2DOptions", **pool_fields(b, x))


@generator("float", 3)
def product(b: Builder) -> object:
    if b.chance(0.4):
        x = b.value(rank=(2, 3, 4))
        ax, ay = b.chance(0.3), b.chance(0.3)
        k, n = x.shape[-2 if ax else -1], b.size()
        lead = [d if b.chance(0.7) else 1 for d in x.shape[:-2]]
        shape = [*lead, n, k] if ay else [*lead, k, n]
        y = b.const(b.numbers("float32", shape)) if b.chance(0.5) else b.new("float32", shape)
        return b.op("BATCH_MATMUL", [x, y], F32, "BatchMatMulOptions", AdjX=ax, AdjY=ay)
    x = b.value(rank=(2, 3, 4))
    w = half_weights(b, [b.size(), x.shape[-1]])
    bias = b.const(b.numbers("float32", (w.shape[0],))) if b.chance(0.7) else None
    fields = {"FusedActivationFunction": activation(b), "WeightsFormat": 0, "KeepNumDims": b.chance(0.5)}
    return b.op("FULLY_CONNECTED", [x, w, bias], F32, "FullyConnectedOptions", **fields)


@generator("float")
def bilinear(b: Builder) -> object:
    x = b.value(rank=4)
    ways = b.pick(((False, False), (True, False), (False, True)))
    fields = {"AlignCorners": ways[0], "HalfPixelCenters": ways[1]}
    return b.op("RESIZE_BILINEAR", [x, b.ints([b.size(), b.size()])], F32, "ResizeBilinearOptions", **fields)


@generator("float")
def sequence(b: Builder) -> object:
    """An LSTM over a sequence, from zero states."""
    x = b.value(rank=3)
    units, k = b.pick((1, 3, 4)), x.shape[2]

    def weights(*shape: int) -> Val:
        return b.const(b.numbers("float32", shape) * np.float32(0.5))

    ins: list[Val | None] = [x, *(weights(units, k) for _ in range(4)), *(weights(units, units) for _ in range(4))]
    ins += [None] * 3 + [weights(units) for _ in range(4)] + [None] * 2
    batch = x.shape[1] if (major := b.chance(0.5)) else x.shape[0]
    for _ in range(2):
        at = b.g.tensor("float32", (batch, units), variable=True)
        ins.append(Val(at, "float32", (batch, units)))
    fields = {"FusedActivationFunction": 4, "TimeMajor": major, "CellClip": b.pick((0.0, 0.5)), "ProjClip": 0.0}
    return b.op("UNIDIRECTIONAL_SEQUENCE_LSTM", ins, F32, "UnidirectionalSequenceLSTMOptions", **fields)


@generator("float", 0.7)
def made(b: Builder) -> object:
    name = b.pick(("FILL", "RANGE", "ONE_HOT", "ADD_N", "MATRIX_DIAG", "EMBEDDING_LOOKUP", "SEGMENT_SUM"))
    if name == "FILL":
        return b.op(name, [b.ints(b.shape(2)), b.const(np.float32(1.5))], F32, "FillOptions")
    if name == "RANGE":
        return b.op(name, [b.const(np.float32(v)) for v in (1, 9, 2)], F32, "RangeOptions")
    if name == "ONE_HOT":
        at = b.value("int32", (1, 2))
        ends = [b.const(np.float32(v)) for v in (1, 0)]
        return b.op(name, [at, b.ints(4), *ends], F32, "OneHotOptions", Axis=-1)
    if name == "ADD_N":
        x = b.value()
        return b.op(name, [x, b.new("float32", x.shape), x], F32, "AddNOptions")
    if name == "MATRIX_DIAG":
        return b.op(name, [b.value(rank=(1, 2))], F32, "MatrixDiagOptions")
    x = b.value(rank=(2, 3))
    if name == "EMBEDDING_LOOKUP":
        return b.op(name, [b.ints(b.rng.integers(0, 5, 3)), b.const(b.numbers("float32", (5, 4)))], F32)
    return b.op(name, [x, b.ints(np.sort(b.rng.integers(0, 3, x.shape[0])))], F32, "SegmentSumOptions")
