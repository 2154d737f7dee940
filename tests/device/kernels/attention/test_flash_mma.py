"""Flash attention on matrix units: head sizes, tails, masks, parts of the keys; processors stand in for the units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.ir.graph import Node, Value
from opalite.ir.place import Place, Target
from opalite.ir.tensor_type import TensorType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.ops.strided_view import Movement

from ..conv_checks import check_kernel, find_kernel
from ..mma.test_staged_tile import optimised, units

__all__ = ["optimised", "units"]

Sizes = tuple[int, int, int, int]
NAMES = ("QW", "KW", "QB", "KEYS", "STAGES", "PARTS", "LOOK")


def params_of(*values: int) -> dict[str, int]:
    """Parameters in the order of NAMES."""
    return dict(zip(NAMES, values, strict=True))


def attention(
    q: Sizes, shared: int, keys: int, columns: int, mask: tuple[int, ...] | None = None, **attrs: Any
) -> tuple[Node, list[Any]]:
    """An Attention node in halves on random numbers, and its arrays; a third of the mask is -inf."""
    rng = np.random.default_rng(3)
    shapes = (q, (q[0], shared, keys, q[3]), (q[0], shared, keys, columns))
    arrays: list[Any] = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    hidden = None if mask is None else np.where(rng.random(mask) < 0.3, -np.inf, rng.standard_normal(mask))
    arrays.append(None if hidden is None else hidden.astype(np.float32))
    attrs = {"scale": 0.3, "causal": False, "softcap": 0.0} | attrs
    return make_node("Attention", attrs, arrays, precision=DType.FLOAT16), arrays


CASES = {  # q[B,H,S,D], heads and length of keys, columns; mask; attributes
    "plain": ((1, 2, 37, 64), 2, 53, 64, None, {}),
    "shared heads": ((2, 6, 70, 32), 2, 131, 32, None, {}),
    "causal": ((1, 2, 69, 64), 2, 69, 64, None, {"causal": True}),
    "mask": ((2, 2, 37, 96), 1, 53, 96, (2, 1, 37, 53), {}),
    "padding": ((2, 2, 5, 32), 2, 53, 32, (2, 1, 1, 53), {"causal": True}),
    "heads of 40, 77 keys": ((1, 2, 70, 40), 2, 77, 40, None, {}),
    "heads of 72": ((1, 2, 21, 72), 2, 33, 72, None, {}),
    "heads of 20, in pieces of 8 bytes": ((1, 2, 19, 20), 2, 33, 36, (19, 33), {}),
    "heads of 18, in pieces of 4 bytes": ((1, 2, 19, 18), 2, 33, 22, None, {"softcap": 2.0}),
    "odd heads": ((1, 2, 19, 17), 2, 33, 21, None, {}),
    "long rows": ((1, 1, 17, 128), 1, 70, 128, None, {}),
    "longer rows": ((1, 1, 17, 160), 1, 40, 160, None, {}),
    "longest rows": ((1, 1, 17, 256), 1, 20, 256, None, {}),
    "tokens of shared heads": ((2, 8, 2, 80), 2, 150, 80, (2, 8, 2, 150), {"causal": False}),
    "a token": ((1, 4, 1, 32), 4, 100, 32, (1, 1, 1, 100), {}),
}

# Each case has one tile besides its own.
NARROW, WIDE, TALL = (1, 4, 1, 16, 2, 1, 0), (2, 1, 1, 32, 2, 1, 0), (2, 1, 2, 32, 1, 1, 0)
OTHERS = {
    "plain": WIDE,
    "shared heads": NARROW,
    "causal": NARROW,
    "mask": WIDE,
    "padding": NARROW,
    "heads of 40, 77 keys": TALL,
    "odd heads": (1, 2, 1, 16, 1, 2, 0),
    "longer rows": (2, 1, 1, 16, 1, 1, 0),
    "tokens of shared heads": (1, 2, 1, 16, 2, 4, 0),
    "a token": (1, 2, 1, 16, 1, 16, 0),  # more parts than turns
}


@pytest.mark.parametrize("name, values", [*((name, None) for name in CASES), *OTHERS.items()])
def test_attention(units: Runtime, name: str, values: tuple[int, ...] | None) -> None:
    *sizes, attrs = CASES[name]
    node, arrays = attention(*sizes, **attrs)
    params = None if values is None else params_of(*values)
    check_kernel(units, find_kernel("Attention", "AttentionFlashMma"), node, arrays, params)


def test_optimised(optimised: Runtime) -> None:
    """A program that the compiler optimises, of the tile that is compiled soonest."""
    test_attention(optimised, "plain", WIDE)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("nan_to_zero", [False, True])
def test_no_number_and_nothing_seen(units: Runtime, nan_to_zero: bool, parts: int) -> None:
    """A row with a NaN or an infinite score is NaN, or zeros if they were asked for; one that sees nothing is zeros."""
    node, arrays = attention((1, 2, 21, 16), 2, 70, 16, (21, 70), nan_to_zero=nan_to_zero)
    q, mask = arrays[0], arrays[3]
    q[0, 0, 3], q[0, 1, 5, 1] = np.nan, np.inf
    mask[7, 69], mask[20] = np.nan, -np.inf
    (got,) = run_node(
        units, find_kernel("Attention", "AttentionFlashMma"), node, arrays, params_of(2, 1, 1, 32, 2, parts, 0)
    )
    (want,) = node.op.reference(arrays)
    broken = [(0, 3), (1, 5), (0, 7), (1, 7)]
    assert all((want[0, h, s] == 0).all() if nan_to_zero else np.isnan(want[0, h, s]).all() for h, s in broken)
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-3)


def test_a_wide_mask(units: Runtime) -> None:
    """Numbers that half does not hold hide keys; a query that sees none weighs all alike."""
    node, arrays = attention((1, 2, 21, 32), 2, 37, 32)
    mask = np.where(np.random.default_rng(3).random((1, 1, 21, 37)) < 0.4, np.finfo(np.float32).min, 0)
    mask[0, 0, 3] = np.finfo(np.float32).min
    arrays[3] = mask.astype(np.float32)
    node.inputs[3] = Value("mask", TensorType(DType.FLOAT32, mask.shape, Place(Target.OPENCL)))
    check_kernel(units, find_kernel("Attention", "AttentionFlashMma"), node, arrays, params_of(*NARROW))


@pytest.mark.parametrize("lowest, blocks", [(-np.inf, 1), (np.finfo(np.float32).min, 1), (-np.inf, 2)])
def test_look_at_the_mask(units: Runtime, lowest: float, blocks: int) -> None:
    """Keys that all queries of a group are hidden from are passed over, so that what is no number there is not seen;
    but for a group one of whose queries sees no key."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 2, n, 32)).astype(np.float32) for n in (70, 200, 200))
    queries, keys = np.arange(70)[:, None], np.arange(200)
    mask = np.where(keys > queries + 60, lowest, 0)[None, None].repeat(2, 0).astype(np.float32)
    mask[0, 0, :, 20:30] = -0.5
    mask[1, 0, 40] = lowest
    arrays = [q, k, v, mask]
    node = make_node("Attention", {"scale": 0.3, "causal": False, "softcap": 0.0}, arrays, precision=DType.FLOAT16)
    if lowest > -np.inf:
        node.inputs[3] = Value("mask", TensorType(DType.FLOAT32, mask.shape, Place(Target.OPENCL)))
    params = params_of(2, 1, blocks, 32, 3 - blocks, 1, 1)
    kernel = find_kernel("Attention", "AttentionFlashMma")
    check_kernel(units, kernel, node, arrays, params)
    (want,) = node.op.reference(arrays)
    v[:, :, 160:] = np.nan  # hidden from all
    (got,) = run_node(units, kernel, node, arrays, params)
    seen = np.ones((2, 70), bool)
    seen[1, slice(32, 64) if blocks == 1 else slice(0, 64)] = False  # the group of the query that sees no key
    np.testing.assert_allclose(got.transpose(0, 2, 1, 3)[seen], want.transpose(0, 2, 1, 3)[seen], rtol=0, atol=5e-3)


@pytest.mark.parametrize("size", [32, 40, 21])
def test_in_place(units: Runtime, size: int) -> None:
    """Queries, keys and values of one tensor [S,B,3,H,D], and an output [S,B,H,D]."""
    joint = np.random.default_rng(3).standard_normal((37, 2, 3, 2, size)).astype(np.float32)
    views = tuple(Movement.of(joint.shape).pick(2, i).transpose((1, 2, 0, 3)).view for i in range(3))
    attrs = {"scale": 0.2, "causal": False, "softcap": 0.0, "views": views, "out_axes": (2, 0, 1, 3)}
    node = make_node("Attention", attrs, [joint, joint, joint, None], precision=DType.FLOAT16)
    check_kernel(units, find_kernel("Attention", "AttentionFlashMma"), node, [joint, joint, joint, None])
