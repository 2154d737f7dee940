"""Attention kernels against the reference: head sizes, shared heads, masks, causal order, caps, types, parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.ir.graph import Value
from opalite.ir.place import Place, Target
from opalite.ir.tensor_type import TensorType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.ops.attention import Attention
from opalite.ops.strided_view import Movement

from ....helpers.pairs import pairwise

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(17)
_START = rng.bit_generator.state
KERNELS = [pytest.param(k, id=k.name) for k in kernels_for("Attention")]


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    rng.bit_generator.state = _START


def check(
    rt: Runtime,
    kernel: Kernel,
    q: tuple[int, int, int, int],
    shared: int,
    keys: int,
    columns: int,
    *,
    mask: tuple[int, ...] | None = None,
    causal: bool = False,
    softcap: float = 0.0,
    dtype: str = "float32",
    precision: DType | None = None,
    params: dict[str, Any] | None = None,
    tolerance: float = 1e-5,
) -> None:
    """`shared` heads of `keys` keys; `tolerance` is relative to the largest element of the reference."""
    batch, _, _, size = q
    arrays: list[Array | None] = [
        rng.standard_normal(shape).astype(dtype)
        for shape in (q, (batch, shared, keys, size), (batch, shared, keys, columns))
    ]
    hidden = None if mask is None else rng.random(mask) < 0.3
    arrays.append(None if mask is None else np.where(hidden, -np.inf, rng.standard_normal(mask)).astype(dtype))
    attrs = {"scale": 0.4, "causal": causal, "softcap": softcap}
    node = make_node("Attention", attrs, arrays, precision=precision)
    if why := kernel.refuse(kernel.problem(node, rt.info)) or (
        params and kernel.illegal(kernel.problem(node, rt.info), params)
    ):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays, params)
    (want,) = node.op.reference(arrays)
    if want.size:
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(np.abs(want).max(), 1e-3))


SIZES = [
    ((1, 2, 5, 8), 2, 7, 8),
    ((2, 6, 37, 17), 2, 53, 19),
    ((1, 3, 67, 64), 3, 67, 64),
    ((2, 2, 1, 64), 1, 131, 64),
    ((1, 1, 3, 300), 1, 5, 290),
    ((1, 4, 1, 1), 4, 1, 1),
]


# In causal order and not for as many queries as keys, and for others; the rest in turn, since a program takes a second.
ORDERED = [(*s, causal) for i, s in enumerate(SIZES) for causal in ([False, True] if i in (1, 2) else [i % 2 == 0])]


@pytest.mark.parametrize("q, shared, keys, columns, causal", ORDERED)
@pytest.mark.parametrize("kernel", KERNELS)
def test_sizes(
    rt: Runtime, kernel: Kernel, q: tuple[int, int, int, int], shared: int, keys: int, columns: int, causal: bool
) -> None:
    check(rt, kernel, q, shared, keys, columns, causal=causal)


@pytest.mark.parametrize("lowest", [-1e9, float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize("kernel", KERNELS)
def test_masks_that_half_does_not_hold(rt: Runtime, kernel: Kernel, lowest: float) -> None:
    """They stay float32 where all else is half; a query that they hide all keys from weighs these alike."""
    shapes = ((2, 4, 21, 32), (2, 2, 37, 32), (2, 2, 37, 32))
    arrays: list[Array | None] = [rng.standard_normal(s).astype(np.float16).astype(np.float32) for s in shapes]
    mask = np.where(rng.random((2, 1, 21, 37)) < 0.4, lowest, 0).astype(np.float32)
    mask[1, 0, 3] = lowest
    arrays.append(mask)
    attrs = {"scale": 0.4, "causal": False, "softcap": 0.0}
    node = make_node("Attention", attrs, arrays, precision=DType.FLOAT16)
    node.inputs[3] = Value("mask", TensorType(DType.FLOAT32, mask.shape, Place(Target.OPENCL)))
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays)
    (want,) = node.op.reference(arrays)
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-3)


@pytest.mark.parametrize("mask", [(37, 53), (53,), (2, 1, 1, 53), (6, 37, 53), (1, 6, 37, 1), (2, 1, 37, 53), ()])
@pytest.mark.parametrize("kernel", KERNELS)
def test_masks(rt: Runtime, kernel: Kernel, mask: tuple[int, ...]) -> None:
    """Some queries see no key at all."""
    check(rt, kernel, (2, 6, 37, 16), 2, 53, 16, mask=mask)
    check(rt, kernel, (2, 6, 37, 16), 2, 53, 16, mask=mask, causal=True)


@pytest.mark.parametrize("mask", [None, (37, 53)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_softcap(rt: Runtime, kernel: Kernel, mask: tuple[int, ...] | None) -> None:
    check(rt, kernel, (1, 2, 37, 16), 2, 53, 16, mask=mask, softcap=1.5)


@pytest.mark.parametrize("q, keys", [((1, 2, 0, 8), 5), ((0, 2, 3, 8), 5), ((1, 2, 3, 8), 0), ((1, 2, 3, 0), 5)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_empty(rt: Runtime, kernel: Kernel, q: tuple[int, int, int, int], keys: int) -> None:
    check(rt, kernel, q, 2, keys, 8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_types(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, (1, 2, 37, 24), 2, 53, 20, mask=(37, 53), precision=DType.FLOAT16, tolerance=1e-2)
    if rt.info.fp64:
        check(rt, kernel, (1, 2, 37, 24), 2, 53, 20, mask=(37, 53), dtype="float64", tolerance=1e-12)


@pytest.mark.parametrize(
    "mr, rows, blocks, causal", [(8, 16, 1, False), (6, 8, 2, True), (4, 0, 4, False), (1, 0, 2, True)]
)
def test_stream_parameters(rt: Runtime, mr: int, rows: int, blocks: int, causal: bool) -> None:
    (kernel,) = (k for k in kernels_for("Attention") if k.name == "AttentionFlashCpu")
    params = {"MR": mr, "ROWS": rows, "BLOCKS": blocks}
    if blocks in (1, 4):
        check(rt, kernel, (1, 2, 37, 24), 2, 203, 20, causal=causal, params=params)
    else:
        check(rt, kernel, (1, 1, 70, 33), 1, 130, 49, causal=not causal, mask=(70, 130), params=params)


HIDE = {
    "later keys": lambda s, t: t > s + 60,
    "all but a window": lambda s, t: (t > s + 60) | (t < s),
    "the first keys": lambda s, t: t < 170,
    "all keys of some": lambda s, t: (t > s) | (s < 20),
}


PENALTIES = [-np.inf, np.finfo(np.float32).min, -65504.0, -40.0]
# One kernel leaves blocks out; of the others, which compute them, each is given each mask and each penalty once.
HIDDEN = [
    pytest.param(k, hide, by, id=f"{k.name}-{hide}-{by}")
    for k in kernels_for("Attention")
    for i, hide in enumerate(HIDE)
    for j, by in enumerate(PENALTIES)
    if k.name == "AttentionFlashCpu" or i == j
]


@pytest.mark.parametrize("kernel, hide, by", HIDDEN)
def test_hidden_blocks(rt: Runtime, kernel: Kernel, hide: str, by: float) -> None:
    """A penalty that hides whole blocks, or, being small beside the scores, does not."""
    queries, keys = 150, 320
    hidden = HIDE[hide](np.arange(queries)[:, None], np.arange(keys)[None])
    mask = np.where(hidden, by, rng.standard_normal((queries, keys))).astype(np.float32)
    q, k, v = (rng.standard_normal((1, 2, n, 24)).astype(np.float32) for n in (queries, keys, keys))
    arrays: list[Array | None] = [4 * q, 4 * k, v, mask]
    node = make_node("Attention", {"scale": 0.4, "causal": False, "softcap": 0.0}, arrays)
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays)
    np.testing.assert_allclose(got, node.op.reference(arrays)[0], rtol=0, atol=1e-4)  # scores go beyond a hundred


@pytest.mark.parametrize("what", [1, 2, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_number_is_hidden(rt: Runtime, what: int, value: float) -> None:
    """One among the keys, values or penalties that the mask hides gives what it gives by the formula."""
    (kernel,) = (k for k in kernels_for("Attention") if k.name == "AttentionFlashCpu")
    arrays: list[Array | None] = [rng.standard_normal((1, 1, n, 16)).astype(np.float32) for n in (64, 256, 256)]
    mask = np.where(np.arange(256)[None] > np.arange(64)[:, None], np.finfo(np.float32).min, 0)
    arrays.append(mask.astype(np.float32))
    changed = arrays[what]
    assert changed is not None
    changed[(50, 200) if what == 3 else (0, 0, 250, 3)] = value
    node = make_node("Attention", {"scale": 0.4, "causal": False, "softcap": 0.0}, arrays)
    (got,) = run_node(rt, kernel, node, arrays)
    with np.errstate(all="ignore"):
        (want,) = node.op.reference(arrays)
    assert np.isnan(want).any()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tx, ty, rm, kn", [(8, 8, 4, 1), (32, 1, 1, 2), (16, 4, 1, 4)])
def test_tile_parameters(rt: Runtime, tx: int, ty: int, rm: int, kn: int) -> None:
    (kernel,) = (k for k in kernels_for("Attention") if k.name == "AttentionTiledGpu")
    check(rt, kernel, (1, 2, 37, 70), 2, 53, 40, causal=True, params={"TX": tx, "TY": ty, "RM": rm, "KN": kn})


@pytest.mark.parametrize("size, columns, mask", [(17, 21, None), (40, 40, (70, 90)), (96, 80, None)])
@pytest.mark.parametrize("tile", [(8, 8, 6, 4, 2, 1), (10, 8, 4, 4, 1, 2), (8, 16, 2, 2, 2, 8)])
def test_flash_parameters(
    rt: Runtime, size: int, columns: int, mask: tuple[int, ...] | None, tile: tuple[int, ...]
) -> None:
    """Rows of odd length, values that take the place of keys, and keys in parts, some of them empty."""
    (kernel,) = (k for k in kernels_for("Attention") if k.name == "AttentionFlashGpu")
    params = dict(zip(("TX", "TY", "RM", "KN", "TILES", "PARTS"), tile, strict=True))
    check(rt, kernel, (1, 2, 70, size), 1, 90, columns, mask=mask, causal=mask is None, params=params)


@pytest.mark.parametrize("precision", [None, DType.FLOAT16])
@pytest.mark.parametrize("kernel", KERNELS)
def test_places(rt: Runtime, kernel: Kernel, precision: DType | None) -> None:
    """Queries, keys and values of one tensor [S,B,3,H,D], and an output [S,B,H,D]."""
    length, batch, heads, size = 37, 2, 3, 24
    joint = rng.standard_normal((length, batch, 3, heads, size)).astype(np.float32)
    views = tuple(Movement.of(joint.shape).pick(2, i).transpose((1, 2, 0, 3)).view for i in range(3))
    attrs = {"scale": 0.2, "causal": False, "softcap": 0.0, "views": views, "out_axes": (2, 0, 1, 3)}
    arrays: list[Array | None] = [joint, joint, joint, None]
    node = make_node("Attention", attrs, arrays, precision=precision)
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays)
    q, k, v = (joint[:, :, i].transpose(1, 2, 0, 3) for i in range(3))
    plain = Attention(0.2, causal=False, softcap=0.0)
    want = plain.reference([q, k, v, None])[0].transpose(2, 0, 1, 3)
    np.testing.assert_allclose(got, want, rtol=0, atol=(1e-2 if precision else 1e-5) * np.abs(want).max())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("nan_to_zero", [False, True])
@pytest.mark.parametrize("columns", [16, 64])
def test_nan_among_scores(rt: Runtime, kernel: Kernel, nan_to_zero: bool, columns: int) -> None:
    """A row with a NaN or an infinite score is NaN, or zeros if they were asked for; one that sees nothing is zeros."""
    q, k, v = (rng.standard_normal((1, 2, rows, columns)).astype("f4") for rows in (37, 53, 53))
    mask = np.zeros((37, 53), "f4")
    q[0, 0, 3] = np.nan
    q[0, 1, 5, 1] = np.inf
    mask[7, 52], mask[20] = np.nan, -np.inf
    arrays = [q, k, v, mask]
    node = make_node("Attention", {"scale": 0.3, "causal": False, "softcap": 0.0, "nan_to_zero": nan_to_zero}, arrays)
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays)
    (want,) = node.op.reference(arrays)
    broken = [(0, 3), (1, 5), (0, 7), (1, 7)]
    assert all((want[0, h, s] == 0).all() if nan_to_zero else np.isnan(want[0, h, s]).all() for h, s in broken)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "name, tile", [("AttentionDecodeCpu", {}), ("AttentionSplitKv", {"WG": 64, "KEYS": 32, "ROWS": 2})]
)
@pytest.mark.parametrize(
    "parts, dtype, q, keys",
    [
        (parts, dtype, *shape)
        for parts, dtype, shape in pairwise(
            [1, 2, 8], ["float32", "float16"], [((2, 6, 1, 64), 301), ((1, 8, 2, 80), 17), ((1, 2, 1, 33), 5)]
        )
    ],
)
def test_few_queries_of_a_long_cache(
    rt: Runtime, name: str, tile: dict[str, int], parts: int, dtype: str, q: tuple[int, ...], keys: int
) -> None:
    kernel = next(k for k in kernels_for("Attention") if k.name == name)
    precise = {"tolerance": 2e-3} if dtype == "float16" else {}
    mask = (q[0], 1, q[2], keys)
    params = {**tile, "PARTS": parts}
    check(rt, kernel, q, 2, keys, q[3], mask=mask, softcap=3.0, dtype=dtype, params=params, **precise)


def test_few_queries_see_no_number_and_nothing(rt: Runtime) -> None:
    """As in test_nan_among_scores, in one part of the keys and in several, by kernels for few queries."""
    q, k, v = (rng.standard_normal((1, 2, rows, 16)).astype("f4") for rows in (4, 150, 150))
    mask = np.zeros((4, 150), "f4")
    q[0, 0, 3], mask[1, 149], mask[2], mask[3, :40] = np.nan, np.nan, -np.inf, -np.inf
    arrays = [q, k, v, mask]
    node = make_node("Attention", {"scale": 0.3, "causal": True, "softcap": 0.0, "nan_to_zero": False}, arrays)
    (want,) = node.op.reference(arrays)
    for kernel in kernels_for("Attention"):
        if kernel.refuse(problem := kernel.problem(node, rt.info)) is None and "PARTS" in kernel.space:
            for parts in (1, 4):
                (got,) = run_node(rt, kernel, node, arrays, {**kernel.defaults(problem), "PARTS": parts})
                np.testing.assert_allclose(got, want, rtol=0, atol=1e-4, err_msg=f"{kernel.name} {parts}")
