"""Convolutions from channel-packed blocks to few row-major channels, against their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.place import FLAT, packed
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Binding

from ..conv_checks import as_gpu, check_kernel, find_kernel
from .test_direct_packed import make_case
from .test_transposed_packed import make_case as make_transposed

TRANSPOSED = ["2x2", "odd", "extending", "sparse", "rank 1", "rank 3"]
CASES = ["3x3", "stride", "dilated", "far dilated", "cropping", "rank 1", "rank 3", "one pixel"]


def few_channels(name: str) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, arrays) of a packed convolution's case with at most 11 filters."""
    attrs, (x, w, b) = make_case(name)
    return attrs, [x, w[:11], b[:11]]


def check(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], pack: int, op: str = "Conv", **p: Any) -> None:
    """The kernel of `op` on blocks of `pack` agrees with the reference."""
    binding = Binding((packed(pack), None, None, *(FLAT for _ in arrays[3:])), (FLAT,))
    node = make_node(op, attrs, arrays, const=(1, 2), binding=binding)
    check_kernel(rt, find_kernel(op, f"{op}PackedToRowMajor"), node, arrays, p)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("pack", [4, 16])
def test_float32(rt: Runtime, name: str, pack: int) -> None:
    check(rt, *few_channels(name), pack)


@pytest.mark.parametrize("name", CASES)
def test_as_on_a_gpu(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), *few_channels(name), 4)


@pytest.mark.parametrize(("tw", "tm"), [(1, 1), (6, 3), (8, 2)])
def test_tiles_without_bias(rt: Runtime, tw: int, tm: int) -> None:
    attrs, (x, w, _) = few_channels("stride")
    check(rt, attrs, [x, w, None], 16, TW=tw, TM=tm)


def test_epilogue(rt: Runtime) -> None:
    attrs, arrays = few_channels("3x3")
    shape = make_node("Conv", attrs, arrays).y.shape
    rng = np.random.default_rng(1)
    residual, scale = (rng.standard_normal(s).astype(np.float32) for s in (shape, (1, shape[1], 1, 1)))
    expr = parse_expr("mul($0, $2); add(%0, $1); max(%1, 0.0:f32)", [DType.FLOAT32] * 3)
    check(rt, {**attrs, "epilogue": expr}, [*arrays, residual, scale], 16)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.INT32])
def test_other_types(rt: Runtime, dtype: DType) -> None:
    attrs, arrays = few_channels("stride")
    check(rt, attrs, [a.astype(dtype.np) for a in arrays], rt.info.pack)


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("pack", [4, 16])
def test_transposed(rt: Runtime, name: str, pack: int) -> None:
    check(rt, *make_transposed(name), pack, "ConvTranspose")


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_as_on_a_gpu(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), *make_transposed(name), 4, "ConvTranspose")


def test_transposed_tiles_without_bias(rt: Runtime) -> None:
    attrs, (x, w, _) = make_transposed("odd")
    check(rt, attrs, [x, w[:, :5], None], 16, "ConvTranspose", TW=3, TM=2)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_long_sums_are_as_exact_as_blocks(rt: Runtime, op: str) -> None:
    rng = np.random.default_rng(3)
    channels = 20_000
    x = rng.random((1, channels, 3, 3), np.float32)
    w = rng.random((7, channels, 2, 2), np.float32)
    arrays = [x, w if op == "Conv" else np.ascontiguousarray(w.swapaxes(0, 1))]
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    attrs |= {"output_padding": (0, 0)} if op == "ConvTranspose" else {}
    node = make_node(op, attrs, arrays, const=(1,), binding=Binding((packed(4), None), (FLAT,)))
    (got,) = run_node(as_gpu(rt), find_kernel(op, f"{op}PackedToRowMajor"), node, arrays)
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (2, 2), (1, 2))
    if op == "ConvTranspose":  # inside, where all taps meet the image, it is a convolution by mirrored filters
        got, w = got[:, :, 1:-1, 1:-1], w[:, :, ::-1, ::-1]
    want = np.einsum("chwij,mcij->mhw", windows, w.astype(np.float64))
    assert np.abs(got[0] / want - 1).max() < 1.5e-6
