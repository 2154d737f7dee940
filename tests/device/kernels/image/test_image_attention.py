"""Attention of rows in images against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.ops.strided_view import View

from ....helpers.pairs import pairwise
from .image_checks import check_image

BATCH, LENGTH = 2, 37
HEADS = [(3, 3, 8, 8), (4, 2, 16, 20), (1, 1, 48, 300), (2, 1, 64, 4)]  # of q, of k and v, their sizes
MASKS = [None, (LENGTH, 53), (BATCH, 1, 1, 53), (LENGTH, 1)]
ORDERS = [(False, 0.0), (True, 0.0), (False, 1.5)]


def noise(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rows(heads: int, length: int, size: int, columns: int, at: int = 0) -> View:
    """Heads side by side in rows of [BATCH, length, columns]."""
    return View((BATCH, heads, length, size), (length * columns, size, columns, 1), at)


def attributes(views: tuple[View | None, ...], order: tuple[bool, float] = (False, 0.0)) -> dict[str, Any]:
    causal, softcap = order
    return {"scale": 0.3, "causal": causal, "softcap": softcap, "views": views, "out_axes": (0, 2, 1, 3)}


@pytest.mark.parametrize(
    "heads, mask, order, precision", pairwise(HEADS, MASKS, ORDERS, [None, DType.FLOAT16]), ids=str
)
def test_heads_side_by_side(rt: Runtime, heads: Any, mask: Any, order: Any, precision: DType | None) -> None:
    """q, k and v in three tensors, with shared heads, masks that hide keys, and fewer texels than work-items."""
    count, shared, size, columns = heads
    keys = 53
    q, k, v = (
        noise(0, BATCH, LENGTH, count * size),
        noise(1, BATCH, keys, shared * size),
        noise(2, BATCH, keys, shared * columns),
    )
    views = (rows(count, LENGTH, size, count * size), rows(shared, keys, size, shared * size))
    views += (rows(shared, keys, columns, shared * columns),)
    hidden = None
    if mask is not None:
        hidden = np.where(np.random.default_rng(3).random(mask) < 0.3, -np.inf, noise(4, *mask)).astype(np.float32)
    arrays = [q, k, v, hidden]
    check_image(
        rt, "Attention", "ImageAttention", attributes(views, order), arrays, precision=precision, flat=(3,), sides=2
    )


TILES = [(8, 8, 2, 2), (4, 1, 1, 4), (16, 4, 4, 1)]


@pytest.mark.parametrize("tile, size", pairwise(TILES, [8, 80]), ids=str)
def test_one_tensor(rt: Runtime, tile: tuple[int, int, int, int], size: int) -> None:
    """q, k and v of one product, [B, S, 3 H D], and heads that begin at other rows of [B H, S, D]."""
    tx, ty, rm, kn = tile
    params = {"TX": tx, "TY": ty, "RM": rm, "KN": kn}
    columns = 3 * 2 * size
    joint = noise(0, BATCH, LENGTH, columns)
    views = tuple(rows(2, LENGTH, size, columns, at * 2 * size) for at in range(3))
    check_image(rt, "Attention", "ImageAttention", attributes(views), [joint, joint, joint, None], sides=2, **params)
    apart = noise(1, BATCH * 2, LENGTH, size)
    whole = (View((BATCH, 2, LENGTH, size), (2 * LENGTH * size, LENGTH * size, size, 1)),) * 3
    check_image(rt, "Attention", "ImageAttention", attributes(whole), [apart, apart, apart, None], sides=2, **params)
