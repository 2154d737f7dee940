"""Kernels of one GPU on layers of common networks: checked against float64 on random inputs, then timed.

Longer than 400 lines: half of the file is the list of layers.

    python -m benchmarks.gpu_kernels --out FOLDER [--precision fp32] [--budget 120] [--only TEXT] [--tiles 3] ...

Every kernel that takes a layer in half storage (`--precision fp32`: in floats) is measured with its untuned parameters;
those for matrix units and with tiles in local memory with `--tiles` others, too, which their cost models like next.
A line of JSON goes to FOLDER/kernels.jsonl as soon as it is known; a failure is a line, too. Times are of launches back
to back. Worker processes compile beforehand, since a driver may compile one program at a time in a process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.cl.runtime import Runtime, find_runtime
from opalite.expr.expression import evaluate
from opalite.expr.parse import parse_expr
from opalite.expr.trace_function import trace
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.ir.place import FLAT, packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.fma import tile_parameters as fma
from opalite.kernels.kernel import Binding, Kernel, kernels_for
from opalite.kernels.kernel_sources import option_text, program_text
from opalite.kernels.launch import ceil_div
from opalite.kernels.mma import mma_tile as mma
from opalite.kernels.mma import staged_tile as mma_stages
from opalite.kernels.mma import wgmma_tile
from opalite.ops.conv import Convolution
from opalite.ops.strided_view import Movement
from opalite.run.execute.single_node_executable import SingleNodeExecutable

ERROR = {"fp16": 1e-2, "fp32": 1e-4}
HELD = (
    "ConvGemmMma",
    "ConvGemmMmaStaged",
    "MatmulMma",
    "MatmulMmaStaged",
    "AttentionFlashMma",
    "AttentionTiledGpu",
    "DepthwisePacked",
)
HELD += ("PoolPacked", "NormMatmulMmaStaged", "ConvDot4", "DepthwiseDot4", "MatmulDot4", "MatmulWgmma")
HELD += ("ConvGemmWgmma", "ConvTransposeGemmMmaStaged", "ConvTransposePacked", "NormMatmulWgmma", "DepthwiseColumns")
PLAIN = ("ConvGemmLocal", "ConvSplitK", "ConvWinograd", "MatmulLocalTile", "MatmulSkinnySplitK")
"""What else is held where nothing goes to matrix units."""
F32 = DType.FLOAT32


@dataclass(frozen=True)
class Layer:
    """A layer of a network.

    sizes: (channels in, channels out, pixels per side, filter, stride) of a convolution or pooling, (rows, terms,
    columns) of a product, (queries, heads, size) of attention.
    """

    name: str
    op: str
    sizes: tuple[int, ...]
    batch: int = 1
    residual: bool = False
    gelu: bool = False
    dilation: int = 1

    def node(self, batch: int, *, filled: bool = True, half: bool = True) -> tuple[Node, list[Any]]:
        """The layer on random inputs, stored in halves or floats, and its arrays; not `filled`: without memory."""
        make = {"Conv": self._conv, "Depthwise": self._conv, "Pool": self._pool, "MatMul": self._product}
        make |= {"NormalizedMatMul": self._product, "IntegerMatMul": self._integer_product}
        make |= {
            "ConvTranspose": self._transposed,
            "IntegerConv": self._integer_conv,
            "DepthwiseDot4": self._integer_conv,
        }
        node, arrays = make.get(self.op, self._attention)(batch, np.random.default_rng(0) if filled else None)
        return (node, arrays) if half else (as_floats(node), arrays)

    def _conv(self, batch: int, rng: Any) -> tuple[Node, list[Any]]:
        c, m, size, k, stride = self.sizes
        group = c if self.op == "Depthwise" else 1
        out, pad = ceil_div(size, stride), k // 2
        fan_in = k * k * c // group
        arrays = [_random(rng, batch, c, size, size), _random(rng, m, c // group, k, k) / fan_in**0.5, _random(rng, m)]
        attrs: dict[str, Any] = {"strides": (stride,) * 2, "pads": (pad * self.dilation,) * 4, "group": group}
        attrs["dilations"] = (self.dilation,) * 2
        y = packed(4)
        layouts: list[Any] = [y, None, None]
        attrs["epilogue"] = parse_expr("max($0, 0)", [F32])
        if self.residual:
            attrs["epilogue"] = parse_expr("add($0, $1); max(%0, 0)", [F32, F32])
            arrays.append(_random(rng, batch, m, out, out))
            layouts.append(y)
        binding = Binding(tuple(layouts), (y,))
        return make_node("Conv", attrs, arrays, const=(1, 2), binding=binding, precision=DType.FLOAT16), arrays

    def _transposed(self, batch: int, rng: Any) -> tuple[Node, list[Any]]:
        c, m, size, k, stride = self.sizes
        arrays = [_random(rng, batch, c, size, size), _random(rng, c, m, k, k) / c**0.5, _random(rng, m)]
        attrs = {"strides": (stride,) * 2, "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "output_padding": (0, 0)}
        binding = Binding((packed(4), None, None), (packed(4),))
        return make_node("ConvTranspose", attrs, arrays, const=(1, 2), binding=binding, precision=DType.FLOAT16), arrays

    def _integer_conv(self, batch: int, rng: Any) -> tuple[Node, list[Any]]:
        """uint8 by int8 to uint8, as quantised networks have it."""
        c, m, size, k, stride = self.sizes
        group = c if self.op == "DepthwiseDot4" else 1
        arrays = [_bytes(rng, "u1", batch, c, size, size), _bytes(rng, "i1", m, c // group, k, k), _sums(rng, m)]
        arrays += [np.asarray(117, np.uint8), None, _scales(rng, k * k * c // group, m, 1, 1)]
        attrs: dict[str, Any] = {"strides": (stride,) * 2, "pads": (k // 2,) * 4, "dilations": (1, 1), "group": group}
        attrs["epilogue"] = _REQUANTISE
        y = packed(4)
        binding = Binding((y, None, None, FLAT, None, None), (y,))
        return make_node("IntegerConv", attrs, arrays, const=(1, 2, 3, 5), binding=binding), arrays

    def _integer_product(self, batch: int, rng: Any) -> tuple[Node, list[Any]]:
        m, k, n = self.sizes
        arrays = [_bytes(rng, "u1", batch * m, k), _bytes(rng, "i1", k, n), np.asarray(117, np.uint8), None]
        arrays.append(_scales(rng, k, n))
        attrs = {"trans_a": False, "trans_b": False, "epilogue": _REQUANTISE}
        return make_node("IntegerMatMul", attrs, arrays, const=(1, 2, 4)), arrays

    def _pool(self, batch: int, rng: Any) -> tuple[Node, list[Any]]:
        c, _, size, k, stride = self.sizes
        attrs = {"kind": "max", "kernel": (k, k), "strides": (stride,) * 2, "pads": (k // 2,) * 4, "dilations": (1, 1)}
        attrs |= {"ceil_mode": False, "count_include_pad": False, "p": 2, "with_indices": False, "storage_order": 0}
        arrays, y = [_random(rng, batch, c, size, size)], packed(4)
        return make_node("Pool", attrs, arrays, binding=Binding((y,), (y,)), precision=DType.FLOAT16), arrays

    def _product(self, batch: int, rng: Any) -> tuple[Node, list[Any]]:
        m, k, n = self.sizes
        arrays = [_random(rng, batch * m, k), _random(rng, k, n) / k**0.5, _random(rng, n)]
        text, types = "add($0, $1)", [F32, F32]
        if self.residual:
            arrays.append(_random(rng, batch * m, n))
            text, types = "add($0, $1); add(%0, $2)", [F32] * 3
        if self.gelu:
            text += "; mul(%0, 0.70710678:f32); erf(%1); add(%2, 1.0:f32); mul(%0, %3); mul(%4, 0.5:f32)"
        attrs: dict[str, Any] = {"trans_a": False, "trans_b": False, "epilogue": parse_expr(text, types)}
        if self.op == "NormalizedMatMul":
            attrs["epsilon"] = 1e-5
        return make_node(self.op, attrs, arrays, const=(1, 2), precision=DType.FLOAT16), arrays

    def _attention(self, batch: int, rng: Any) -> tuple[Node, list[Any]]:
        length, heads, size = self.sizes
        joint = _random(rng, batch, length, 3, heads, size)
        views = tuple(Movement.of(joint.shape).pick(2, i).transpose((0, 2, 1, 3)).view for i in range(3))
        attrs = {"scale": size**-0.5, "causal": False, "softcap": 0.0, "views": views, "out_axes": (0, 2, 1, 3)}
        arrays = [joint, joint, joint, None]
        return make_node("Attention", attrs, arrays, precision=DType.FLOAT16), arrays


def as_floats(node: Node) -> Node:
    """`node` with half storage replaced by float storage."""
    for v in (*node.inputs, *node.outputs):
        if v is not None and v.type.storage is DType.FLOAT16:
            v.type = v.type.with_place(replace(v.type.place, precision=None))
    return node


def _random(rng: Any, *shape: int) -> Any:
    return np.broadcast_to(np.float32(0), shape) if rng is None else rng.standard_normal(shape, np.float32)


def _bytes(rng: Any, kind: str, *shape: int) -> Any:
    ends = np.iinfo(kind)
    return (
        np.broadcast_to(np.zeros((), kind), shape) if rng is None else rng.integers(ends.min, ends.max + 1, shape, kind)
    )


def _sums(rng: Any, *shape: int) -> Any:
    return np.broadcast_to(np.int32(0), shape) if rng is None else rng.integers(-9999, 9999, shape, np.int32)


def _scales(rng: Any, terms: int, *shape: int) -> Any:
    """Scales with which sums of `terms` terms fill most of a byte."""
    if rng is None:
        return np.broadcast_to(np.float32(0), shape)
    return (rng.uniform(0.5, 1, shape) * 40 / (5000 * terms**0.5)).astype(np.float32)


_REQUANTISE = trace(
    lambda a, scale: ((a.cast(F32) * scale).call("rint") + 117.0).typed("saturate", DType.UINT8), DType.INT32, F32
)

LAYERS = (
    Layer("resnet b32 layer1 expand", "Conv", (64, 256, 56, 1, 1), 32, True),
    Layer("resnet b32 layer1 3x3", "Conv", (64, 64, 56, 3, 1), 32),
    Layer("resnet b32 layer3 3x3", "Conv", (256, 256, 14, 3, 1), 32),
    Layer("resnet b32 layer2 expand", "Conv", (128, 512, 28, 1, 1), 32, True),
    Layer("vit products", "MatMul", (197, 768, 2304)),
    Layer("vit output", "MatMul", (197, 768, 768), 1, True),
    Layer("vit mlp in", "MatMul", (197, 768, 3072)),
    Layer("vit mlp out", "MatMul", (197, 3072, 768), 1, True),
    Layer("vit normal products", "NormalizedMatMul", (197, 768, 2304)),
    Layer("vit normal mlp in", "NormalizedMatMul", (197, 768, 3072)),
    Layer("vit normal mlp in gelu", "NormalizedMatMul", (197, 768, 3072), 1, False, True),
    Layer("vit attention", "Attention", (197, 12, 64)),
    Layer("vgg 512 at 28", "Conv", (512, 512, 28, 3, 1)),
    Layer("vgg 512 at 14", "Conv", (512, 512, 14, 3, 1)),
    Layer("vgg 64 at 224", "Conv", (64, 64, 224, 3, 1)),
    Layer("resnet b1 layer4 3x3", "Conv", (512, 512, 7, 3, 1)),
    Layer("resnet b1 layer3 3x3", "Conv", (256, 256, 14, 3, 1)),
    Layer("resnet b1 layer1 3x3", "Conv", (64, 64, 56, 3, 1)),
    Layer("resnet b1 layer1 expand", "Conv", (64, 256, 56, 1, 1), 1, True),
    Layer("resnet b1 layer4 reduce", "Conv", (2048, 512, 7, 1, 1)),
    Layer("resnet b32 first", "Conv", (3, 64, 224, 7, 2), 32),
    Layer("resnet b32 layer2 shortcut", "Conv", (256, 512, 56, 1, 2), 32),
    Layer("resnet b32 layer4 3x3", "Conv", (512, 512, 7, 3, 1), 32),
    Layer("resnet b32 layer4 reduce", "Conv", (2048, 512, 7, 1, 1), 32),
    Layer("resnet b32 layer1 reduce", "Conv", (256, 64, 56, 1, 1), 32),
    Layer("mobilenet b32 expand 112", "Conv", (16, 96, 112, 1, 1), 32),
    Layer("mobilenet b32 project 56", "Conv", (144, 24, 56, 1, 1), 32),
    Layer("mobilenet b32 project 14", "Conv", (576, 96, 14, 1, 1), 32),
    Layer("mobilenet b32 depthwise 112", "Depthwise", (96, 96, 112, 3, 2), 32),
    Layer("mobilenet b32 depthwise 56", "Depthwise", (144, 144, 56, 3, 1), 32),
    Layer("mobilenet b32 depthwise 28", "Depthwise", (192, 192, 28, 3, 1), 32),
    Layer("resnet b32 max pool", "Pool", (64, 64, 112, 3, 2), 32),
    Layer("vgg 128 at 112", "Conv", (128, 128, 112, 3, 1)),
    Layer("vgg 256 at 56", "Conv", (256, 256, 56, 3, 1)),
    Layer("vit b8 mlp in", "MatMul", (197, 768, 3072), 8),
    Layer("vit b8 mlp in gelu", "MatMul", (197, 768, 3072), 8, False, True),
    Layer("vit b8 attention", "Attention", (197, 12, 64), 8),
    Layer("vit b8 normal products", "NormalizedMatMul", (197, 768, 2304), 8),
    Layer("vit b8 normal mlp in gelu", "NormalizedMatMul", (197, 768, 3072), 8, False, True),
    Layer("deeplab 2048 far", "Conv", (2048, 256, 65, 3, 1), dilation=36),
    Layer("deeplab 2048 near", "Conv", (2048, 256, 65, 3, 1), dilation=12),
    Layer("deeplab 512 dilated", "Conv", (512, 512, 65, 3, 1), dilation=4),
    Layer("deeplab 256 dilated", "Conv", (256, 256, 65, 3, 1), dilation=2),
    Layer("deeplab 512 expand", "Conv", (512, 2048, 65, 1, 1), 1, True),
    Layer("deeplab 2048 reduce", "Conv", (2048, 512, 65, 1, 1)),
    Layer("deeplab 256 expand", "Conv", (256, 1024, 65, 1, 1), 1, True),
    Layer("deeplab 1024 reduce", "Conv", (1024, 256, 65, 1, 1)),
    Layer("unet 64 to 32 at 512", "Conv", (64, 32, 512, 3, 1)),
    Layer("unet 128 to 64 at 256", "Conv", (128, 64, 256, 3, 1)),
    Layer("unet 64 at 256", "Conv", (64, 64, 256, 3, 1)),
    Layer("unet 256 to 128 at 128", "Conv", (256, 128, 128, 3, 1)),
    Layer("unet 512 to 256 at 64", "Conv", (512, 256, 64, 3, 1)),
    Layer("unet up 512 at 32", "ConvTranspose", (512, 256, 32, 2, 2)),
    Layer("unet up 64 at 256", "ConvTranspose", (64, 32, 256, 2, 2)),
    Layer("resnet b32 layer3 expand", "Conv", (256, 1024, 14, 1, 1), 32, True),
    Layer("resnet b32 layer2 3x3", "Conv", (128, 128, 28, 3, 1), 32),
    Layer("vit b8 products", "MatMul", (197, 768, 2304), 8),
    Layer("vit b8 output", "MatMul", (197, 768, 768), 8, True),
    Layer("vit b8 mlp out", "MatMul", (197, 3072, 768), 8, True),
    Layer("large product", "MatMul", (8192, 8192, 8192)),
    Layer("int8 resnet b32 layer1 expand", "IntegerConv", (64, 256, 56, 1, 1), 32),
    Layer("int8 resnet b32 layer1 3x3", "IntegerConv", (64, 64, 56, 3, 1), 32),
    Layer("int8 resnet b32 layer3 3x3", "IntegerConv", (256, 256, 14, 3, 1), 32),
    Layer("int8 resnet b1 layer3 3x3", "IntegerConv", (256, 256, 14, 3, 1)),
    Layer("int8 resnet b1 layer1 expand", "IntegerConv", (64, 256, 56, 1, 1)),
    Layer("int8 resnet b1 layer4 reduce", "IntegerConv", (2048, 512, 7, 1, 1)),
    Layer("int8 vgg 512 at 28", "IntegerConv", (512, 512, 28, 3, 1)),
    Layer("int8 mobilenet b32 project 56", "IntegerConv", (144, 24, 56, 1, 1), 32),
    Layer("int8 mobilenet b1 project 7", "IntegerConv", (960, 160, 7, 1, 1)),
    Layer("int8 mobilenet b1 expand 14", "IntegerConv", (96, 576, 14, 1, 1)),
    Layer("int8 mobilenet b32 depthwise 56", "DepthwiseDot4", (144, 144, 56, 3, 1), 32),
    Layer("int8 resnet b1 classifier", "IntegerMatMul", (1, 2048, 1000)),
    Layer("int8 vit mlp in", "IntegerMatMul", (197, 768, 3072)),
    Layer("int8 square product", "IntegerMatMul", (4096, 4096, 4096)),
    Layer("square product", "MatMul", (4096, 4096, 4096)),
)


def variants(node: Node, rt: Runtime, tiles: int) -> Iterator[tuple[Kernel, dict[str, Any], bool]]:
    """(kernel, parameters, whether they are the untuned ones) to measure on `node`."""
    for kernel in kernels_for(node.op.name):
        held = HELD if node.y.type.storage is DType.FLOAT16 or node.op.sums is not None else (*HELD, *PLAIN)
        if kernel.name not in held or kernel.refuse(kernel.problem(node, rt.info)) is not None:
            continue
        first = kernel.defaults(kernel.problem(node, rt.info))
        yield kernel, first, True
        others = sorted(_others(node, kernel, rt), key=lambda pair: pair[0])
        for _, params in [pair for pair in others if pair[1] != first][:tiles]:
            yield kernel, params, False


def _others(node: Node, kernel: Kernel, rt: Runtime) -> list[tuple[float, dict[str, Any]]]:
    """(rank, parameters) of other parameters that may pay."""
    if kernel.name == "AttentionFlashMma":
        shapes = ((2, 2, 32), (1, 4, 16), (2, 1, 64), (4, 1, 32), (1, 2, 32))
        points = [dict(zip(("QW", "KW", "KEYS"), s, strict=True)) | {"LOOK": 0} for s in shapes]
        return [(i, p) for i, p in enumerate(points) if kernel.illegal(kernel.problem(node, rt.info), p) is None]
    if node.op.sums is not None:
        rng = np.random.default_rng(0)
        points = list(kernel.points(kernel.problem(node, rt.info)))
        return [(i, points[k]) for i, k in enumerate(rng.permutation(len(points)))]
    if kernel.name in ("ConvGemmLocal", "MatmulLocalTile"):
        points = [p for p in fma.legal_tiles(rt.info) if kernel.illegal(kernel.problem(node, rt.info), p) is None]
        return [(fma.tile_cycles(p, _sums(node), rt.info), p) for p in points]
    tiled = ("ConvGemmMmaStaged", "MatmulMmaStaged", "NormMatmulMmaStaged", "ConvGemmMma", "MatmulMma")
    if kernel.name == "DepthwiseColumns":
        return [(i, p) for i, p in enumerate(kernel.points(kernel.problem(node, rt.info)))]
    if kernel.name not in (*tiled, "ConvGemmWgmma", "MatmulWgmma", "NormMatmulWgmma"):
        return []
    if node.op.name == "Conv":
        y, w = node.y.shape, node.input(1).shape
        sizes = (y[0] * y[2] * y[3], y[1], w[2] * w[3] * ceil_div(w[1], 4))
    else:
        sizes = (node.x.shape[0], node.y.shape[1], node.x.shape[1] // 4)
    if kernel.name.endswith("Wgmma"):
        finds_statistics = node.op.name == "NormalizedMatMul"
        work = wgmma_tile.WgmmaProblem(
            *sizes, pieces=node.op.name == "Conv", operands=fma.full_operands(node), finds_statistics=finds_statistics
        )
        return [
            (wgmma_tile.tile_cycles(p, work, rt.info), p)
            for p in wgmma_tile.legal_tiles(finds_statistics=finds_statistics)
        ]
    if kernel.name.endswith("Mma"):
        positions, channels, quads = sizes
        steps = ceil_div(quads, mma.QUADS)
        return [(mma.tile_cycles(p, positions, channels, steps, rt.info), p) for p in mma.legal_tiles(steps, rt.info)]
    tiles = [p for p in mma_stages.legal_tiles(rt.info) if kernel.illegal(kernel.problem(node, rt.info), p) is None]
    return [(mma_stages.tile_cycles(p, *sizes, rt.info), p) for p in tiles]


def _sums(node: Node) -> fma.GemmSize:
    if node.op.name == "Conv":
        y, w = node.y.shape, node.input(1).shape
        return fma.GemmSize(y[0] * y[2] * y[3], y[1], w[2] * w[3] * ceil_div(w[1], 4) * 4, 1, fma.full_operands(node))
    return fma.GemmSize(node.x.shape[0], node.y.shape[1], node.x.shape[1], 1, fma.full_operands(node))


def reference(node: Node, arrays: list[Any]) -> Any:
    """The float64 answer for inputs rounded to their storage; that of integers is exact."""
    if node.op.sums is not None:
        return _exact(node, arrays).astype(np.float64)
    stored = node.y.type.storage.np
    arrays = [None if a is None else a.astype(stored).astype(np.float64) for a in arrays]
    if node.op.name == "Conv" and find_spec("torch") is not None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        x, w, b = (torch.from_numpy(a).to(device) for a in arrays[:3])
        op = node.as_(Convolution)
        y = torch.nn.functional.conv2d(x, w, b, op.strides, op.pads[:2], op.dilations, op.group).cpu().numpy()
    else:
        y = node.op.reference(arrays[: node.op.arity])[0]
    if node.op.name.endswith("MatMul"):
        return evaluate(node.epilogue, [y, *arrays[2:]], y.shape)
    if len(arrays) == 4 and arrays[3] is not None:
        y = y + arrays[3]
    return np.maximum(y, 0) if node.op.name == "Conv" else y


def _exact(node: Node, arrays: list[Any]) -> Any:
    x, w = (a.astype(np.float64) for a in arrays[:2])
    if node.op.name == "IntegerMatMul":
        sums = (x - float(arrays[2])) @ w
    elif find_spec("torch") is not None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        on = [torch.from_numpy(a).to(device) for a in (x - float(arrays[3]), w, arrays[2].astype(np.float64))]
        op = node.as_(Convolution)
        sums = torch.nn.functional.conv2d(*on, op.strides, op.pads[:2], 1, op.group).cpu().numpy()
    else:
        sums = node.op.reference(arrays[: node.op.arity])[0]
    return evaluate(node.epilogue, [np.rint(sums).astype(np.int32), arrays[-1]], sums.shape)


def measure(layer: Layer, rt: Runtime, tiles: int, half: bool) -> Iterator[dict[str, Any]]:
    """A record for each variant of `layer`, checked on up to two images."""
    node, arrays = layer.node(layer.batch, half=half)
    small, few = (node, arrays) if layer.batch <= 2 else layer.node(2, half=half)
    want = reference(small, few)
    large, little = SingleNodeExecutable(rt, node, arrays), SingleNodeExecutable(rt, small, few)
    cost = node.cost()
    for kernel, params, untuned in variants(node, rt, tiles):
        record: dict[str, Any] = {"layer": layer.name, "kernel": kernel.name, "params": params, "untuned": untuned}
        try:
            got = little.prepare(kernel, params).run()[0].astype(np.float64)
            record["error"] = float(np.linalg.norm(got - want) / np.linalg.norm(want))
            if node.op.sums is not None and record["error"]:
                record["failed"] = f"{int((got != want).sum())} of {want.size} integers differ"
            record["us"] = 1e6 * least_seconds(rt, large.prepare(kernel, params).launches)
            record["gflops"] = cost.flops / record["us"] * 1e-3
            record["gbytes"] = cost.bytes / record["us"] * 1e-3
        except Exception as e:
            record["failed"] = f"{type(e).__name__}: {str(e)[:600]}"
        yield record


def least_seconds(rt: Runtime, launches: Sequence[PreparedLaunch]) -> float:
    """Least time of a run of launches, in five series of about two milliseconds."""
    recording = rt.record(launches)

    def run(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            recording.run()
        rt.finish()
        return (time.perf_counter() - started) / times

    run(3)
    times = max(3, int(2e-3 / run(3)))
    return min(run(times) for _ in range(5))


def build(rt: Runtime, layers: list[Layer], tiles: int, share: str, half: bool) -> None:
    """Compiles every n-th program of the plan, from the i-th on, into the cache."""
    first, step = map(int, share.split("/"))
    specs: dict[tuple[str, str], str] = {}
    for layer in layers:
        node, _ = layer.node(layer.batch, filled=False, half=half)
        for kernel, params, _ in variants(node, rt, tiles):
            for launch in kernel.launch(kernel.problem(node, rt.info), params):
                source = launch.source or kernel.source
                specs.setdefault((program_text(source, launch.prelude), option_text(launch.defines)), source)
    for text, options in list(specs)[first::step]:
        try:
            rt.build(text, options, specs[text, options])
        except Exception:
            traceback.print_exc()


def build_in_parallel(arguments: list[str], workers: int, seconds: float) -> None:
    """`build` in worker processes, within `seconds`."""
    command = [sys.executable, "-m", "benchmarks.gpu_kernels", *arguments]
    children = [subprocess.Popen([*command, "--build", f"{i}/{workers}"]) for i in range(workers)]
    until = time.monotonic() + seconds
    for child in children:
        try:
            child.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()


def show(record: dict[str, Any], allowed: float) -> None:
    """One line."""
    head = f"{record['layer']:28.28} {record['kernel']:16}"
    if "failed" in record:
        print(head, record["failed"][:160].replace("\n", " "), flush=True)
        return
    wrong = "" if record["error"] <= allowed else "  WRONG"
    rates = f"{record['us']:9.1f} us {record['gflops']:8.0f} GFLOP/s {record['gbytes']:6.0f} GB/s"
    params = ",".join(map(str, record["params"].values()))
    print(f"{head} {rates} {record['error']:.0e}{wrong} {'*' if record['untuned'] else ' '} {params}", flush=True)


def main() -> int:
    """Exit status 1 if an answer was wrong or a variant failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for kernels.jsonl")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds after which no layer begins")
    parser.add_argument("--only", default="", help="layers whose name holds one of these texts, with commas")
    parser.add_argument("--first", type=int, default=None, help="this many of them; they are in order of importance")
    parser.add_argument("--skip", type=int, default=0, help="all but this many of the first")
    parser.add_argument("--tiles", type=int, default=3, help="parameters beside the untuned ones")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile beforehand")
    parser.add_argument("--build", default="", metavar="I/N", help="compile a share of the programs and end")
    parser.add_argument("--prepare", action="store_true", help="compile and end")
    parser.add_argument("--precision", choices=tuple(ERROR), default="fp16", help="how floats are stored")
    options = parser.parse_args()
    half, allowed = options.precision == "fp16", ERROR[options.precision]
    started = time.monotonic()
    wanted = options.only.split(",")
    layers = [layer for layer in LAYERS if any(text in layer.name for text in wanted)][options.skip : options.first]
    rt = find_runtime(options.device)
    if options.build:
        build(rt, layers, options.tiles, options.build, half)
        return 0
    if options.workers:
        arguments = ["--device", options.device, "--only", options.only, "--tiles", str(options.tiles)]
        arguments += ["--precision", options.precision]
        build_in_parallel(arguments, options.workers, options.budget / 2)
        print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)
    if options.prepare:
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    bad = False
    with (options.out / "kernels.jsonl").open("a") as file:
        for layer in layers:
            if time.monotonic() - started > options.budget:
                print(f"left out from {layer.name} on: the budget is spent", flush=True)
                break
            try:
                for record in measure(layer, rt, options.tiles, half):
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                    show(record, allowed)
                    bad |= "failed" in record or not record["error"] <= allowed
            except Exception as e:
                bad = True
                print(f"{layer.name}: {type(e).__name__}: {e}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
