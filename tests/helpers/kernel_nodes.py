"""A few nodes of every operator that kernels compute, so that each kernel takes one of them on some device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from opalite.expr.trace_function import call, trace
from opalite.ir.constants.int8_rows import to_byte_rows
from opalite.ir.dtype import DType
from opalite.ops.strided_view import View

Sample = tuple[str, dict[str, Any], list[Any], Sequence[int]]
"""(operator, attributes, arrays of the inputs, numbers of those that are constants)."""

_RNG = np.random.default_rng(0)
_F32 = DType.FLOAT32


def noise(*shape: int) -> Any:
    """Float32 of `shape`."""
    return _RNG.standard_normal(shape).astype(np.float32)


def samples() -> Iterator[Sample]:
    """All of them."""
    yield from _windows()
    yield from _products()
    yield from _rotations()
    yield from _movement()
    yield from _reductions()
    yield from _others()


def _windows() -> Iterator[Sample]:
    def window(strides: int = 1, pad: int = 1, group: int = 1, rank: int = 2) -> dict[str, Any]:
        both = {"strides": (strides,) * rank, "pads": (pad,) * 2 * rank, "dilations": (1,) * rank}
        return {**both, "group": group}

    relu = {"epilogue": trace(lambda a, b: (a + b).call("max", 0), _F32, _F32)}
    x = noise(2, 32, 17, 19)
    scale = noise(1, 32, 1, 1)
    for bias in (None, noise(32)):
        yield "Conv", window(), [x, noise(32, 32, 3, 3), bias], (1, 2)
        yield "Conv", window(pad=0), [x, noise(32, 32, 1, 1), bias], (1, 2)
        yield "Conv", window(group=32), [x, noise(32, 1, 3, 3), bias], (1, 2)
        yield "Conv", window(strides=2), [x[:, :3], noise(32, 3, 3, 3), bias], (1, 2)
        yield "ConvTranspose", window(2) | {"output_padding": (0, 0)}, [x, noise(32, 32, 3, 3), bias], (1, 2)
        rows = x.transpose(0, 2, 3, 1).copy()
        yield "DepthwiseNhwc", _without(window(), "group"), [rows, noise(32, 1, 3, 3), bias], (1, 2)
    yield "Conv", window() | relu, [x, noise(32, 32, 3, 3), noise(32), scale], (1, 2, 3)
    yield "Conv", window() | relu, [x, noise(32, 32, 3, 3), None, noise(2, 32, 17, 19)], (1,)
    yield "Conv", window(group=4), [x, noise(32, 8, 3, 3), None], (1,)
    yield "Conv", window(), [x, noise(3, 32, 3, 3), noise(3)], (1, 2)
    yield "ConvTranspose", window(2) | {"output_padding": (0, 0)}, [x, noise(32, 3, 2, 2), None], (1,)
    pool = {"ceil_mode": False, "count_include_pad": False, "p": 2, "with_indices": False, "storage_order": 0}
    for kind, more in (("max", {}), ("average", {}), ("lp", {}), ("max", {"with_indices": True})):
        yield "Pool", {**_without(window(2), "group"), "kernel": (3, 3), **pool, "kind": kind, **more}, [x], ()
    bytes_, filters = _RNG.integers(0, 255, (1, 16, 9, 9)), _RNG.integers(-100, 100, (16, 16, 3, 3))
    for x_zero in (None, np.asarray(7, np.uint8)):
        for const in ((1, 2, 4), (1, 2, 3, 4)):
            ints = [bytes_.astype(np.uint8), filters.astype(np.int8), np.arange(16, dtype=np.int32), x_zero]
            yield "IntegerConv", window(), [*ints, np.zeros(16, np.int8)], const
            ints[1] = ints[1][:, :1]
            yield "IntegerConv", window(group=16), [*ints, None], const


def _products() -> Iterator[Sample]:
    plain: dict[str, Any] = {"trans_a": False, "trans_b": False}
    added = {"epilogue": call("add", _F32, _F32)}
    a, b = noise(64, 128), noise(128, 96)
    for const in ((), (1,)):
        yield "MatMul", plain, [a, b], const
        yield "MatMul", {**plain, "trans_b": True} | added, [a, noise(96, 128), noise(96)], (*const, 2)
        yield "MatMul", plain, [noise(2, 3, 37, 53), noise(1, 3, 53, 41)], const
    yield "MatMul", plain, [noise(1, 128), b], (1,)
    yield "MatMul", plain, [noise(512, 1100), noise(1100, 1030)], ()
    normal = {**plain, "epsilon": 1e-5, **added}
    yield "NormalizedMatMul", normal, [a, b, noise(96)], (1, 2)
    yield "NormalizedMatMul", normal, [noise(1576, 768), noise(768, 2304), noise(2304)], (1, 2)
    for rows, kind, given in ((1, "rms", (noise(128), None)), (4, "layer", (noise(128), noise(128)))):
        few = [noise(rows, 128), b, *given, noise(96)]
        const = [i for i in range(1, 5) if few[i] is not None]
        yield "RowNormMatMul", {**plain, "kind": kind, "epsilon": 1e-5, **added}, few, const
    ints = [_RNG.integers(0, 255, (8, 32)).astype(np.uint8), _RNG.integers(-9, 9, (32, 24)).astype(np.int8)]
    zeros = [np.asarray(3, np.uint8), np.zeros(24, np.int8)]
    for given in ((), (1,), (1, 2, 3)):
        yield "IntegerMatMul", plain, [*ints, *zeros], given
        yield "IntegerMatMul", plain, [*ints, None, None], given
    levels = _RNG.integers(0, 15, (96, 128)).astype(np.uint8)
    for rows in (1, 64):
        for zero in (None, levels[:, :4].copy()):
            few = [noise(rows, 128), levels, noise(96, 4), zero]
            yield "QuantizedMatMul", {**plain, "trans_b": True, "bits": 4, "block": 32}, few, (1, 2, 3)
            yield "QuantizedMatMul", {**plain, "trans_b": True, "bits": 4, "block": 32, "rounds": True}, few, (1, 2, 3)
    normal = {**plain, "trans_b": True, "bits": 4, "block": 32, "epsilon": 1e-5, **added}
    for rows, kind, given in ((1, "rms", (noise(128), None)), (4, "layer", (noise(128), noise(128)))):
        few = [noise(rows, 128), levels, noise(96, 4), levels[:, :4].copy(), *given, noise(96)]
        const = [i for i in range(1, 7) if few[i] is not None]
        yield "RowNormQuantizedMatMul", {**normal, "kind": kind}, few, const
    for zero in (None, levels[:, :4].copy()):
        few = [levels, np.array([3, 95]), noise(96, 4), zero]
        yield "QuantizedGather", {"bits": 4, "block": 32}, few, (0, 2, 3)
    for rows in (1, 9):
        picks, x = _RNG.integers(0, 4, (rows, 2)), noise(rows, 128)
        few = [x, picks, levels, noise(96), noise(96, 4), levels[:, :4].copy()]
        yield "ExpertMatMul", {"experts": 4, "bits": 4, "block": 32}, few, (2, 3, 4, 5)
        yield "ExpertMatMul", {"experts": 4}, [x, picks, noise(96, 128), None, None, None], (2,)
    for mask in (None, noise(1, 1, 37, 53)):
        q, k = noise(1, 2, 37, 64), noise(1, 2, 53, 64)
        yield "Attention", {"scale": 0.3, "causal": False, "softcap": 0.0}, [q, k, k, mask], ()
    one, cache = noise(1, 4, 1, 64), noise(1, 2, 300, 64)
    yield "Attention", {"scale": 0.3, "causal": False, "softcap": 0.0}, [one, cache, cache, noise(1, 1, 1, 300)], ()
    rows = to_byte_rows(cache)
    yield "Attention", {"scale": 0.3, "causal": False, "softcap": 0.0, "scaled": True}, [one, rows, rows, None], ()
    joint = noise(2, 37, 96)
    heads = tuple(View((2, 2, 37, 16), (37 * 96, 16, 96, 1), at) for at in (0, 32, 64))
    placed = {"scale": 0.3, "causal": False, "softcap": 0.0, "views": heads, "out_axes": (0, 2, 1, 3)}
    yield "Attention", placed, [joint, joint, joint, None], ()
    yield "PairwiseDistance", {"power": 2}, [noise(9, 5), noise(5, 7)], (1,)


def _rotations() -> Iterator[Sample]:
    x, packed = noise(2, 3, 5, 38), noise(2, 5, 3, 64)
    yield "RotaryEmbedding", {}, [x, noise(1, 1, 5, 19), noise(1, 1, 5, 19)], ()
    yield "RotaryEmbedding", {}, [x, noise(5, 38), noise(5, 38)], ()
    yield "RotaryEmbedding", {"perm": (0, 2, 1, 3)}, [packed, noise(2, 1, 5, 32), noise(2, 1, 5, 32)], ()
    yield "RotaryEmbedding", {"perm": (2, 1, 0, 3)}, [packed, noise(3, 5, 1, 64), noise(3, 5, 1, 64)], ()
    turned = {"axis": 2, "at": 4, "perm": (0, 2, 1, 3)}
    yield "RotaryAppend", turned, [noise(2, 3, 16, 64), packed, noise(5, 32), noise(5, 32)], ()
    yield "RotaryAppend", {"axis": 1, "at": 2}, [noise(2, 7, 5, 38), x, noise(5, 19), noise(5, 19)], ()


def _movement() -> Iterator[Sample]:
    yield "Append", {"axis": 2, "at": 5}, [noise(2, 3, 16, 24), noise(2, 3, 2, 24)], ()
    starts = [noise(2, 3, 16, 24), noise(2, 3, 4, 24), np.array([14, -1])]
    for circular in (False, True):
        yield "Append", {"axis": 2, "at": 0, "circular": circular}, starts, ()
    rows = np.zeros((2, 3, 16, 28), np.int8)
    yield "Append", {"axis": 2, "at": 5}, [rows, noise(2, 3, 2, 24)], ()
    yield "DequantizeRows", {"axis": 2, "size": 9}, [rows], ()
    x = noise(2, 16, 12, 20)
    for perm in ((0, 2, 3, 1), (1, 0, 2, 3), (0, 3, 2, 1)):
        yield "Transpose", {"perm": perm}, [x], ()
    yield "Transpose", {"perm": (0, 2, 1)}, [noise(3, 300, 200)], ()
    yield "Transpose", {"perm": (0, 2, 1)}, [noise(3, 4, 999)], ()
    yield "Slice", {"starts": (0, 4, 0, 1), "steps": (1, 1, 2, 1), "sizes": (2, 8, 6, 19)}, [x], ()
    yield "Concat", {"axis": 1}, [x, noise(2, 16, 12, 20)], ()
    yield "Pad", {"pads": (0, 0, 1, 2, 0, 0, 1, 3), "mode": "reflect", "value": 0.0}, [x], ()
    yield "PermuteRows", {"shape": (12, 16, 40), "row": 20, "steps": [["transpose", [2, 1, 0, 3]]]}, [x], ()
    index = np.array([[1, 0], [2, 1]], np.int64)
    yield "Gather", {"axis": 1}, [x, index], ()
    yield "GatherElements", {"axis": 0}, [noise(3, 5), _RNG.integers(0, 3, (2, 5))], ()
    yield "GatherND", {"batch_dims": 0}, [noise(3, 5, 7), index], ()
    for reduction in ("none", "add"):
        updates = noise(2, 5)
        places = _RNG.integers(0, 3, (2, 5))
        yield "ScatterElements", {"reduction": reduction, "axis": 0}, [noise(3, 5), places, updates], ()
        yield "ScatterND", {"reduction": reduction}, [noise(3, 5, 7), index, noise(2, 7)], ()
    resize = {"coordinate": "half_pixel", "nearest_mode": "round_prefer_floor", "cubic_a": -0.75, "roi": None}
    resize |= {"exclude_outside": False, "extrapolation": 0.0, "antialias": False}
    for mode in ("nearest", "linear"):
        yield "Resize", {**resize, "mode": mode, "sizes": (2, 16, 24, 30), "scales": (1.0, 1.0, 2.0, 1.5)}, [x], ()
    repeated = {"mode": "nearest", "coordinate": "asymmetric", "nearest_mode": "floor"}
    yield "Resize", {**resize, **repeated, "sizes": (2, 16, 24, 40), "scales": (1.0, 1.0, 2.0, 2.0)}, [x], ()
    grid = {"mode": "linear", "padding": "zeros", "align_corners": False}
    yield "GridSample", grid, [x, noise(2, 5, 6, 2)], ()
    align = {"rows": 3, "columns": 2, "ratio": 0, "scale": 0.5, "half_pixel": True, "maximum": False}
    regions = np.array([[0, 0, 9, 12], [3, 1, 30, 18]], np.float32)
    yield "RoiAlign", align, [x, regions, np.array([1, 0])], ()
    numbered = np.concatenate([np.array([[1], [0]], np.float32), regions], 1)
    yield "RoiPool", {"rows": 3, "columns": 2, "scale": 0.5}, [x, numbered], ()
    yield "PlaceCast", {}, [x], ()


def _reductions() -> Iterator[Sample]:
    x = noise(2, 16, 12, 20)
    wide = noise(3, 4000)
    for kind in ("sum", "mean", "max"):
        yield "Reduce", {"kind": kind, "axes": (2, 3), "keepdims": True}, [x], ()
        yield "Reduce", {"kind": kind, "axes": (1,), "keepdims": False}, [wide], ()
        yield "Reduce", {"kind": kind, "axes": (0, 2), "keepdims": False}, [x], ()
    yield "ArgReduce", {"kind": "max", "axis": 1, "keepdims": True, "select_last": False}, [x], ()
    yield "ArgReduce", {"kind": "max", "axis": 1, "keepdims": True, "select_last": False}, [wide], ()
    yield "Extremes", {}, [x], ()
    yield "Softmax", {"axis": 1, "log": False}, [x], ()
    yield "Softmax", {"axis": 1, "log": True}, [wide], ()
    yield "Cumulative", {"kind": "sum", "axis": 1, "exclusive": False, "reverse": False}, [wide], ()
    rows, state = noise(2, 5, 32), noise(2, 4, 8, 6)
    recurrence = [rows, rows, noise(2, 5, 24), state, noise(2, 5, 4), noise(2, 5, 4)]
    yield "LinearAttention", {"queries": 4, "heads": 4, "scale": 0.5}, recurrence, ()
    yield "TopK", {"k": 5, "axis": 1, "largest": True, "sorted": True}, [wide], ()
    scale, bias = noise(16), noise(16)
    yield "Normalize", {"kind": "instance", "epsilon": 1e-5}, [x, scale, bias], (1, 2)
    yield "Normalize", {"kind": "group", "epsilon": 1e-5, "num_groups": 4}, [x, scale, bias], (1, 2)
    yield "Normalize", {"kind": "layer", "epsilon": 1e-5, "axis": 1}, [wide, noise(4000), noise(4000)], (1, 2)
    yield "Normalize", {"kind": "rms", "epsilon": 1e-5, "axis": 1}, [wide, noise(4000), None], (1,)
    yield "LocalResponseNorm", {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}, [x], ()


def _others() -> Iterator[Sample]:
    x = noise(2, 16, 12, 20)
    yield "Elementwise", {"expr": call("add", _F32, _F32)}, [x, noise(1, 16, 1, 1)], (1,)
    yield "Elementwise", {"expr": call("mul", _F32, _F32)}, [x, noise(2, 16, 12, 1)], ()
    yield "Elementwise", {"expr": call("exp", _F32)}, [x], ()
    line = {"shape": (3, 5), "seed": 7, "dtype": _F32, "low": 0.0, "high": 1.0, "mean": 0.0, "scale": 1.0}
    for kind in ("uniform", "normal"):
        yield "Random", {**line, "kind": kind}, [], ()
    yield "Random", {**line, "kind": "bernoulli"}, [noise(3, 5)], ()
    given = {"direction": "forward", "hidden": 8, "clip": 0.0, "input_forget": False}
    for kind, gates, names in (("lstm", 4, ("Sigmoid", "Tanh", "Tanh")), ("gru", 3, ("Sigmoid", "Tanh"))):
        marks = {"activations": names, "alphas": (0.3,) * len(names), "betas": (0.4,) * len(names)}
        attrs = {**given, **marks, "kind": kind, "linear_before_reset": True}
        weights = [noise(1, gates * 8, 6), noise(1, gates * 8, 8), noise(1, 2 * gates * 8)]
        yield "Recurrent", attrs, [noise(5, 2, 6), *weights, None, None, None, None], (1, 2, 3)
    boxes = {"center_point_box": 0, "max_output": 10, "iou": 0.3, "score": 0.2}
    yield "NonMaxSuppression", boxes, [noise(1, 20, 4), noise(1, 3, 20)], ()
    yield "PairwiseCoupling", {}, [np.full((4, 3), 0.5, np.float32)], ()
    nodes = np.array([[0, 0, 1, 2], [0, 0, 1, 1], [0, 0, 2, 2]], np.int32)
    arrays = [noise(7, 4), noise(3), nodes, np.zeros(1, np.int32), np.array([[0, 0], [0, 1], [1, 2]], np.int32)]
    trees = {"columns": 1, "aggregate": "sum", "depth": 1}
    yield "TreeEnsemble", trees, [*arrays, np.zeros(2, np.int32), noise(2)], tuple(range(1, 7))


def _without(attrs: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in attrs.items() if k != name}
