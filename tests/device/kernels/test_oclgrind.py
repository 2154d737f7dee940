"""Kernels for phones' GPUs at prime sizes, run by Oclgrind: what they read and write, races, and what they compute.

`make test-oclgrind` runs them; elsewhere they are skipped. A new kernel of these folders is tested by being registered.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.trace_function import call
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.kernels import all_kernels
from opalite.kernels.kernel import Kernel
from opalite.ops.strided_view import View

from ...helpers.kernel_nodes import Sample
from .conv_checks import as_adreno, check_kernel

F32 = DType.FLOAT32
FOLDERS = ("image/", "integer/", "quantized/", "conv/winograd")
WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
RNG = np.random.default_rng(0)


@pytest.fixture
def adreno(rt: Runtime) -> Runtime:
    if rt.info.platform != "Oclgrind":
        pytest.skip("the device is not Oclgrind: `make test-oclgrind`")
    return as_adreno(rt)


def as_mali(rt: Runtime) -> Runtime:
    """`rt` described as a GPU whose local memory lies in global memory, and which reads buffers."""
    other = copy.copy(rt)
    other.info = dataclasses.replace(rt.info, family="mali", local_mem_dedicated=False)
    return other


def as_cpu(rt: Runtime) -> Runtime:
    """`rt` described as a CPU with vectors of eight floats, whose work-items walk alone."""
    other = copy.copy(rt)
    other.info = dataclasses.replace(rt.info, kind="cpu", wave_size=1, native_float_width=8)
    return other


def noise(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(kind: str, *shape: int) -> Any:
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(kind)


def samples() -> Iterator[Sample]:
    """Nodes of prime sizes."""
    x, scale = noise(1, 5, 7, 11), noise(5)
    added = {"epilogue": call("add", F32, F32)}
    for group, w, more in ((1, noise(7, 5, 3, 3), {}), (5, noise(5, 1, 3, 3), {"strides": (2, 2)})):
        yield "Conv", {**WINDOW, "group": group, **more}, [x, w, noise(w.shape[0])], (1, 2)
    yield "Conv", {**WINDOW, "pads": (0,) * 4, "group": 1} | added, [x, noise(7, 5, 1, 1), None, noise(7, 1, 1)], (1,)
    turned = {**WINDOW, "strides": (2, 2), "group": 1, "output_padding": (0, 0)}
    yield "ConvTranspose", turned, [x, noise(5, 7, 3, 3), noise(7)], (1, 2)
    pool = {"ceil_mode": False, "count_include_pad": False, "p": 2, "with_indices": False, "storage_order": 0}
    for kind in ("max", "average"):
        yield "Pool", {**WINDOW, "strides": (2, 2), "kernel": (3, 3), **pool, "kind": kind}, [x], ()
    for filters, group in ((whole("i1", 7, 5, 3, 3), 1), (whole("i1", 5, 1, 3, 3), 5)):
        ints = [whole("u1", 1, 5, 7, 11), filters, np.arange(filters.shape[0], dtype=np.int32), np.uint8(7).reshape(())]
        yield "IntegerConv", {**WINDOW, "group": group}, [*ints, whole("i1", filters.shape[0])], (1, 2, 3, 4)
    plain = {"trans_a": False, "trans_b": False}
    for m, const in ((1, (1, 3)), (7, (1, 3)), (5, ())):
        zeros = [np.uint8(3).reshape(()), whole("i1", 13)]
        yield "IntegerMatMul", plain, [whole("u1", m, 37), whole("i1", 37, 13), *zeros], const
        yield "MatMul", {**plain, **added}, [noise(m, 37), noise(37, 13), noise(13)], (*const[:1], 2)
        for bits, zero in ((4, "u1"), (8, None)):
            q = RNG.integers(0, 1 << bits, (37, 67)).astype(np.uint8)
            by = None if zero is None else RNG.integers(0, 1 << bits, (37, 3)).astype(zero)
            attrs = {**plain, "trans_b": True, "bits": bits, "block": 32}
            yield "QuantizedMatMul", attrs, [noise(m, 67), q, noise(37, 3), by], (1, 2, 3)
    yield "QuantizedGather", {"bits": 4, "block": 32}, [q & 15, np.array([3, 36]), noise(37, 3), None], (0, 2)
    q, k = noise(1, 7, 13), noise(1, 11, 13)
    yield "Softmax", {"axis": 1, "log": False}, [x], ()
    yield "Softmax", {"axis": 2, "log": True}, [q], ()
    yield "Normalize", {"kind": "instance", "epsilon": 1e-5}, [x, scale, noise(5)], (1, 2)
    yield "Normalize", {"kind": "layer", "epsilon": 1e-5, "axis": 2}, [q, noise(13), noise(13)], (1, 2)
    yield "Reduce", {"kind": "mean", "axes": (2, 3), "keepdims": True}, [x], ()
    yield "Transpose", {"perm": (0, 1, 3, 2)}, [x], ()
    yield "Transpose", {"perm": (0, 2, 1)}, [k], ()
    yield "Slice", {"starts": (0, 1, 2, 1), "steps": (1, 1, 1, 1), "sizes": (1, 3, 5, 7)}, [x], ()
    yield "Pad", {"pads": (0, 0, 1, 2, 0, 0, 1, 3), "mode": "constant", "value": 0.5}, [x], ()
    yield "Concat", {"axis": 1}, [x, noise(1, 3, 7, 11)], ()
    resize = {"coordinate": "half_pixel", "nearest_mode": "floor", "cubic_a": -0.75, "roi": None, "mode": "linear"}
    resize |= {
        "exclude_outside": False,
        "extrapolation": 0.0,
        "antialias": False,
        "scales": (1.0, 1.0, 13 / 7, 17 / 11),
    }
    yield "Resize", {**resize, "sizes": (1, 5, 13, 17)}, [x], ()
    yield "Elementwise", {"expr": call("add", F32, F32)}, [x, noise(1, 5, 1, 1)], (1,)
    views = tuple(View((1, 2, rows, 8), (rows * 16, 8, 16, 1)) for rows in (7, 11, 11))
    placed = {"scale": 0.3, "causal": False, "softcap": 0.0, "views": views, "out_axes": (0, 2, 1, 3)}
    yield "Attention", placed, [noise(1, 7, 16), noise(1, 11, 16), noise(1, 11, 16), None], ()


SAMPLES = list(samples())
KERNELS = [
    pytest.param(k, id=k.name)
    for k in all_kernels()
    if k.source.startswith(FOLDERS) and k.tier == "optimized" and k.op in {s[0] for s in SAMPLES}
]


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel(adreno: Runtime, kernel: Kernel) -> None:
    """Of each node that the kernel takes, in each of its layouts, with its first and its untuned parameters."""
    refusals, has_run = dict[str, None](), False
    devices = (adreno,) if kernel.images_only else (adreno, as_mali(adreno), as_cpu(adreno))
    for rt in devices:
        if rt.info.on_host and has_run:
            continue  # a CPU takes what no GPU does
        for op, attrs, arrays, const in (s for s in SAMPLES if s[0] == kernel.op):
            problem = kernel.problem(make_node(op, attrs, arrays, const=const), rt.info)
            if why := kernel.refuse(problem) or kernel.no_legal_point(problem):
                refusals[why] = None
                continue
            for binding in kernel.bindings(problem):
                node = make_node(op, attrs, arrays, const=const, binding=binding)
                placed = kernel.problem(node, rt.info)
                points = [kernel.defaults(placed), next(iter(kernel.points(placed)))]
                for params in [p for i, p in enumerate(points) if p not in points[:i]]:
                    check_kernel(rt, kernel, node, arrays, params)
                    has_run = True
    if not has_run:
        pytest.skip("; ".join(refusals))
