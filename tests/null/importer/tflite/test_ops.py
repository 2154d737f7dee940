"""Float operators of .tflite files, compared with LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..oracles import Values
from .oracles import check_op

F = np.float32
RNG = Values(3)
X = RNG.f(2, 3, 4)
POSITIVE = np.abs(X) + 0.1
INTS = np.arange(-6, 6, dtype=np.int32).reshape(3, 4)
FLAGS = X[0] > 0
IMAGE = RNG.f(1, 6, 4, 8)


def i32(*numbers: Any) -> np.ndarray[Any, Any]:
    return np.array(numbers[0] if len(numbers) == 1 else numbers, np.int32)


def case(
    name: str, inputs: list[Any], options: str = "", const: tuple[int, ...] = (), out: Any = F, **fields: Any
) -> Any:
    outs = out if isinstance(out, list) else [out]
    label = f"{name}-{'-'.join(f'{k}={v}' for k, v in fields.items())}"
    return pytest.param(name, inputs, [(o, ()) for o in outs], options, const, fields, id=label)


UNARY = ["ABS", "CEIL", "COS", "EXP", "FLOOR", "LOGISTIC", "NEG", "ROUND", "SIGN", "SIN", "TANH", "RELU", "RELU6"]
UNARY += ["RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "HARD_SWISH", "SQUARE", "LOG_SOFTMAX", "ZEROS_LIKE"]
TWO = X, RNG.f(3, 1)
NAMED = {"SUB": "SubOptions", "ADD": "AddOptions", "MUL": "MulOptions", "DIV": "DivOptions"}
ELEMENTWISE = [
    *(case(n, [X]) for n in UNARY),
    *(case(n, [POSITIVE]) for n in ("LOG", "SQRT", "RSQRT")),
    case("LOGICAL_NOT", [FLAGS], out=bool),
    *(case(n, list(TWO), o, fusedActivationFunction=1) for n, o in NAMED.items()),
    *(case("ADD", list(TWO), "AddOptions", fusedActivationFunction=k) for k in (2, 3)),
    *(case(n, [INTS, i32(1, 2, -3, 4)], o, out=np.int32, fusedActivationFunction=0) for n, o in NAMED.items()),
    *(case(n, list(TWO)) for n in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD")),
    *(case(n, [INTS, i32(1, 2, -3, 4)], out=np.int32) for n in ("MAXIMUM", "FLOOR_DIV", "FLOOR_MOD", "BITWISE_XOR")),
    case("ATAN2", [X, RNG.f(2, 3, 4)]),
    case("POW", [POSITIVE, RNG.f(3, 1)]),
    case("POW", [INTS, i32(0, 1, 2, 3)], out=np.int32),
    case("RIGHT_SHIFT", [INTS, i32(0, 1, 2, 3)], out=np.int32),
    *(case(n, [FLAGS, FLAGS[:, :1]], out=bool) for n in ("LOGICAL_AND", "LOGICAL_OR")),
    *(
        case(n, [INTS, i32(1, 2, -3, 0)], out=bool)
        for n in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    ),
    case("ADD_N", [X, X * 2, X * 3]),
    case("GELU", [X], "GeluOptions", approximate=True),
    case("GELU", [X], "GeluOptions", approximate=False),
    case("LEAKY_RELU", [X], "LeakyReluOptions", alpha=0.3),
    case("PRELU", [X, RNG.f(1, 1, 4)]),
    case("SELECT_V2", [FLAGS, X, RNG.f(1)]),
    case("SELECT", [np.array([True, False]), X, X * 2]),
    case("SELECT", [X > 0, X, X * 2]),
    case("BUCKETIZE", [X], "BucketizeOptions", out=np.int32, boundaries=[-1.0, 0.0, 0.5]),
    case("CAST", [X * 3], "CastOptions", out=np.int32, inDataType=0, outDataType=2),
    case("CAST", [INTS], "CastOptions", out=bool, inDataType=2, outDataType=6),
    case("DEQUANTIZE", [X.astype(np.float16)], const=(0,)),
    case("BITCAST", [X], out=np.int32),
    case("FAKE_QUANT", [X], "FakeQuantOptions", min=-1.5, max=2.0, numBits=8),
]
REDUCTIONS = [
    *(
        case(n, [X, i32(0, -1)], "ReducerOptions", (1,), keepDims=keep)
        for n in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")
        for keep in (True, False)
    ),
    case("SUM", [INTS, i32(1)], "ReducerOptions", (1,), np.int32, keepDims=False),
    *(case(n, [FLAGS, i32([1])], "ReducerOptions", (1,), bool) for n in ("REDUCE_ANY", "REDUCE_ALL")),
    case("ARG_MAX", [X, i32(1)], "ArgMaxOptions", (1,), np.int64, outputType=4),
    case("ARG_MIN", [X, i32(-1)], "ArgMinOptions", (1,), np.int32, outputType=2),
    case("TOPK_V2", [X, i32(2)], "TopKV2Options", (1,), [F, np.int32]),
    case("CUMSUM", [X, i32(1)], "CumsumOptions", (1,), exclusive=True, reverse=True),
    case("SEGMENT_SUM", [RNG.f(4, 3), i32(0, 0, 1, 1)], const=(1,)),
    *(
        case(f"UNSORTED_SEGMENT_{k}", [RNG.f(4, 3), i32(2, 0, 2, -1), i32(4)], const=(2,))
        for k in ("SUM", "PROD", "MAX", "MIN")
    ),
    case("SOFTMAX", [X], "SoftmaxOptions", beta=0.5),
    case("L2_NORMALIZATION", [X], "L2NormOptions"),
    case(
        "LOCAL_RESPONSE_NORMALIZATION",
        [IMAGE],
        "LocalResponseNormalizationOptions",
        radius=2,
        bias=1.0,
        alpha=0.3,
        beta=0.5,
    ),
]
MOVED = [
    case("RESHAPE", [X, i32(4, -1)], const=(1,)),
    case("RESHAPE", [X], "ReshapeOptions", newShape=[6, 4]),
    case("SQUEEZE", [X[:1]], "SqueezeOptions", squeezeDims=[-3]),
    case("EXPAND_DIMS", [X, i32(-2)], const=(1,)),
    case("TRANSPOSE", [X, i32(2, 0, 1)], const=(1,)),
    case("CONCATENATION", [X, X[:, :1]], "ConcatenationOptions", axis=-2),
    case("PACK", [X, X * 2], "PackOptions", axis=-1, valuesCount=2),
    case("UNPACK", [X], "UnpackOptions", out=[F, F, F], axis=1, num=3),
    case("SPLIT", [i32(-1), X], "SplitOptions", (0,), [F, F], numSplits=2),
    case("SPLIT_V", [X, i32(1, -1), i32(2)], "SplitVOptions", (1, 2), [F, F], numSplits=2),
    case("SLICE", [X, i32(0, 1, 1), i32(-1, 2, 2)], const=(1, 2)),
    case("STRIDED_SLICE", [X, i32(0, 2, 1), i32(2, 0, 0), i32(1, -1, 2)], "StridedSliceOptions", (1, 2, 3), endMask=4),
    case("STRIDED_SLICE", [X, i32(1, -1), i32(2, 0), i32(1, 1)], "StridedSliceOptions", (1, 2, 3), shrinkAxisMask=3),
    case(
        "STRIDED_SLICE",
        [X, i32(1, -1), i32(2, 0), i32(1, 1)],
        "StridedSliceOptions",
        (1, 2, 3),
        shrinkAxisMask=3,
        beginMask=2,
    ),
    case(
        "STRIDED_SLICE",
        [X, i32(0, 0, 1), i32(0, 0, 3), i32(1, 1, 1)],
        "StridedSliceOptions",
        (1, 2, 3),
        ellipsisMask=1,
        newAxisMask=2,
    ),
    case("PAD", [X, i32([[0, 0], [1, 2], [3, 0]])], const=(1,)),
    case("PADV2", [X, i32([[0, 0], [1, 2], [3, 0]]), F(2.5)], const=(1, 2)),
    case("MIRROR_PAD", [X, i32([[1, 0], [2, 2], [0, 3]])], "MirrorPadOptions", (1,), mode=0),
    case("MIRROR_PAD", [X, i32([[1, 2], [3, 0], [0, 4]])], "MirrorPadOptions", (1,), mode=1),
    case("REVERSE_V2", [X, i32([1])], const=(1,)),
    case("REVERSE_SEQUENCE", [X, i32(2, 1, 3, 2)], "ReverseSequenceOptions", seqDim=1, batchDim=2),
    case("TILE", [X, i32(1, 2, 3)], const=(1,)),
    case("BROADCAST_TO", [X[:, :1], i32(2, 3, 4)], const=(1,), version=2),
    case("BROADCAST_ARGS", [i32(2, 1, 4), i32(3, 1)], out=np.int32, const=(0, 1)),
    case("SHAPE", [X], "ShapeOptions", out=np.int64, outType=4),
    case("RANK", [X], out=np.int32),
    case("DEPTH_TO_SPACE", [IMAGE], "DepthToSpaceOptions", blockSize=2),
    case("SPACE_TO_DEPTH", [IMAGE], "SpaceToDepthOptions", blockSize=2),
    case("SPACE_TO_BATCH_ND", [IMAGE, i32(2, 3), i32([[1, 1], [0, 2]])], const=(1, 2)),
    case("BATCH_TO_SPACE_ND", [RNG.f(6, 3, 2, 5), i32(3, 2), i32([[1, 2], [0, 1]])], const=(1, 2)),
]
INDEXED = [
    case("GATHER", [X, i32([[2, 0], [1, 1]])], "GatherOptions", axis=1),
    case("GATHER", [RNG.f(2, 3, 4, 5), i32([[3, 0], [1, 1]])], "GatherOptions", axis=2, batchDims=1),
    case("GATHER_ND", [X, i32([[1, 2], [0, 1]])]),
    case("GATHER_ND", [X, np.int16([[1, 2], [0, 1]])]),
    case("EMBEDDING_LOOKUP", [i32(2, 0), RNG.f(3, 5)]),
    case("SCATTER_ND", [i32([[2], [0], [2]]), RNG.f(3, 4), i32(4, 4)], const=(2,)),
    case("SPARSE_TO_DENSE", [i32([[0, 1], [2, 3]]), i32(3, 4), RNG.f(2), F(7)], const=(1, 3)),
    case("ONE_HOT", [i32([[0, 2], [-1, 3]]), i32(3), F(2), F(-1)], "OneHotOptions", (1, 2, 3), axis=1),
    case("MATRIX_DIAG", [RNG.f(2, 3)]),
    case("MATRIX_SET_DIAG", [RNG.f(2, 4, 3), RNG.f(2, 3)]),
    case("DYNAMIC_UPDATE_SLICE", [X, RNG.f(1, 2, 2), i32(1, 2, 1)]),
    case("FILL", [i32(2, 3), F(1.5)], const=(0,)),
    case("RANGE", [i32(7), i32(1), i32(-2)], out=np.int32, const=(0, 1, 2)),
    case("HASHTABLE_LOOKUP", [i32(5, 4, 9), i32(1, 5, 9), RNG.f(3, 2)], out=[F, np.uint8], const=(1,)),
]
WINDOWED = [
    *(
        case(n, [IMAGE], "Pool2DOptions", padding=p, strideH=2, strideW=1, filterHeight=3, filterWidth=2)
        for n in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
        for p in (0, 1)
    ),
    *(
        case(n, [IMAGE, i32(9, 3)], f"Resize{o}Options", (1,), alignCorners=a, halfPixelCenters=h)
        for n, o in (("RESIZE_BILINEAR", "Bilinear"), ("RESIZE_NEAREST_NEIGHBOR", "NearestNeighbor"))
        for a, h in ((False, False), (True, False), (False, True))
    ),
    case(
        "RESIZE_NEAREST_NEIGHBOR",
        [RNG.f(1, 21, 14, 1), i32(3, 1)],
        "ResizeNearestNeighborOptions",
        (1,),
        halfPixelCenters=True,
    ),
    case(
        "CONV_3D",
        [RNG.f(1, 4, 5, 6, 2), RNG.f(2, 3, 3, 2, 4), RNG.f(4)],
        "Conv3DOptions",
        (1, 2),
        padding=0,
        strideD=1,
        strideH=2,
        strideW=2,
    ),
    *(
        case(
            "TRANSPOSE_CONV",
            [i32(1, h, w, 3), RNG.f(3, 3, 2, 8), IMAGE, RNG.f(3)],
            "TransposeConvOptions",
            (0, 1, 3),
            padding=p,
            strideH=2,
            strideW=3,
        )
        for p, h, w in ((0, 12, 12), (0, 11, 10), (1, 13, 11), (1, 14, 13))
    ),
    case(
        "CONV_3D_TRANSPOSE",
        [i32(1, 8, 5, 6, 3), RNG.f(2, 3, 3, 3, 2), RNG.f(1, 4, 5, 6, 2)],
        "Conv3DOptions",
        (0, 1),
        padding=0,
        strideD=2,
        strideH=1,
        strideW=1,
    ),
    case(
        "FULLY_CONNECTED",
        [X, RNG.f(5, 4), RNG.f(5)],
        "FullyConnectedOptions",
        (1, 2),
        keepNumDims=True,
        fusedActivationFunction=1,
    ),
    case("FULLY_CONNECTED", [X, RNG.f(5, 12), None], "FullyConnectedOptions", (1,), keepNumDims=False),
    case("BATCH_MATMUL", [X, RNG.f(1, 5, 4)], "BatchMatMulOptions", adjX=False, adjY=True),
    case("BATCH_MATMUL", [X, RNG.f(2, 3, 5)], "BatchMatMulOptions", adjX=True, adjY=False),
]


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "options", "const", "fields"),
    [*ELEMENTWISE, *REDUCTIONS, *MOVED, *INDEXED, *WINDOWED],
)
def test_an_operator_gives_what_litert_gives(
    name: str, inputs: list[Any], outputs: Any, options: str, const: tuple[int, ...], fields: dict[str, Any]
) -> None:
    check_op(name, inputs, outputs, options, const, **fields)
