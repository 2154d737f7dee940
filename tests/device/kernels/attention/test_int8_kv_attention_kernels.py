"""Attention of few queries over keys and values of int8, with a scale for each row and without, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.constants.int8_rows import TAIL, from_byte_rows, to_byte_rows
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for
from opalite.ops.attention import Attention
from opalite.ops.strided_view import View

rng = np.random.default_rng(23)
KERNELS = {k.name: k for k in kernels_for("Attention")}
TILES: dict[str, dict[str, int]] = {"AttentionDecodeCpu": {}, "AttentionSplitKv": {"WG": 64, "KEYS": 32, "ROWS": 2}}


def float64_of(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    """By the formula, on what the bytes stand for."""
    k, v = (np.repeat(a.astype(np.float64), q.shape[1] // a.shape[1], 1) for a in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) * scale + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    "q, keys, scaled, parts, precision",
    [
        ((2, 6, 1, 64), 301, True, 1, None),
        ((1, 8, 2, 80), 117, True, 4, DType.FLOAT16),
        ((1, 4, 1, 36), 5, False, 1, None),
        ((1, 8, 2, 68), 117, False, 4, None),
        ((1, 70, 1, 32), 37, True, 2, None),
    ],
)
@pytest.mark.parametrize("name", TILES)
def test_bytes(
    rt: Runtime, name: str, q: tuple[int, ...], keys: int, scaled: bool, parts: int, precision: DType | None
) -> None:
    x = rng.standard_normal(q).astype(np.float32)
    floats = rng.standard_normal((2, q[0], 2, keys, q[3])).astype(np.float32) * rng.uniform(
        0.1, 9, (2, q[0], 2, keys, 1)
    )
    k, v = to_byte_rows(floats.astype(np.float32)) if scaled else rng.integers(-128, 128, floats.shape).astype(np.int8)
    mask = np.where(rng.random((q[0], 1, q[2], keys)) < 0.2, -np.inf, 0).astype(np.float32)
    mask[..., 0] = 0
    # In memory for more of them, as caches lie.
    held = np.zeros((2, q[0], 2, keys + 9, k.shape[-1]), np.int8)
    held[:, :, :, :keys] = k, v
    strides = View.whole(held.shape[1:]).strides
    view = View((q[0], 2, keys, k.shape[-1]), strides)
    scale = 0.3 if scaled else 0.003
    attrs = {"scale": scale, "causal": False, "softcap": 0.0, "scaled": scaled, "views": (None, view, view)}
    arrays = [x, *held, mask]
    node = make_node("Attention", attrs, arrays, precision=precision)
    (got,) = run_node(rt, KERNELS[name], node, arrays, {**TILES[name], "PARTS": parts})
    wide = [from_byte_rows(a) for a in (k, v)] if scaled else [k, v]
    want = float64_of(x, *wide, mask, scale)
    top = np.abs(want).max()
    np.testing.assert_allclose(node.op.reference(arrays)[0], want, rtol=0, atol=2e-5 * top)
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-2 if precision else 2e-5) * top)


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - TILES.keys()))
def test_kernels_of_many_queries_read_floats(rt: Runtime, name: str) -> None:
    k = np.zeros((1, 2, 64, 16 + TAIL), np.int8)
    arrays = [np.zeros((1, 2, 64, 16), np.float32), k, k]
    node = make_node("Attention", {"scale": 1.0, "causal": False, "softcap": 0.0, "scaled": True}, arrays)
    assert isinstance(node.op, Attention)
    assert KERNELS[name].refuse(KERNELS[name].problem(node, rt.info))
