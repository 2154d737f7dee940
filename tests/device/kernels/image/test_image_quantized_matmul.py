"""Products of images with matrices of a few bits against the reference, and words read as texels of their buffer."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.errors import DeviceError
from opalite.expr.parse import parse_expr
from opalite.ir import FLAT, DType
from opalite.ir.place import IMAGE
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding, Kernel
from opalite.kernels.node_launches import launches_of

from ....helpers.pairs import pairwise
from ..conv_checks import as_adreno, check_kernel, find_kernel

F32 = DType.FLOAT32
SIDES = [(IMAGE, IMAGE), (FLAT, IMAGE), (IMAGE, FLAT)]
SHAPES = [(1, 131, 101), (7, 13, 37), (13, 67, 163)]
TILES = [{"TM": 1, "TB": 1, "SPLIT": 1}, {"TM": 4, "TB": 2, "SPLIT": 4}, {"TM": 2, "TB": 1, "SPLIT": 16}, {}]
CODES = tuple(float(v) for v in np.linspace(-1, 1, 16) ** 3)


def quantized(n: int, k: int, bits: int, block: int, zeros: str, transposed: bool = True) -> list[Any]:
    """Integers [n, k] or [k, n], scales, and zero points: none, one, bytes or floats."""
    rng = np.random.default_rng(n * k)
    q = rng.integers(0, 1 << bits, (n, k)).astype(np.uint8)
    shape = n, -(-k // block)
    given = rng.integers(0, 1 << bits, shape)
    zero = {"none": None, "one": np.array([[3]], np.uint8), "bytes": given.astype(np.uint8)}.get(zeros)
    if zeros == "floats":
        zero = (given + 0.25).astype(np.float32)
    stored = q if transposed else np.ascontiguousarray(q.T)
    return [stored, (rng.random(shape) + 0.5).astype(np.float32), zero]


def check(
    rt: Runtime, kernel: Kernel, shape: tuple[int, ...], given: list[Any], attrs: dict[str, Any], **options: Any
) -> str:
    """The product agrees with the reference; returns the options of its program."""
    a = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    sides, params = options.pop("sides", (FLAT, FLAT)), options.pop("params", {})
    arrays = [a, *given, *options.pop("operands", [])]
    operands = [FLAT if sides[1] is FLAT or x.size == 1 else IMAGE for x in arrays[4:]]
    binding = Binding((sides[0], None, None, None, *operands), (sides[1],))
    node = make_node("QuantizedMatMul", attrs, arrays, const=(1, 2, 3), binding=binding, **options)
    problem = kernel.problem(node, rt.info)
    assert binding in kernel.bindings(problem)
    check_kernel(rt, kernel, node, arrays, params)
    (launch,) = launches_of(kernel, problem, {**kernel.defaults(problem), **params})
    return " ".join(f"{k}={v}" for k, v in launch.defines.items())


@pytest.mark.parametrize(
    "case, bits, zeros, tile, sides, precision",
    pairwise(
        SHAPES, [(4, 32), (4, 16), (8, 1000), (2, 64)], ["none", "one", "bytes", "floats"], TILES, SIDES,
        [None, DType.FLOAT16],
    ),
)  # fmt: skip
def test_products(
    rt: Runtime,
    case: tuple[int, int, int],
    bits: tuple[int, int],
    zeros: str,
    tile: dict[str, int],
    sides: Any,
    precision: DType | None,
) -> None:
    (m, n, k), (width, block) = case, bits
    attrs = {"trans_a": False, "trans_b": n != 13, "bits": width, "block": block}
    given = quantized(n, k, width, block, zeros, transposed=n != 13)
    kernel = find_kernel("QuantizedMatMul", "ImageQuantizedMatmul")
    found = check(as_adreno(rt), kernel, (m, k), given, attrs, params=tile, sides=sides, precision=precision)
    assert "TEXELS=1" in found


@pytest.mark.parametrize("sides", SIDES)
def test_stacks_epilogues_and_codebooks(rt: Runtime, sides: Any) -> None:
    expr = parse_expr("add($0, $1); max(%0, 0.0:f32)", [F32] * 2)
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32, "table": CODES, "epilogue": expr}
    operand = np.random.default_rng(3).standard_normal((3, 5, 19)).astype(np.float32)
    kernel = find_kernel("QuantizedMatMul", "ImageQuantizedMatmul")
    check(as_adreno(rt), kernel, (3, 5, 70), quantized(19, 70, 4, 32, "none"), attrs, sides=sides, operands=[operand])


@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize("texels", [True, False])
def test_a_row_reads_words_as_texels_where_images_are_preferred(rt: Runtime, m: int, texels: bool) -> None:
    other = as_adreno(rt)
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32}
    given = quantized(131, 101, 4, 32, "bytes")
    # 5 panels of 32 columns, 4 quads each.
    other.info = dataclasses.replace(other.info, image_buffer_max=640 if texels else 639)
    found = check(other, find_kernel("QuantizedMatMul", "QuantizedGemvGpu"), (m, 101), given, attrs)
    assert ("TEXELS=1" in found) is texels


def test_a_buffer_with_more_texels_than_an_image_may_have(rt: Runtime) -> None:
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    buffer = rt.allocate(64)
    assert rt.allocator.texels(buffer, 64).width == 4
    most = rt.info.image_buffer_max
    with pytest.raises(DeviceError, match=f"{most + 1} texels exceeds the {most}"):
        rt.allocator.texels(buffer, 16 * (most + 1))
